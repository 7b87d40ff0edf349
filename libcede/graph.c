/* The calls of a graph cache: see cede/graph.h. A launch of a bucket that is captured takes no lock
 * and allocates nothing; all else is in graph_capture.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcede/error.h"
#include "libcede/graph.h"

#define WARMUPS_MAX 1000U

/* The handles of the legacy default stream: CU_STREAM_LEGACY, and 0. */
static bool graph_stream_is_legacy(const void *stream)
{
    return (uintptr_t)stream <= 1;
}

/* ---- opening and closing --------------------------------------------------------------------- */

CEDE_API void cede_graph_defaults(struct cede_graph_config *config)
{
    *config = (struct cede_graph_config){.size = sizeof(*config), .max_batch = 128, .warmups = 1};
}

static int graph_failed(const struct cede_graph *g, int r);

static int graph_configure(struct cede_graph *g, const struct cede_graph_config *config)
{
    void *context;
    int r = 0;
    cede_graph_defaults(&g->config);
    if (config && !SIZED(config->size, *config))
        return -EINVAL;
    if (config)
        g->config = *config;
    const struct cede_graph_config *c = &g->config;
    if (!SETTINGS(FLAGS(c, CEDE_GRAPH_EAGER), SETTING(c, warmups, 0, WARMUPS_MAX),
                  SETTING(c, nbuckets, 0, CEDE_GRAPH_BUCKETS_MAX)))
        return -EINVAL;
    int n = cede_graph_sizes(c, g->sizes);
    if (n < 0)
        return SAY(n, {-EINVAL, "max_batch, or each of `buckets`, is not 1 to 2^30, ascending"});
    g->n = (unsigned)n;
    const char *wanted = getenv("CEDE_GRAPH");
    g->eager = g->config.flags & CEDE_GRAPH_EAGER || (wanted && strcmp(wanted, "0") == 0);
    if (!g->eager && (r = cede_cuda_here(&g->cu, CUDA_GRAPHS, &context)) == 0)
        r = g->cu.ctx_device(&g->device) ? -ENOSYS : 0;
    return SAY(r,
               {-ENOSYS, "no libcuda of driver 525 or later, or no context is current: create one "
                         "first, or set CEDE_GRAPH_EAGER"});
}

CEDE_API int cede_graph_open(const struct cede_graph_config *config, cede_graph_step step,
                             void *arg, struct cede_graph **out)
{
    if (out)
        *out = NULL;
    LONG_CALL(GIVEN(out) && GIVEN(step));
    struct cede_graph *g = calloc(1, sizeof(*g));
    if (!g)
        return cede_no_memory();
    int r = graph_configure(g, config);
    if (r) {
        free(g);
        return r;
    }
    g->step = step;
    g->arg = arg;
    *out = g;
    return 0;
}

CEDE_API void cede_graph_close(struct cede_graph *g)
{
    WHOLE_CALL;
    if (!g)
        return;
    for (unsigned i = 0; i < g->n; i++)
        cede_graph_drop(g, i);
    free(g);
}

/* ---- launching ------------------------------------------------------------------------------- */

static bool graph_enter(struct cede_graph *g, void *stream)
{
    if (atomic_exchange_explicit(&g->busy, true, memory_order_acquire))
        return false;
    g->stream = stream;
    return true;
}

static void graph_leave(struct cede_graph *g)
{
    atomic_store_explicit(&g->busy, false, memory_order_release);
}

static bool graph_is_current(const struct cede_graph *g, unsigned i)
{
    const struct graph_entry *e = &g->entries[i];
    return e->exec && e->epoch == atomic_load_explicit(&g->epoch, memory_order_relaxed);
}

static int graph_call_step(struct cede_graph *g, unsigned n)
{
    int r = g->step(g->arg, g->stream, n);
    if (r)
        graph_fail(g, GRAPH_FAILED_STEP, n, r);
    return r > 0 ? -EIO : r;
}

/* For a bucket, or with -1 for a batch larger than all of them. */
static int graph_run_eagerly(struct cede_graph *g, int i, unsigned n)
{
    graph_add(i < 0 ? &g->too_large : &g->entries[i].eager, 1);
    return graph_call_step(g, n);
}

