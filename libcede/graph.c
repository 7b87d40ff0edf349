/* The graph cache: see cede/graph.h. A launch of a bucket that is captured takes no lock and
 * allocates nothing. An attempt to capture that fails ends the capture, so that stream and context
 * work as before, and nothing of the step has run then. */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cede/graph.h"
#include "libcede/clock.h"
#include "libcede/cuda.h"
#include "libcede/error.h"
#include "libcede/pure/graph_plan.h"

#define WARMUPS_MAX 1000U

/* Numbers of the driver API's reference. */
enum { MODE_THREAD_LOCAL = 1, MODE_RELAXED = 2 };
/* A step that allocates from a memory pool and leaves the freeing to later can run again. */
enum { AUTO_FREE_ON_LAUNCH = 1 };

/* What the latest failure was; one word, so that it can be read at any time. */
enum graph_failure {
    GRAPH_FAILED_NOTHING,
    GRAPH_FAILED_STEP,
    GRAPH_FAILED_LAUNCH,
    GRAPH_REFUSED,
};

#define GRAPH_FAILURE_BATCH 0x3fffffffU /* the largest that fits into the word */

struct graph_entry {
    void *exec;       /* NULL: no graph */
    uint64_t epoch;   /* of the addresses in it */
    uint64_t make_us; /* that it took to make it executable */
    struct cede_graph_bucket b;
};

/* Only the thread that has `busy` uses a cache. What other threads may read meanwhile, which is
 * epoch, failure, buckets and statistics, that thread alone writes, with atomic instructions. */
struct cede_graph {
    atomic_bool busy;
    _Atomic uint64_t epoch; /* of the program's addresses */
    struct cuda cu;
    int device;
    bool eager; /* capture nothing */
    struct cede_graph_config config;
    void *stream; /* of the present call */
    cede_graph_step step;
    void *arg;
    unsigned n;
    unsigned sizes[CEDE_GRAPH_BUCKETS_MAX];
    struct graph_entry entries[CEDE_GRAPH_BUCKETS_MAX];
    struct graph_use use[CEDE_GRAPH_BUCKETS_MAX]; /* what the policy knows of them */
    uint64_t launches;                            /* so far */
    _Atomic uint64_t failure;
    struct cede_graph_statistics s; /* but for sums over the buckets */
};

#define GET(field)    __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define SET(field, v) __atomic_store_n(&(field), v, __ATOMIC_RELAXED)

/* A counter has one writer at a time, so that no locked instruction is needed. */
static void graph_add(uint64_t *counter, uint64_t n)
{
    SET(*counter, *counter + n);
}

/* A struct whose fields the other thread may be setting; it is as long as some words of 8 bytes. */
static void graph_copy(void *out, const void *in, size_t size)
{
    for (size_t i = 0; i < size / sizeof(uint64_t); i++)
        ((uint64_t *)out)[i] = GET(((const uint64_t *)in)[i]);
}

/* For cede_graph_get_statistics(). code: of CUDA, if positive. */
static void graph_fail(struct cede_graph *g, enum graph_failure what, unsigned batch, int code)
{
    uint64_t size = batch < GRAPH_FAILURE_BATCH ? batch : GRAPH_FAILURE_BATCH;
    uint64_t v = (uint64_t)(uint32_t)code << 32 | size << 2 | (uint64_t)what;
    atomic_store_explicit(&g->failure, v, memory_order_relaxed);
}

/* ---- captures -------------------------------------------------------------------------------- */

/* The program captures the stream itself. */
static bool graph_captured_outside(const struct cede_graph *g)
{
    int status = 0;
    return g->cu.capturing(g->stream, &status) == 0 && status != 0;
}

static void graph_drop(struct cede_graph *g, unsigned i)
{
    struct graph_entry *e = &g->entries[i];
    if (!e->exec)
        return;
    g->cu.exec_destroy(e->exec); /* one that runs ends first */
    e->exec = NULL;
    g->use[i].ready = false;
    g->use[i].eager = 0;
    g->use[i].bytes = 0;
    SET(e->b.captured, 0);
    SET(e->b.bytes, 0);
    SET(e->b.nodes, 0);
}

/* The driver keeps what graphs allocated of a memory pool until it is asked for it. */
static void graph_evict(struct cede_graph *g, unsigned i)
{
    g->use[i].evictions++;
    graph_add(&g->s.evictions, 1);
    graph_drop(g, i);
    g->cu.trim(g->device);
}

