/* Captures of a graph cache: see graph.h. An attempt that fails ends the capture, so that stream
 * and context work as before, and nothing of the step has run then. Knows no bucket's size but to
 * hand it to the step. */
#include <errno.h>

#include "libcede/clock.h"
#include "libcede/graph.h"

/* Numbers of the driver API's reference. */
enum { MODE_THREAD_LOCAL = 1, MODE_RELAXED = 2 };
/* A step that allocates from a memory pool and leaves the freeing to later can run again. */
enum { AUTO_FREE_ON_LAUNCH = 1 };

bool cede_graph_captured_outside(const struct cede_graph *g)
{
    int status = 0;
    return g->cu.capturing(g->stream, &status) == 0 && status != 0;
}

void cede_graph_drop(struct cede_graph *g, unsigned i)
{
    struct graph_entry *e = &g->entries[i];
    if (!e->exec)
        return;
    g->cu.exec_destroy(e->exec); /* one that runs ends first */
    e->exec = NULL;
    g->use[i].ready = false;
    g->use[i].eager = 0;
    g->use[i].bytes = 0;
    atomic_store(&e->captured, 0);
    atomic_store(&e->bytes, 0);
    atomic_store(&e->nodes, 0);
}

/* The driver keeps what graphs allocated of a memory pool until it is asked for it. */
static void graph_evict(struct cede_graph *g, unsigned i)
{
    g->use[i].evictions++;
    graph_add(&g->evictions, 1);
    cede_graph_drop(g, i);
    g->cu.trim(g->device);
}

void cede_graph_refuse(struct cede_graph *g, unsigned i, enum cede_graph_reason reason, int code)
{
    struct graph_entry *e = &g->entries[i];
    cede_graph_drop(g, i);
    atomic_store(&e->reason, reason);
    atomic_store(&e->code, code);
    graph_add(&g->refusals, 1);
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
        graph_add(&g->retried, 1);
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
            atomic_store(&e->bytes, g->use[i].bytes);
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
        cede_graph_drop(g, i);
        graph_add(&g->rebuilds, 1);
        return false;
    }
    uint64_t us = (cede_clock_now_ns() - start) / NSEC_PER_USEC;
    graph_add(&g->updates, 1);
    graph_add(&g->saved_us, e->make_us > us ? e->make_us - us : 0);
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

/* 0 or -errno; see cede_graph_capture(). */
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
        return own < 0 ? own : -EIO;
    }
    if (code) {
        cede_graph_refuse(g, i, reason, code);
        return 0;
    }
    code = g->cu.nodes(graph, NULL, &nodes);
    if (!code && !nodes)
        cede_graph_refuse(g, i, CEDE_GRAPH_EMPTY, 0);
    else if (!code && !graph_update(g, i, graph))
        code = graph_make(g, i, graph);
    g->cu.graph_destroy(graph);
    if (code)
        cede_graph_refuse(
            g, i, code == GRAPH_CUDA_NO_MEMORY ? CEDE_GRAPH_NO_MEMORY : CEDE_GRAPH_NOT_EXECUTABLE,
            code);
    if (!e->exec)
        return 0;
    e->epoch = epoch;
    atomic_store(&e->nodes, (unsigned)nodes);
    atomic_store(&e->captured, 1);
    atomic_store(&e->reason, CEDE_GRAPH_NOT_REFUSED);
    atomic_store(&e->code, 0);
    graph_add(&g->captures, 1);
    if (!graph_fit(g, i))
        cede_graph_refuse(g, i, CEDE_GRAPH_NO_MEMORY, 0);
    return 0;
}

int cede_graph_capture(struct cede_graph *g, unsigned i)
{
    uint64_t start = cede_clock_now_ns();
    /* Captures of other threads neither disturb this one nor are disturbed by its allocations. */
    int mode = MODE_THREAD_LOCAL;
    bool exchanged = g->cu.exchange_mode(&mode) == 0;
    int r = graph_renew(g, i);
    if (exchanged)
        g->cu.exchange_mode(&mode);
    graph_add(&g->capture_us, (cede_clock_now_ns() - start) / NSEC_PER_USEC);
    return r;
}
