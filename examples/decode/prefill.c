/* When graphs do not pay: steps of lengths that vary, as those that compute prompts. Eagerly, as
 * the graph of the next power of two, and as a graph of each length, which is captured when it has
 * been used before. Each is waited for. A row stands for a token; what is computed is of no use. */
#include <cede/graph.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine.h"

static int queue_rows(void *arg, void *stream, unsigned n)
{
    return model_step(arg, stream, n);
}

static uint64_t monotonic_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* The same lengths each time: multiples of a unit, so that there are not more than buckets. */
static int run_lengths(struct model *m, struct cede_graph *g, const int32_t *position, int steps,
                       unsigned unit)
{
    struct device *d = m->device;
    const unsigned batch = (unsigned)m->s.batch;
    uint64_t state = 1;
    int r = 0;
    for (int i = 0; r == 0 && i < steps; i++) {
        state = state * 6364136223846793005 + 1442695040888963407;
        const unsigned n = unit * (1 + (unsigned)(state >> 33) % (batch / unit));
        r = d->write(d->stream, m->position, position + batch - n, batch * sizeof(*position));
        r = r ? r : cede_graph_launch(g, m->device->stream, n, NULL);
        r = r ? r : d->wait(d->stream);
    }
    return r;
}

static int run_way(struct model *m, int way, const int32_t *position, int steps,
                   struct prefill *out)
{
    const unsigned batch = (unsigned)m->s.batch;
    const unsigned unit = (batch + CEDE_GRAPH_BUCKETS_MAX - 1) / CEDE_GRAPH_BUCKETS_MAX;
    unsigned sizes[CEDE_GRAPH_BUCKETS_MAX];
    struct cede_graph_config config;
    struct cede_graph_statistics s;
    struct cede_graph *g;
    for (unsigned i = 0; i < batch / unit; i++)
        sizes[i] = unit * (i + 1);
    cede_graph_defaults(&config);
    config.flags = way == PREFILL_EAGER || !m->device->stream ? CEDE_GRAPH_EAGER : 0;
    config.max_batch = batch;
    config.nbuckets = way == PREFILL_EXACT ? batch / unit : 0;
    config.buckets = sizes;
    int r = cede_graph_open(&config, queue_rows, m, &g);
    const uint64_t from = monotonic_us();
    r = r ? r : run_lengths(m, g, position, steps, unit);
    const uint64_t us = monotonic_us() - from;
    if (r == 0)
        r = cede_graph_get_statistics(g, &s, sizeof(s));
    if (r == 0)
        *out = (struct prefill){(double)us / steps, s.launched, s.captures, s.capture_us, s.bytes};
    cede_graph_close(g);
    return r;
}

int prefill_run(struct model *m, int steps, struct prefill out[PREFILL_WAYS])
{
    const size_t batch = (size_t)m->s.batch, pages = batch * (size_t)m->s.pages_max;
    struct device *d = m->device;
    /* Positions of rows in use, then of empty ones; what begins in between has some of both. */
    int32_t *v = d->host((2 * batch + pages) * sizeof(*v));
    if (!v)
        return -1;
    for (size_t i = 0; i < batch; i++)
        v[i] = (int32_t)(i % PAGE);
    memset(v + batch, 0xff, batch * sizeof(*v));
    for (size_t i = 0; i < pages; i++)
        v[2 * batch + i] = (int32_t)i;
    int r = d->write(d->stream, m->row_pages, v + 2 * batch, pages * sizeof(*v));
    d->launch_us = 0;
    for (int way = 0; r == 0 && way < PREFILL_WAYS; way++)
        r = run_way(m, way, v, steps, &out[way]);
    d->wait(d->stream);
    d->host_release(v);
    return r ? -1 : 0;
}
