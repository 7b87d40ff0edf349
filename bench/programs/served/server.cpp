/* A server of two models, with a long computation in what they leave of the GPU, written twice:
 * with a thread and a stream per model, first come first served, and with libcede's queues, leases
 * and a scope. docs/serving.md has excerpts of the second; server.py is the same in Python. */
#include <algorithm>
#include <condition_variable>
#include <deque>

#include "load.h"

/* ---- as people write it ---------------------------------------------------------------------- */

/* Requests of one model. */
struct line {
    std::mutex lock;
    std::condition_variable more;
    std::deque<request *> requests;
};

/* Batches of what is there. */
static void run_line(run &r, unsigned m, line &l, int priority)
{
    void *stream = work_stream(priority);
    work_run(static_cast<work_kind>(m), models[m].batch_max, stream);
    for (;;) {
        std::vector<request *> batch;
        {
            std::unique_lock<std::mutex> guard(l.lock);
            l.more.wait(guard, [&] { return r.over || !l.requests.empty(); });
            if (r.over)
                return;
            while (!l.requests.empty() && batch.size() < models[m].batch_max) {
                batch.push_back(l.requests.front());
                l.requests.pop_front();
            }
        }
        r.answer(m, batch, stream);
    }
}

/* Mode `priority`: on streams of different priorities, as in CUDA: the lowest number is the best.
 */
void serve_plain(run &r)
{
    line lines[MODELS];
    std::vector<std::thread> threads;
    for (unsigned m = 0; m < MODELS; m++) {
        line &l = lines[m];
        int priority = r.mode == "priority" ? static_cast<int>(m) - 2 : 0;
        threads.emplace_back([&r, &l, m] {
            r.arrive(m, [&l](request &q) {
                std::lock_guard<std::mutex> guard(l.lock);
                l.requests.push_back(&q);
                l.more.notify_one();
            });
        });
        threads.emplace_back([&r, &l, m, priority] { run_line(r, m, l, priority); });
    }
    threads.emplace_back([&r] {
        void *stream = work_stream(0);
        std::this_thread::sleep_until(r.start);
        for (; !r.over; r.bulk++)
            work_run(WORK_BULK, 1, stream);
    });
    std::this_thread::sleep_until(r.start + r.length);
    for (line &l : lines) {
        std::lock_guard<std::mutex> guard(l.lock);
        r.over = true;
        l.more.notify_one();
    }
    for (std::thread &t : threads)
        t.join();
}

/* ---- with libcede ---------------------------------------------------------------------------- */

static void submit(run &r, unsigned m, cede::queue<request> &queue)
{
    r.arrive(m, [&](request &q) {
        cede::admission a;
        a.cls = models[m].cls;
        a.deadline = q.arrival + models[m].deadline - r.now(); /* counts from now */
        if (a.deadline == 0us)
            a.deadline = -1us; /* 0 would be none */
        auto ticket = queue.try_submit(&q, a);
        q.refused = ticket && !ticket->id;
    });
}

static void run_queue(run &r, unsigned m, cede::queue<request> &queue)
{
    /* Before the first batch, whose time is learned: handles, buffers. */
    work_run(static_cast<work_kind>(m), models[m].batch_max, nullptr);
    while (auto batch = queue.next()) {
        r.answer(m, *batch, batch->stream());
        batch->done();
    }
}

static void run_bulk(run &r, cede::pool &pool)
{
    work_run(WORK_BULK, 1, nullptr);
    std::this_thread::sleep_until(r.start);
    for (; !r.over; r.bulk++) {
        cede::lease lease = pool.acquire("bulk", {}, 0, cede::timeout_forever);
        work_run(WORK_BULK, 1, lease.stream());
    }
}

void serve_cede(run &r)
{
    cede::client client;
    cede::pool_config room;
    room.max_total_occupancy = 1.3; /* a batch that fills the GPU, and a small one */
    cede::pool pool(room);
    pool.occupancy("bulk", 1);
    cede::queue_config config;
    config.admit = 1;
    config.quantile = 0.95; /* run times vary with what runs beside */
    config.client = client.handle();
    config.pool = pool.handle();
    std::vector<cede::queue<request>> queues; /* one per deadline */
    for (unsigned m = 0; m < MODELS; m++) {
        const model &d = models[m];
        pool.occupancy(d.name, d.occupancy);
        queues.emplace_back(config);
        queues[m].set_model(0, d.batch_max, d.batch_wait, r.one[m]);
        queues[m].set_lease(0, d.name);
    }

    cede::scope scope(3 * MODELS + 1); /* as many threads as tasks */
    for (unsigned m = 0; m < MODELS; m++) {
        scope.fork([&, m] { submit(r, m, queues[m]); });
        for (int i = 0; i < 2; i++)
            scope.fork([&, m] { run_queue(r, m, queues[m]); });
    }
    scope.fork([&] { run_bulk(r, pool); });

    /* next() does not know of the scope: a queue that is shut down ends it. */
    while (r.now() < r.length && !scope.cancelled())
        std::this_thread::sleep_for(1ms);
    r.over = true;
    for (auto &queue : queues)
        queue.shutdown();
    scope.join(); /* throws what a task threw */
    for (unsigned m = 0; m < MODELS; m++)
        r.queues[m] = queues[m].statistics();
    r.pool = pool.statistics();
}