/* The entry runs eagerly from now on. */
static void graph_refuse(struct cede_graph *g, unsigned i, enum cede_graph_reason reason, int code)
{
    struct graph_entry *e = &g->entries[i];
    graph_drop(g, i);
    SET(e->b.refused, reason);
    SET(e->b.cuda_error, code);
    graph_add(&g->s.refusals, 1);
    graph_fail(g, GRAPH_REFUSED, g->sizes[i], code);
}

/* One attempt: 0 with a graph, or a CUresult. *own: as cede_graph_outcome(). */
static int graph_attempt(struct cede_graph *g, unsigned i, int mode, void **graph, int *own)
{
    void *made = NULL;
    *graph = NULL;
    *own = 0;
    int code = g->cu.begin(g->stream, mode);
    if (code)
        return code;
    int step = g->step(g->arg, g->stream, g->sizes[i]);
    int end = g->cu.end(g->stream, &made);
    code = cede_graph_outcome(step, end, own);
    if (!code && !*own)
        *graph = made;
    else if (made)
        g->cu.graph_destroy(made);
    return code;
}

/* Attempts until it is clear why none succeeds. In relaxed mode what is only unsafe is allowed:
 * that attempt tells it from what never works, and its graph is thrown away, as it may use memory
 * that is freed by then. What was done in it once and for all, such as loading a kernel, does not
 * disturb the third. 0 with a graph, or a CUresult with its reason. */
static int graph_attempts(struct cede_graph *g, unsigned i, void **graph, int *own,
                          enum cede_graph_reason *reason)
{
    int code = graph_attempt(g, i, MODE_THREAD_LOCAL, graph, own);
    *reason = cede_graph_explain(code, false);
    if (!cede_graph_ambiguous(code))
        return code;
    int relaxed = graph_attempt(g, i, MODE_RELAXED, graph, own);
    if (relaxed || *own) {
        /* What is unambiguous says more. */
        code = relaxed && !cede_graph_ambiguous(relaxed) ? relaxed : code;
        *reason = cede_graph_explain(code, false);
        *own = 0;
        return code;
    }
    g->cu.graph_destroy(*graph);
    code = graph_attempt(g, i, MODE_THREAD_LOCAL, graph, own);
    *reason = cede_graph_explain(code, true);
    if (!code && !*own)
        graph_add(&g->s.retried, 1);
    return code;
}

static uint64_t graph_free_memory(const struct cede_graph *g)
{
    size_t available = 0, all = 0;
    return g->cu.info(&available, &all) == 0 ? available : 0;
}

/* A new executable graph. If the GPU is full, others go first. */
static int graph_make(struct cede_graph *g, unsigned i, void *graph)
{
    struct graph_entry *e = &g->entries[i];
    for (;;) {
        uint64_t start = cede_clock_now_ns(), before = graph_free_memory(g);
        int code = g->cu.instantiate(&e->exec, graph, AUTO_FREE_ON_LAUNCH);
        if (code)
            e->exec = NULL;
        else
            code = g->cu.upload(e->exec, g->stream);
        if (!code) {
            uint64_t after = graph_free_memory(g);
            e->make_us = (cede_clock_now_ns() - start) / NSEC_PER_USEC;
            g->use[i].bytes = before > after ? before - after : 0;
            g->use[i].ready = true;
            SET(e->b.bytes, g->use[i].bytes);
            return 0;
        }
        if (e->exec)
            g->cu.exec_destroy(e->exec);
        e->exec = NULL;
        int oldest = cede_graph_oldest(g->use, g->n, (int)i);
        if (code != GRAPH_CUDA_NO_MEMORY || oldest < 0)
            return code;
        graph_evict(g, (unsigned)oldest);
        g->cu.stream_sync(g->stream); /* one that runs still has its memory */
        g->cu.trim(g->device);
    }
}

/* Puts a newer graph into the executable one, if CUDA can. */
static bool graph_update(struct cede_graph *g, unsigned i, void *graph)
{
    struct graph_entry *e = &g->entries[i];
    struct cuda_update_result why = {0, NULL, NULL};
    if (!e->exec)
        return false;
    uint64_t start = cede_clock_now_ns();
    if (g->cu.update(e->exec, graph, &why) || g->cu.upload(e->exec, g->stream)) {
        graph_drop(g, i);
        graph_add(&g->s.rebuilds, 1);
        return false;
    }
    uint64_t us = (cede_clock_now_ns() - start) / NSEC_PER_USEC;
    graph_add(&g->s.updates, 1);
    graph_add(&g->s.saved_us, e->make_us > us ? e->make_us - us : 0);
    return true;
}

