/* A server in C++17: POST /v1/model, with its deadline in the header Deadline-Ms. What would be
 * late gets 503 at once. The rest runs in batches, several at a time, each with a stream, room in
 * memory and the CUDA graphs of its lane. Without ceded and without a GPU, too: docs/serving.md. */
#include "serve_http.h"
#include "serve_model.h"
#include <cede/cede.hpp>
#include <cstdio>
#include <vector>

static const unsigned LANES = 3; /* batches at a time */

static void on_request(void *queue, http_request *q)
{
    cede::admission a;
    a.deadline = std::chrono::microseconds(q->deadline_us);
    const auto ticket = static_cast<cede::queue<http_request> *>(queue)->try_submit(q, a);
    if (!ticket || !ticket->id)
        http_answer(q, 503, "{\"error\": \"%s\"}\n", cede_error_text());
}

int main(int, char **argv)
try {
    cede::client client;
    cede::pool pool;
    if (model_open(pool.handle()))
        return 1;
    cede::memory_config room;
    room.total_bytes = 1 << 30; /* at most */
    cede::memory memory(room);
    cede_memory *const memories[] = {memory.handle()};
    cede::queue_config config;
    config.admit = 1;
    config.batches = LANES;
    config.batch_max = MODEL_BATCH;
    config.batch_wait_us = 2000;
    config.client = client.handle();
    config.pool = pool.handle();
    config.memory = memories;
    cede::queue<http_request> queue(config);
    const cede_shape &one = model_row_shape;
    queue.set_lease(0, "model", {one.blocks, one.threads, 0, 0, one.memory_bytes, {}});
    cede::graph_config sizes;
    sizes.max_batch = MODEL_BATCH;
    sizes.flags = model_stream ? 0 : CEDE_GRAPH_EAGER;
    std::vector<model_row *> rows;
    std::vector<cede::graph_cache> graphs;
    for (unsigned i = 0; i < LANES; i++) {
        rows.push_back(model_rows());
        auto step = [row = rows[i]](void *s, unsigned n) { return model_step(row, s, n); };
        graphs.emplace_back(step, sizes).prepare(model_stream);
    }
    /* Runs batches until none will come. An exception cancels the scope. */
    auto run = [&] {
        int r = model_thread();
        while (auto batch = queue.next()) {
            const unsigned lane = batch->info().lane, n = batch->info().n;
            model_row *in = rows[lane], *out = in;
            for (const http_request *q : *batch)
                in++->input = model_input(q->body);
            r = r ? r : graphs[lane].try_launch(batch->stream(), n).value();
            r = r ? r : model_wait(batch->stream());
            for (http_request *q : *batch)
                http_answer(q, r ? 500 : 200, "{\"output\": [[%u]]}\n", out++->output);
            if (r)
                throw cede::error(-EIO, "the model failed");
            batch->done(); /* lease and room go back */
        }
    };
    cede::scope scope(LANES);
    for (unsigned i = 0; i < LANES; i++)
        scope.fork(run);
    http *http = http_serve(argv[1], "/v1/model", on_request, &queue, scope.handle());
    queue.shutdown();
    queue.reclaim([](http_request *q) { http_answer(q, 503, "{\"error\": \"it ends\"}\n"); });
    const int failed = http_close(http); /* when all are answered */
    scope.join();                        /* throws what a task threw */
    return failed;
} catch (const std::exception &e) {
    return std::fprintf(stderr, "serve: %s\n", e.what()), 1;
}