static int graph_capture(struct cede_graph *g, unsigned i)
{
    if (!graph_stream_is_legacy(g->stream))
        return cede_graph_capture(g, i);
    cede_graph_refuse(g, i, CEDE_GRAPH_DEFAULT_STREAM, 0);
    return 0;
}

/* A bucket that has no graph of the present addresses. 1: it has one now. 0: it is to run eagerly
 * for *n rows. Or a negative errno. */
static int graph_catch_up(struct cede_graph *g, unsigned i, unsigned *n)
{
    struct graph_entry *e = &g->entries[i];
    if (g->eager || atomic_load(&e->reason) || cede_graph_captured_outside(g))
        return 0;
    if (!e->exec && !cede_graph_due(&g->use[i], g->config.warmups)) {
        g->use[i].eager++;
        graph_add(&g->warmups, 1);
        *n = g->sizes[i]; /* what it is warmed up for is its own size */
        return 0;
    }
    int r = graph_capture(g, i);
    return r ? r : e->exec != NULL;
}

static int graph_run(struct cede_graph *g, unsigned n, unsigned *took)
{
    int i = cede_graph_pick(g->sizes, g->n, n);
    if (i < 0)
        return graph_run_eagerly(g, i, n);
    struct graph_entry *e = &g->entries[i];
    if (!graph_is_current(g, (unsigned)i)) {
        int r = graph_catch_up(g, (unsigned)i, &n);
        if (r <= 0)
            return r ? r : graph_run_eagerly(g, i, n);
    }
    int code = g->cu.graph_launch(e->exec, g->stream);
    if (code == GRAPH_CUDA_NO_MEMORY) {
        cede_graph_refuse(g, (unsigned)i, CEDE_GRAPH_NO_MEMORY, code);
        return graph_run_eagerly(g, i, n);
    }
    if (code) {
        graph_fail(g, GRAPH_FAILED_LAUNCH, g->sizes[i], code);
        return -EIO;
    }
    g->use[i].used = ++g->launches;
    graph_add(&e->launched, 1);
    *took = g->sizes[i];
    return 0;
}

CEDE_API int cede_graph_launch(struct cede_graph *g, void *stream, unsigned n, unsigned *bucket)
{
    unsigned took = 0;
    LONG_CALL(GIVEN(g) && IS(n, "n is 0: give at least 1"));
    if (!graph_enter(g, stream))
        return graph_failed(g, -EBUSY);
    int r = graph_failed(g, graph_run(g, n, &took));
    graph_leave(g);
    if (bucket)
        *bucket = took;
    return r;
}

static int graph_prepare_one(struct cede_graph *g, unsigned i)
{
    struct graph_entry *e = &g->entries[i];
    if (graph_is_current(g, i) || cede_graph_captured_outside(g))
        return 0;
    for (unsigned k = 0; !e->exec && k < g->config.warmups; k++) {
        int r = graph_call_step(g, g->sizes[i]);
        if (r)
            return r;
    }
    return graph_capture(g, i);
}

static unsigned graph_count(const struct cede_graph *g)
{
    unsigned n = 0;
    for (unsigned i = 0; i < g->n; i++)
        n += atomic_load_explicit(&g->entries[i].captured, memory_order_relaxed);
    return n;
}

/* One that would only replace another is left to the launches. */
static int graph_prepare_all(struct cede_graph *g)
{
    uint64_t evictions = g->evictions;
    bool full = false;
    int r = 0;
    for (unsigned i = 0; !r && !full && i < g->n; i++) {
        if (g->entries[i].exec || !g->config.max_graphs || graph_count(g) < g->config.max_graphs)
            r = graph_prepare_one(g, i);
        full = evictions != g->evictions || g->entries[i].reason == CEDE_GRAPH_NO_MEMORY;
    }
    return r;
}

