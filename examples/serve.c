/* A server in C11: POST /v1/model, and in the header Deadline-Ms how long the answer may take. What
 * would be late gets 503 at once. The rest runs in batches, several at a time, each with a stream,
 * room in the GPU's memory and the CUDA graphs of its lane. At SIGTERM batches run to their end,
 * and what waits gets 503. Runs without ceded and without a GPU, too: docs/serving.md. */
#include "serve_http.h"
#include "serve_model.h"
#include <cede/graph.h>
#include <cede/queue.h>
#include <cede/scope.h>
#include <errno.h>
#include <stdio.h>

enum { LANES = 3 }; /* batches at a time */
static struct model_row *rows[LANES];
static struct cede_graph *graphs[LANES];
static struct cede_queue *queue;

static void on_request(void *arg, struct http_request *q)
{
    const struct cede_queue_request r = {.deadline_us = q->deadline_us, .user = q};
    if (cede_queue_submit(queue, &r, NULL) < 0)
        http_answer(q, 503, "{\"error\": \"%s\"}\n", cede_error_text());
}

/* A task of the scope: runs batches until the queue is shut down. A failure cancels the scope. */
static int run(struct cede_scope *scope, void *arg)
{
    struct cede_queue_batch b;
    int r = model_thread();
    while (!r && (r = cede_queue_next(queue, 0, CEDE_TIMEOUT_FOREVER, &b)) == 0) {
        for (unsigned i = 0; i < b.n; i++)
            rows[b.lane][i].input = model_input(((struct http_request *)b.user[i])->body);
        r = cede_graph_launch(graphs[b.lane], b.lease.stream, b.n, NULL);
        r = r ? r : model_wait(b.lease.stream);
        for (unsigned i = 0; i < b.n; i++)
            http_answer(b.user[i], r ? 500 : 200, "{\"output\": [[%u]]}\n", rows[b.lane][i].output);
        cede_queue_done(queue, &b, r != 0); /* lease and room go back */
    }
    return r == -ESHUTDOWN ? 0 : r;
}

int main(int argc, char **argv)
{
    struct cede_queue_config config;
    struct cede_graph_config sizes;
    struct cede_memory_config room;
    struct cede_memory *memory;
    struct cede_scope *scope;
    cede_queue_defaults(&config);
    cede_graph_defaults(&sizes);
    cede_memory_defaults(&room);
    config.admit = 1;
    config.batches = LANES;
    config.batch_max = sizes.max_batch = MODEL_BATCH;
    config.batch_wait_us = 2000;
    config.memory = &memory;
    room.total_bytes = 1 << 30; /* at most */
    int r = cede_connect(&config.client);
    r = r ? r : cede_pool_open(NULL, &config.pool);
    r = r ? r : model_open(config.pool);
    r = r ? r : cede_memory_open(&room, &memory);
    r = r ? r : cede_queue_open(&config, &queue);
    r = r ? r : cede_queue_set_lease(queue, 0, "model", &model_row_shape);
    sizes.flags = model_stream ? 0 : CEDE_GRAPH_EAGER;
    for (int i = 0; !r && i < LANES; i++) {
        r = cede_graph_open(&sizes, model_step, rows[i] = model_rows(), &graphs[i]);
        r = r ? r : cede_graph_prepare(graphs[i], model_stream, 0);
    }
    r = r ? r : cede_scope_open(&scope, NULL, LANES, CEDE_TIMEOUT_FOREVER);
    for (int i = 0; !r && i < LANES; i++)
        r = cede_scope_fork(scope, run, NULL);
    if (r)
        return fprintf(stderr, "serve: %d: %s\n", r, cede_error_text()), 1;
    struct http *http = http_serve(argv[1], "/v1/model", on_request, NULL, scope);
    cede_queue_shutdown(queue);
    for (void *q; cede_queue_reclaim(queue, &q) == 0;)
        http_answer(q, 503, "{\"error\": \"the server ends\"}\n");
    r = http_close(http); /* when all are answered */
    return cede_scope_join(scope) ? fprintf(stderr, "serve: %s\n", cede_error_text()), 1 : r;
}
