/* The inner loop of a program that serves models, with the overlap loop and a future map; see
 * cede_step_open(3). 8 requests of different lengths get tokens; while the GPU computes a step, the
 * next one is scheduled and launched with tokens that are not known yet.
 *
 * Runs without a GPU: all is in host memory then, a loop stands for the model, and nothing
 * overlaps. The comments with CUDA say what a program with a GPU does in its place.
 *
 *     cc step.c $(pkg-config --cflags --libs cede) -o step */
#include <cede/step.h>
#include <stdio.h>
#include <string.h>

#define BATCH    4
#define REQUESTS 8

struct request {
    uint64_t id;
    int32_t token; /* the latest that is known; at first the prompt's last */
    int tokens, most;
    int ended;
};

/* Inputs of one step, in memory that stays until it is finished: one for each lane. */
struct inputs {
    int32_t token[BATCH];
};

struct engine {
    struct cede_step_loop *loop;
    struct cede_futures *futures;
    struct request requests[REQUESTS];
    struct inputs inputs[CEDE_STEP_DEPTH_MAX + 1]; /* CUDA: pinned, by cuMemHostAlloc() */
    int32_t in[BATCH], out[BATCH];                 /* CUDA: on the GPU, by cuMemAlloc() */
};

static struct cede_future_array array(int32_t *p, unsigned n)
{
    struct cede_future_array a = {.address = (uint64_t)(uintptr_t)p, .n = n, .bytes = sizeof(*p)};
    return a;
}

static int schedule(void *arg, struct cede_step *step)
{
    struct engine *e = arg;
    struct inputs *in = &e->inputs[step->lane];
    unsigned n = 0;
    for (int i = 0; i < REQUESTS; i++) {
        struct request *r = &e->requests[i];
        int64_t symbol;
        if (r->ended || cede_step_add(e->loop, r->id, &symbol) < 0)
            continue; /* it has left, or the step is full */
        in->token[n++] = symbol ? (int32_t)symbol : r->token;
    }
    step->batch = in;
    return n > 0;
}

static int launch(void *arg, struct cede_step *step)
{
    struct engine *e = arg;
    const struct inputs *in = step->batch;
    struct cede_future_array inputs = array(e->in, step->n), outputs = array(e->out, step->n);
    memcpy(e->in, in->token, sizeof(e->in)); /* CUDA: cuMemcpyHtoDAsync(), in step->stream */
    int r = cede_future_resolve(e->futures, step->stream, &inputs);
    for (unsigned i = 0; i < step->n; i++)
        e->out[i] = (e->in[i] * 31 + 7) % 1000; /* CUDA: the model, in step->stream */
    /* With a CUDA graph of these three: cede_future_place() in front of cuGraphLaunch(), and
     * cede_future_store_placed() in the graph. */
    return r < 0 ? r : cede_future_store(e->futures, step->stream, &outputs, step->symbol);
}

static int finish(void *arg, struct cede_step *step)
{
    struct engine *e = arg;
    for (unsigned i = 0; i < step->n; i++) {
        struct request *r = step->user[i];
        if (step->error || step->surplus[i])
            continue; /* it ended while this step ran with it already */
        r->token = (int32_t)step->result[i];
        if (++r->tokens == r->most) {
            r->ended = 1;
            cede_step_leave(e->loop, r->id, 0);
        }
    }
    return 0;
}

static void left(void *arg, void *user, int reason)
{
    (void)arg;
    struct request *r = user; /* its memory, such as a KV cache, may be freed from here on */
    r->ended = 1;
    if (reason)
        fprintf(stderr, "a request ended after %d tokens: %s\n", r->tokens, strerror(-reason));
}

int main(void)
{
    static struct engine e;
    struct cede_future_config futures;
    struct cede_step_config config;
    struct cede_step_statistics s;
    cede_future_defaults(&futures);
    cede_step_defaults(&config);
    futures.flags = CEDE_FUTURE_NO_GPU; /* CUDA: no flags, and a current context */
    config.flags = CEDE_STEP_NO_GPU;
    int r = cede_future_open(&futures, &e.futures);
    config.batch = BATCH;
    config.futures = e.futures;
    config.arg = &e;
    config.schedule = schedule;
    config.launch = launch;
    config.finish = finish;
    config.left = left;
    if (r == 0)
        r = cede_step_open(&config, &e.loop);
    for (int i = 0; r == 0 && i < REQUESTS; i++) {
        e.requests[i].token = i;
        e.requests[i].most = 10 + i;
        r = cede_step_join(e.loop, &e.requests[i], NULL, 10000000, &e.requests[i].id);
    }
    if (r == 0)
        r = cede_step_run(
            e.loop); /* a server: until it shuts down, and waits where this returns 0 */
    if (r < 0) {
        fprintf(stderr, "cannot run steps: %s\n", strerror(-r));
        return 1;
    }
    cede_step_get_statistics(e.loop, &s, sizeof(s));
    printf("%llu tokens in %llu steps, %llu surplus; %llu us of the CPU's work were hidden\n",
           (unsigned long long)(s.results - s.surplus), (unsigned long long)s.steps,
           (unsigned long long)s.surplus, (unsigned long long)s.hidden_us);
    cede_step_close(e.loop);
    cede_future_close(e.futures);
    return 0;
}
