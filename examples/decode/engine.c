/* See engine.h. */
#include "engine.h"

#include <cede/graph.h>
#include <cede/step.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define END_TOKENS 64    /* one of so many tokens ends a request */
#define TIMES      16384 /* launches that are remembered */

/* What a step brings to the GPU, in memory that stays until it is finished. */
struct inputs {
    int32_t *token, *position, *pages;
    unsigned rows; /* the last tokens of requests, then what chunks have before these */
};

struct engine {
    struct model *model;
    const struct mode *mode;
    struct request *requests;
    const struct run_options *options;
    int n, joined, active;
    struct cede_step_loop *loop;
    struct cede_futures *futures;
    struct cede_graph *graphs;
    int32_t *input_memory;
    struct inputs inputs[CEDE_STEP_DEPTH_MAX + 1];
    int32_t *free_pages;
    int nfree;
    int error;
    float launch_us[TIMES], inputs_us[TIMES]; /* of the latest launches */
    uint64_t launches;
    double scheduled_us[CEDE_STEP_DEPTH_MAX + 1]; /* of each lane */
    uint64_t before_us; /* the step before the one that is finished next */
    struct run run;
};

static double clock_s(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- the loop's functions ---- */

/* Pages for its next tokens. False: all are in use; it waits for others to end. */
static bool has_pages(struct engine *e, struct request *r)
{
    while (r->position + r->chunk > r->npages * PAGE) {
        if (r->npages == e->model->s.pages_max || !e->nfree)
            return false;
        r->pages[r->npages++] = e->free_pages[--e->nfree];
    }
    return true;
}

/* The results of its first steps are not wanted: the next token is in the prompt. */
static bool gives_token(const struct request *r, int position)
{
    return position >= r->prompt_tokens - 1;
}

/* Requests that come now. */
static void join(struct engine *e, const struct cede_step *step)
{
    while (e->joined < e->n &&
           (!e->active || e->requests[e->joined].from_step <= (int)step->number)) {
        struct request *r = &e->requests[e->joined++];
        r->joined = cede_step_join(e->loop, r, NULL, CEDE_TIMEOUT_FOREVER, &r->id) == 0;
        e->active += r->joined;
    }
}

static void put_row(const struct engine *e, struct inputs *in, const struct request *r,
                    int position, int32_t token)
{
    const size_t row = in->rows++;
    in->position[row] = position;
    in->token[row] = token;
    memcpy(in->pages + row * (size_t)e->model->s.pages_max, r->pages,
           (size_t)r->npages * sizeof(int32_t));
}

/* The last token that the step takes of a request; and how many, within what is left of *room.
 * False: none. */
static bool take(struct engine *e, struct inputs *in, struct request *r, int *room)
{
    const int prompt = r->prompt_tokens - r->position;
    int64_t symbol;
    r->chunk = !e->mode->chunks || prompt < 1 ? 1 : prompt < *room ? prompt : *room;
    /* Not more steps than it may have tokens; that it ended before is learnt later. */
    if (!r->joined || r->ended || 1 - prompt >= r->most || !has_pages(e, r) ||
        cede_step_add(e->loop, r->id, &symbol) < 0)
        return false;
    r->position += r->chunk;
    *room -= r->chunk;
    put_row(e, in, r, r->position - 1,
            prompt > 0 ? r->prompt[r->position - 1]
            : symbol   ? (int32_t)symbol
                       : r->tokens[r->got - 1]);
    return true;
}

static int schedule(void *arg, struct cede_step *step)
{
    struct engine *e = arg;
    struct inputs *in = &e->inputs[step->lane];
    const struct sizes *s = &e->model->s;
    const double from = clock_s(CLOCK_MONOTONIC);
    int room = e->mode->chunks ? e->options->step_tokens : e->options->at_once;
    int n = 0;
    if (e->options->schedule_us)
        busy_us(e->options->schedule_us);
    join(e, step);
    memset(in->position, 0xff, (size_t)s->batch * sizeof(int32_t));
    memset(in->token, 0, (size_t)s->batch * sizeof(int32_t));
    in->rows = 0;
    /* Requests that decode come first, then prompts. */
    for (int i = 0; i < 2 * e->joined && n < e->options->at_once && room > 0; i++) {
        struct request *r = &e->requests[i % e->joined];
        if ((r->position < r->prompt_tokens) == (i >= e->joined))
            n += take(e, in, r, &room);
    }
    for (int i = 0; i < n; i++) {
        const struct request *r = step->user[i];
        for (int p = r->position - r->chunk; p < r->position - 1; p++)
            put_row(e, in, r, p, r->prompt[p]);
    }
    step->batch = in;
    e->scheduled_us[step->lane] = (clock_s(CLOCK_MONOTONIC) - from) * 1e6;
    return n > 0;
}

static int queue_model(void *arg, void *stream, unsigned n)
{
    struct engine *e = arg;
    return model_step(e->model, stream, n);
}

static struct cede_future_array array(uint64_t address, unsigned n)
{
    return (struct cede_future_array){.address = address, .n = n, .bytes = sizeof(int32_t)};
}

/* All rows: a graph computes more of them than the step has. They are one array on both sides. */
static int bring_inputs(struct engine *e, void *stream, const struct inputs *in)
{
    struct model *m = e->model;
    const struct device *d = m->device;
    const size_t rows = (size_t)m->s.batch * sizeof(int32_t), pages = (size_t)m->s.pages_max;
    if (e->options->inputs == BY_KERNEL)
        return model_take(m, stream, in->token);
    if (e->options->inputs == BY_COPY)
        return d->write(stream, m->token, in->token, rows * (2 + pages));
    int r = d->write(stream, m->token, in->token, rows);
    r = r ? r : d->write(stream, m->position, in->position, rows);
    return r ? r : d->write(stream, m->row_pages, in->pages, rows * pages);
}

static int launch(void *arg, struct cede_step *step)
{
    struct engine *e = arg;
    struct model *m = e->model;
    const struct inputs *in = step->batch;
    const struct cede_future_array inputs = array(m->token, step->n);
    const struct cede_future_array outputs = array(m->chosen, step->n);
    const uint64_t at = e->launches++ % TIMES;
    const double began = clock_s(CLOCK_MONOTONIC);
    if (bring_inputs(e, step->stream, in))
        return -EIO;
    const double brought = clock_s(CLOCK_MONOTONIC);
    int r = cede_future_resolve(e->futures, step->stream, &inputs);
    const double from = clock_s(CLOCK_MONOTONIC);
    m->chunks = in->rows > step->n;
    if (r == 0 && m->chunks)
        r = model_step(m, m->device->stream, in->rows) ? -EIO : 0;
    else if (r == 0)
        r = cede_graph_launch(e->graphs, e->model->device->stream, step->n, NULL);
    e->run.chunk_steps += m->chunks;
    e->run.rows_most = in->rows > e->run.rows_most ? in->rows : e->run.rows_most;
    m->chunks = false;
    e->inputs_us[at] = (float)((brought - began) * 1e6);
    e->launch_us[at] = (float)((clock_s(CLOCK_MONOTONIC) - from) * 1e6);
    return r < 0 ? r : cede_future_store(e->futures, step->stream, &outputs, step->symbol);
}

/* The step was scheduled while the one before it ran: was that long enough? */
static void count_times(struct engine *e, const struct cede_step *step)
{
    const double us = e->scheduled_us[step->lane];
    if ((double)e->before_us > us) {
        e->run.long_steps++;
        e->run.long_gpu_us += (double)e->before_us;
        e->run.long_idle_us += (double)step->idle_us;
        e->run.long_schedule_us += us;
    }
    e->before_us = step->gpu_us;
}

static int finish(void *arg, struct cede_step *step)
{
    struct engine *e = arg;
    const struct inputs *in = step->batch;
    count_times(e, step);
    e->error = e->error ? e->error : step->error;
    for (unsigned i = 0; i < step->n && !step->error; i++) {
        struct request *r = step->user[i];
        const int32_t token = (int32_t)step->result[i];
        if (step->surplus[i] || !gives_token(r, in->position[i]))
            continue;
        r->tokens[r->got++] = token;
        if (r->got == r->most || token % END_TOKENS == END_TOKENS - 1) {
            r->ended = true;
            e->active--;
            cede_step_leave(e->loop, r->id, 0);
        }
    }
    return e->error;
}

/* No step has it any more. */
static void left(void *arg, void *user, int reason)
{
    struct engine *e = arg;
    struct request *r = user;
    (void)reason;
    while (r->npages)
        e->free_pages[e->nfree++] = r->pages[--r->npages];
}

/* ---- a run ---- */

static int open_inputs(struct engine *e)
{
    struct model *m = e->model;
    struct device *d = m->device;
    const size_t rows = (size_t)m->s.batch, row = 2 + (size_t)m->s.pages_max;
    int32_t *p = d->host((e->mode->depth + 1) * rows * row * sizeof(*p));
    e->input_memory = p;
    if (!p)
        return -ENOMEM;
    for (unsigned i = 0; i <= e->mode->depth; i++, p += rows * row)
        e->inputs[i] = (struct inputs){p, p + rows, p + 2 * rows, 0};
    /* Before the first step all rows are empty. One step of them loads the kernels, and graphs are
     * made of such. */
    memset(e->inputs[0].position, 0xff, rows * sizeof(*p));
    if (bring_inputs(e, d->stream, &e->inputs[0]) || model_step(m, d->stream, (unsigned)rows) ||
        d->wait(d->stream))
        return -EIO;
    return 0;
}

static int open_loop(struct engine *e)
{
    const bool gpu = e->model->device->stream != NULL;
    const unsigned at_once = (unsigned)e->options->at_once;
    struct cede_future_config futures;
    struct cede_step_config config;
    struct cede_graph_config graphs;
    int r = open_inputs(e);
    cede_future_defaults(&futures);
    futures.flags = gpu ? 0 : CEDE_FUTURE_NO_GPU;
    r = r ? r : cede_future_open(&futures, &e->futures);
    cede_graph_defaults(&graphs);
    graphs.flags = gpu && e->mode->graphs ? 0 : CEDE_GRAPH_EAGER;
    graphs.max_batch = at_once;
    r = r ? r : cede_graph_open(&graphs, queue_model, e, &e->graphs);
    cede_step_defaults(&config);
    config.flags = !gpu ? CEDE_STEP_NO_GPU : e->options->spins ? CEDE_STEP_SPIN : 0;
    config.depth = e->mode->depth;
    config.batch = at_once;
    config.requests = (unsigned)e->n;
    config.stream = e->model->device->stream;
    config.futures = e->futures;
    config.arg = e;
    config.schedule = schedule;
    config.launch = launch;
    config.finish = finish;
    config.left = left;
    return r ? r : cede_step_open(&config, &e->loop);
}

static void close_loop(struct engine *e)
{
    cede_step_close(e->loop);
    cede_graph_close(e->graphs);
    cede_future_close(e->futures);
    e->model->device->host_release(e->input_memory);
    free(e->free_pages);
    free(e);
}

static int compare_times(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void summarise(struct engine *e, double seconds, double thread_s, struct run *out)
{
    const uint64_t n = e->launches < TIMES ? e->launches : TIMES;
    struct cede_step_statistics s;
    struct cede_graph_statistics g;
    qsort(e->launch_us, n, sizeof(*e->launch_us), compare_times);
    qsort(e->inputs_us, n, sizeof(*e->inputs_us), compare_times);
    cede_step_get_statistics(e->loop, &s, sizeof(s));
    cede_graph_get_statistics(e->graphs, &g, sizeof(g));
    *out = e->run;
    out->seconds = seconds;
    out->thread_us = thread_s * 1e6;
    out->steps = s.steps;
    out->surplus = s.surplus;
    out->cpu_us = (double)(s.schedule_us + s.launch_us + s.finish_us);
    out->gpu_us = (double)s.gpu_us;
    out->idle_us = (double)s.idle_us;
    out->hidden_us = (double)s.hidden_us;
    out->wait_us = (double)s.wait_us;
    out->graphs = g.launched;
    out->eager = g.eager;
    out->launch_p50_us = (double)e->launch_us[n / 2];
    out->launch_p99_us = (double)e->launch_us[n * 99 / 100];
    out->inputs_p50_us = (double)e->inputs_us[n / 2];
    out->inputs_p99_us = (double)e->inputs_us[n * 99 / 100];
    out->captures = g.captures;
    out->capture_us = g.capture_us;
    out->graph_bytes = g.bytes;
    for (int i = 0; i < e->n; i++)
        out->tokens += (uint64_t)e->requests[i].got;
}

static void say_error(const struct engine *e, int r)
{
    struct cede_step_statistics s = {.error = ""};
    struct cede_graph_statistics g = {.error = ""};
    char text[512];
    snprintf(text, sizeof(text), "%s", *cede_error_text() ? cede_error_text() : strerror(-r));
    cede_step_get_statistics(e->loop, &s, sizeof(s));
    cede_graph_get_statistics(e->graphs, &g, sizeof(g));
    fprintf(stderr, "decode: %s: %s. %s. %s\n", e->mode->name, text, s.error, g.error);
}

/* A library loads its kernels when they are first used, which cannot be captured. */
static int load_products(struct engine *e)
{
    const unsigned rows = (unsigned)e->model->s.batch;
    int r = 0;
    for (unsigned n = 1; e->model->product && r == 0 && n < rows; n *= 2)
        r = model_step(e->model, e->model->device->stream, n);
    return r ? -EIO : 0;
}

int engine_run(struct model *m, const struct mode *mode, struct request *v, int n,
               const struct run_options *options, struct run *out)
{
    struct engine *e = calloc(1, sizeof(*e));
    if (!e)
        return -1;
    *e = (struct engine){.model = m, .mode = mode, .requests = v, .n = n, .options = options};
    m->device->launch_us = mode->launch_us;
    e->free_pages = calloc((size_t)m->s.pages, sizeof(*e->free_pages));
    for (; e->free_pages && e->nfree < m->s.pages; e->nfree++)
        e->free_pages[e->nfree] = e->nfree;
    int r = e->free_pages ? open_loop(e) : -ENOMEM;
    r = r ? r : load_products(e);
    if (r == 0 && mode->graphs)
        r = cede_graph_prepare(e->graphs, e->model->device->stream, 0);
    const double began = clock_s(CLOCK_MONOTONIC), ran = clock_s(CLOCK_THREAD_CPUTIME_ID);
    if (r == 0)
        r = cede_step_run(e->loop);
    if (r == 0)
        summarise(e, clock_s(CLOCK_MONOTONIC) - began, clock_s(CLOCK_THREAD_CPUTIME_ID) - ran, out);
    else
        say_error(e, r);
    close_loop(e);
    return r < 0 ? -1 : 0;
}