/* Evicts until the limits are kept. False: the graph is alone and too large. */
static bool graph_fit(struct cede_graph *g, unsigned i)
{
    for (;;) {
        int victim =
            cede_graph_victim(g->use, g->n, (int)i, g->config.max_graphs, g->config.max_bytes);
        if (victim < 0 || victim == (int)i)
            return victim < 0;
        graph_evict(g, (unsigned)victim);
    }
}

/* 0 or -errno; see graph_capture(). */
static int graph_renew(struct cede_graph *g, unsigned i)
{
    struct graph_entry *e = &g->entries[i];
    enum cede_graph_reason reason;
    void *graph = NULL;
    size_t nodes = 0;
    int own = 0;
    uint64_t epoch = atomic_load(&g->epoch); /* a change meanwhile counts for the next launch */
    int code = graph_attempts(g, i, &graph, &own, &reason);
    if (own) {
        graph_fail(g, GRAPH_FAILED_STEP, g->sizes[i], own);
        return cede_returned(own);
    }
    if (code) {
        graph_refuse(g, i, reason, code);
        return 0;
    }
    code = g->cu.nodes(graph, NULL, &nodes);
    if (!code && !nodes)
        graph_refuse(g, i, CEDE_GRAPH_EMPTY, 0);
    else if (!code && !graph_update(g, i, graph))
        code = graph_make(g, i, graph);
    g->cu.graph_destroy(graph);
    if (code)
        graph_refuse(
            g, i, code == GRAPH_CUDA_NO_MEMORY ? CEDE_GRAPH_NO_MEMORY : CEDE_GRAPH_NOT_EXECUTABLE,
            code);
    if (!e->exec)
        return 0;
    e->epoch = epoch;
    SET(e->b.nodes, (unsigned)nodes);
    SET(e->b.captured, 1);
    SET(e->b.refused, CEDE_GRAPH_NOT_REFUSED);
    SET(e->b.cuda_error, 0);
    graph_add(&g->s.captures, 1);
    if (!graph_fit(g, i))
        graph_refuse(g, i, CEDE_GRAPH_NO_MEMORY, 0);
    return 0;
}

/* Makes or renews an entry's graph, within the limits. The entry has a graph or is refused then; or
 * a negative errno: the driver's failure, or the step's own. */
static int graph_capture(struct cede_graph *g, unsigned i)
{
    uint64_t start = cede_clock_now_ns();
    /* Captures of other threads neither disturb this one nor are disturbed by its allocations. */
    int mode = MODE_THREAD_LOCAL;
    if ((uintptr_t)g->stream <= 1) { /* the legacy default stream, by 0 or CU_STREAM_LEGACY */
        graph_refuse(g, i, CEDE_GRAPH_DEFAULT_STREAM, 0);
        return 0;
    }
    bool exchanged = g->cu.exchange_mode(&mode) == 0;
    int r = graph_renew(g, i);
    if (exchanged)
        g->cu.exchange_mode(&mode);
    graph_add(&g->s.capture_us, (cede_clock_now_ns() - start) / NSEC_PER_USEC);
    return r;
}

/* ---- opening and closing --------------------------------------------------------------------- */

CEDE_API void cede_graph_defaults(struct cede_graph_config *config)
{
    *config = (struct cede_graph_config){.size = sizeof(*config), .max_batch = 128, .warmups = 1};
}

static int graph_configure(struct cede_graph *g, const struct cede_graph_config *config)
{
    void *context;
    int r = 0;
    cede_graph_defaults(&g->config);
    if (config)
        g->config = *config;
    const struct cede_graph_config *c = &g->config;
    if (!SIZED(c->size, *c) ||
        !SETTINGS(FLAGS(c, CEDE_GRAPH_EAGER), SETTING(c, warmups, 0, WARMUPS_MAX),
                  SETTING(c, nbuckets, 0, CEDE_GRAPH_BUCKETS_MAX)))
        return -EINVAL;
    int n = cede_graph_sizes(c, g->sizes);
    if (n < 0)
        return SAY(n, {-EINVAL,
                       "max_batch, or one of buckets, is out of range: give 1 to 2^30, ascending"});
    g->n = (unsigned)n;
    for (unsigned i = 0; i < g->n; i++)
        g->entries[i].b.size = g->sizes[i];
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
        graph_drop(g, i);
    free(g);
}

