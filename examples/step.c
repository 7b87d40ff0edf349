/* The inner loop of a program that serves models, with the overlap loop and a future map; see
 * cede_step_open(3). 8 requests of different lengths get tokens; while the GPU computes a step, the
 * next one is scheduled and launched with tokens that are not known yet.
 *
 * Runs without a GPU: a step of the model is an addition, over STEP_US after the step before it,
 * and scheduling is a sleep. The comments with CUDA say what a program with a GPU does in its
 * place. A run in which nothing overlaps, at depth 1, is compared with one at depth 2.
 *
 *     cc step.c $(pkg-config --cflags --libs cede) -o step */
#include <cede/step.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define BATCH       4
#define REQUESTS    8
#define STEP_US     3000
#define SCHEDULE_US 2000

struct request {
    uint64_t id;
    int32_t token; /* the latest that is known; at first the prompt's last */
    int tokens, most;
    int ended;
};

/* Inputs of one step, in memory that stays until it is finished: one for each lane. */
struct inputs {
    int32_t token[BATCH];
    int64_t over_us; /* when its step has run */
};

struct engine {
    struct cede_step_loop *loop;
    struct cede_futures *futures;
    struct request requests[REQUESTS];
    struct inputs inputs[CEDE_STEP_DEPTH_MAX + 1]; /* CUDA: pinned, by cuMemHostAlloc() */
    int32_t in[BATCH], out[BATCH];                 /* CUDA: on the GPU, by cuMemAlloc() */
    int64_t over_us;                               /* when the last step has run */
};

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void sleep_until(int64_t us)
{
    const struct timespec t = {us / 1000000, us % 1000000 * 1000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
        ;
}

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
    sleep_until(now_us() + SCHEDULE_US); /* what a scheduler computes */
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
    struct inputs *in = step->batch;
    const int64_t now = now_us();
    struct cede_future_array inputs = array(e->in, step->n), outputs = array(e->out, step->n);
    memcpy(e->in, in->token, sizeof(e->in)); /* CUDA: cuMemcpyHtoDAsync(), in step->stream */
    int r = cede_future_resolve(e->futures, step->stream, &inputs);
    for (unsigned i = 0; i < step->n; i++)
        e->out[i] = (e->in[i] * 31 + 7) % 1000; /* CUDA: the model, in step->stream */
    in->over_us = e->over_us = (now > e->over_us ? now : e->over_us) + STEP_US;
    /* With a CUDA graph of these three: cede_future_place() in front of cuGraphLaunch(), and
     * cede_future_store_placed() in the graph. */
    return r < 0 ? r : cede_future_store(e->futures, step->stream, &outputs, step->symbol);
}

static int finish(void *arg, struct cede_step *step)
{
    struct engine *e = arg;
    sleep_until(((struct inputs *)step->batch)->over_us); /* CUDA: the loop waits */
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

/* The sum of the requests' last tokens, or a negative errno. */
static int64_t run(unsigned depth)
{
    struct engine e = {.over_us = 0};
    struct cede_future_config futures;
    struct cede_step_config config;
    struct cede_step_statistics s;
    int64_t sum = 0;
    cede_future_defaults(&futures);
    cede_step_defaults(&config);
    futures.flags = CEDE_FUTURE_NO_GPU; /* CUDA: no flags, and a current context */
    config.flags = CEDE_STEP_NO_GPU;
    int r = cede_future_open(&futures, &e.futures);
    config.depth = depth;
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
    const int64_t from = now_us();
    if (r == 0)
        r = cede_step_run(e.loop); /* a server: until it shuts down, and waits where this is 0 */
    const int64_t us = now_us() - from;
    if (r == 0 && cede_step_get_statistics(e.loop, &s, sizeof(s)) == 0) {
        const int64_t cpu_us = (int64_t)(s.schedule_us + s.launch_us);
        const int64_t hidden_us = cpu_us + (int64_t)s.steps * STEP_US - us; /* CUDA: s.hidden_us */
        printf("%5u %6llu %7llu %7.1f %6.1f %8.0f%%\n", depth,
               (unsigned long long)(s.results - s.surplus), (unsigned long long)s.surplus,
               (double)us / 1000, (double)cpu_us / 1000,
               hidden_us > 0 ? 100.0 * (double)hidden_us / (double)cpu_us : 0);
    }
    if (r < 0)
        fprintf(stderr, "%s\n", cede_error_text());
    for (int i = 0; i < REQUESTS; i++)
        sum += e.requests[i].token;
    cede_step_close(e.loop);
    cede_future_close(e.futures);
    return r < 0 ? r : sum;
}

int main(void)
{
    printf("DEPTH TOKENS SURPLUS TIME,MS CPU,MS OF IT HIDDEN\n");
    const int64_t plain = run(1), overlapped = plain < 0 ? plain : run(2);
    if (overlapped >= 0 && plain != overlapped)
        fprintf(stderr, "the runs have different tokens\n");
    return plain != overlapped || plain < 0;
}
