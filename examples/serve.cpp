/* A server loop in C++17: it admits requests that will be in time, runs them in batches on leases
 * of the GPUs, and ends as a whole if one part of it fails. Runs without a GPU and without a daemon
 * too. A sleep stands for the work.
 *
 *     c++ -std=c++17 serve.cpp $(pkg-config --cflags --libs cede) -o serve */
#include <cede/cede.hpp>
#include <cstdio>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

struct question {
    int number;
    bool answered = false;
};

/* Hands in requests, as a socket would. A request that would be late is refused at once. Throws
 * nothing, so that the queue is shut down at its end, and run() ends too. */
static void receive(const cede::scope &scope, cede::queue<question> &queue,
                    std::vector<question> &questions) noexcept
{
    cede::admission a;
    a.deadline = 50ms;
    for (question &q : questions) {
        if (scope.cancelled())
            break;
        auto ticket = queue.try_submit(&q, a); /* submit() would throw cede::refused */
        if (ticket && !ticket->id)
            std::fprintf(stderr, "request %d: %s\n", q.number, cede_queue_text(ticket->answer));
        std::this_thread::sleep_for(200us);
    }
    while (queue.statistics().waiting && !scope.cancelled())
        std::this_thread::sleep_for(1ms);
    queue.shutdown(); /* reclaim() would hand back what still waits */
}

/* Runs one batch after the other until the queue is shut down. */
static void run(cede::queue<question> &queue)
{
    while (auto batch = queue.next()) {
        /* The batch has a lease. If this throws, the batch is reported as failed, its lease is
         * released, and the scope is cancelled. */
        std::this_thread::sleep_for(1ms); /* in place of: work on batch->stream(), and its end */
        for (question *q : *batch)
            q->answered = true;
        batch->done();
    }
}

int main()
try {
    std::vector<question> questions;
    for (int i = 0; i < 100; i++)
        questions.push_back({i});
    cede::client client; /* first: the queue reports requests on it */
    cede::pool pool;
    pool.occupancy("gemm", 0.3); /* or kernel() with its CUfunction */
    cede::queue_config config;
    config.admit = 1;
    config.batch_max = 8;
    config.batch_wait_us = 500;
    config.cede = client.handle();
    config.pool = pool.handle();
    cede::queue<question> queue(config);
    queue.set_lease(0, "gemm");

    cede::scope scope(3, 10s);
    scope.fork([&] { receive(scope, queue, questions); });
    for (int i = 0; i < 2; i++) /* as many batches at a time, where the GPU has room */
        scope.fork([&] { run(queue); });
    scope.join(); /* throws what a task threw */

    int answered = 0;
    for (const question &q : questions)
        answered += q.answered;
    std::printf("%d requests answered in %llu batches\n", answered,
                static_cast<unsigned long long>(queue.statistics().batches));
    return 0;
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