static void graph_error_text(const struct cede_graph *g, char *out, size_t size)
{
    uint64_t v = g->failure;
    enum graph_failure what = (enum graph_failure)(v & 3);
    unsigned batch = (unsigned)(v >> 2 & GRAPH_FAILURE_BATCH);
    int code = (int)(uint32_t)(v >> 32), i = cede_graph_pick(g->sizes, g->n, batch);
    const char *name = NULL;
    char number[128] = "";
    if (what == GRAPH_FAILED_NOTHING)
        return;
    if (code > 0 && (!g->cu.error_name || g->cu.error_name(code, &name) || !name))
        name = "CUDA error";
    if (code > 0)
        snprintf(number, sizeof(number), "%s (%d)", name, code);
    else if (code < 0)
        snprintf(number, sizeof(number), "it returned %d: %s", code, cede_errno_words(code));
    if (what == GRAPH_REFUSED && i >= 0)
        snprintf(out, size, "a batch of %u runs eagerly: %s%s%s", batch,
                 cede_graph_text((enum cede_graph_reason)GET(g->entries[i].b.refused)),
                 code ? ": " : "", number);
    else
        snprintf(out, size, "cannot %s for a batch of %u: %s",
                 what == GRAPH_FAILED_STEP ? "run the step" : "launch the graph", batch, number);
}

static int graph_failed(const struct cede_graph *g, int r)
{
    char text[256] = "";
    if (r < 0 && r != -EBUSY) {
        graph_error_text(g, text, sizeof(text));
        cede_fail(r, "%s", text);
    }
    return SAY(r, {-EBUSY, "another thread, or the step itself, uses the cache: one at a time"});
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
    return cede_returned(r);
}

/* For a bucket, or with -1 for a batch larger than all of them. */
static int graph_run_eagerly(struct cede_graph *g, int i, unsigned n)
{
    graph_add(i < 0 ? &g->s.too_large : &g->entries[i].b.eager, 1);
    return graph_call_step(g, n);
}

/* A bucket that has no graph of the present addresses. 1: it has one now. 0: it is to run eagerly
 * for *n rows. Or a negative errno. */
static int graph_catch_up(struct cede_graph *g, unsigned i, unsigned *n)
{
    struct graph_entry *e = &g->entries[i];
    if (g->eager || GET(e->b.refused) || graph_captured_outside(g))
        return 0;
    if (!e->exec && !cede_graph_due(&g->use[i], g->config.warmups)) {
        g->use[i].eager++;
        graph_add(&g->s.warmups, 1);
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
        graph_refuse(g, (unsigned)i, CEDE_GRAPH_NO_MEMORY, code);
        return graph_run_eagerly(g, i, n);
    }
    if (code) {
        graph_fail(g, GRAPH_FAILED_LAUNCH, g->sizes[i], code);
        return -EIO;
    }
    g->use[i].used = ++g->launches;
    graph_add(&e->b.launched, 1);
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
    if (graph_is_current(g, i) || graph_captured_outside(g))
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
        n += (unsigned)GET(g->entries[i].b.captured);
    return n;
}

/* One that would only replace another is left to the launches. */
static int graph_prepare_all(struct cede_graph *g)
{
    uint64_t evictions = g->s.evictions;
    bool full = false;
    int r = 0;
    for (unsigned i = 0; !r && !full && i < g->n; i++) {
        if (g->entries[i].exec || !g->config.max_graphs || graph_count(g) < g->config.max_graphs)
            r = graph_prepare_one(g, i);
        full = evictions != g->s.evictions || g->entries[i].b.refused == CEDE_GRAPH_NO_MEMORY;
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
    graph_copy(out, &g->entries[i].b, sizeof(*out));
    return 0;
}

CEDE_API int cede_graph_get_statistics(struct cede_graph *g, struct cede_graph_statistics *out,
                                       size_t size)
{
    CALL(GIVEN(g) && GIVEN(out) && SIZED(size, *out));
    graph_copy(out, &g->s, sizeof(*out));
    out->buckets = g->n;
    out->graphs = graph_count(g);
    out->eager = out->too_large;
    for (unsigned i = 0; i < g->n; i++) {
        struct cede_graph_bucket b;
        graph_copy(&b, &g->entries[i].b, sizeof(b));
        out->refused += b.refused != CEDE_GRAPH_NOT_REFUSED;
        out->launched += b.launched;
        out->eager += b.eager;
        out->bytes += b.bytes;
    }
    graph_error_text(g, out->error, sizeof(out->error));
    return 0;
}