CEDE_API int cede_graph_prepare(struct cede_graph *g, void *stream, unsigned n)
{
    LONG_CALL(GIVEN(g) && SETTINGS(cede_setting("n", n, 0, g->sizes[g->n - 1])));
    if (!graph_enter(g, stream))
        return graph_failed(g, -EBUSY);
    int i = cede_graph_pick(g->sizes, g->n, n);
    int r = g->eager ? 0 : n ? graph_prepare_one(g, (unsigned)i) : graph_prepare_all(g);
    r = graph_failed(g, r);
    graph_leave(g);
    return r;
}

CEDE_API void cede_graph_changed(struct cede_graph *g)
{
    if (g)
        atomic_fetch_add(&g->epoch, 1);
}

/* ---- what is known --------------------------------------------------------------------------- */

CEDE_API int cede_graph_get_bucket(struct cede_graph *g, unsigned n, struct cede_graph_bucket *out,
                                   size_t size)
{
    CALL(GIVEN(g) && GIVEN(out) && SIZED(size, *out) &&
         SETTINGS(cede_setting("n", n, 1, g->sizes[g->n - 1])));
    int i = cede_graph_pick(g->sizes, g->n, n);
    const struct graph_entry *e = &g->entries[i];
    *out = (struct cede_graph_bucket){
        .size = g->sizes[i],
        .captured = (int)atomic_load(&e->captured),
        .refused = (enum cede_graph_reason)atomic_load(&e->reason),
        .cuda_error = atomic_load(&e->code),
        .nodes = atomic_load(&e->nodes),
        .launched = e->launched,
        .eager = e->eager,
        .bytes = e->bytes,
    };
    return 0;
}

static void graph_error_text(const struct cede_graph *g, char *out, size_t size)
{
    uint64_t v = g->failure;
    enum graph_failure what = (enum graph_failure)(v & 3);
    unsigned batch = (unsigned)(v >> 2 & GRAPH_FAILURE_BATCH);
    int code = (int)(uint32_t)(v >> 32), i = cede_graph_pick(g->sizes, g->n, batch);
    const char *name = NULL;
    char number[64] = "";
    if (what == GRAPH_FAILED_NOTHING)
        return;
    if (code > 0 && (!g->cu.error_name || g->cu.error_name(code, &name) || !name))
        name = "CUDA error";
    if (code > 0)
        snprintf(number, sizeof(number), "%s (%d)", name, code);
    else if (code < 0)
        snprintf(number, sizeof(number), "it returned %d", code);
    if (what == GRAPH_REFUSED && i >= 0)
        snprintf(out, size, "a batch of %u runs eagerly: %s%s%s", batch,
                 cede_graph_text((enum cede_graph_reason)atomic_load(&g->entries[i].reason)),
                 code ? ": " : "", number);
    else
        snprintf(out, size, "cannot %s for a batch of %u: %s",
                 what == GRAPH_FAILED_STEP ? "run the step" : "launch the graph", batch, number);
}

/* A failure in words. */
static int graph_failed(const struct cede_graph *g, int r)
{
    char text[256] = "";
    if (r < 0 && r != -EBUSY) {
        graph_error_text(g, text, sizeof(text));
        cede_fail(r, "%s", text);
    }
    return SAY(r, {-EBUSY, "another thread, or the step itself, uses the cache: one at a time"});
}

CEDE_API int cede_graph_get_statistics(struct cede_graph *g, struct cede_graph_statistics *out,
                                       size_t size)
{
    CALL(GIVEN(g) && GIVEN(out) && SIZED(size, *out));
    *out = (struct cede_graph_statistics){
        .buckets = g->n,
        .graphs = graph_count(g),
        .eager = g->too_large,
        .too_large = g->too_large,
        .warmups = g->warmups,
        .captures = g->captures,
        .retried = g->retried,
        .refusals = g->refusals,
        .updates = g->updates,
        .rebuilds = g->rebuilds,
        .evictions = g->evictions,
        .capture_us = g->capture_us,
        .saved_us = g->saved_us,
    };
    for (unsigned i = 0; i < g->n; i++) {
        const struct graph_entry *e = &g->entries[i];
        out->refused += atomic_load(&e->reason) != CEDE_GRAPH_NOT_REFUSED;
        out->launched += e->launched;
        out->eager += e->eager;
        out->bytes += e->bytes;
    }
    graph_error_text(g, out->error, sizeof(out->error));
    return 0;
}
