/* Inside libcede: a graph cache, shared by
 *   graph.c          the calls of cede/graph.h
 *   graph_capture.c  captures, updates and evictions; the only part that is slow
 * Only the thread that has `busy` uses a cache; what other threads may read meanwhile is atomic,
 * and is written by that thread alone. */
#ifndef CEDE_LIBCEDE_GRAPH_H
#define CEDE_LIBCEDE_GRAPH_H

#include <stdatomic.h>
#include <stdbool.h>

#include "cede/graph.h"
#include "libcede/cuda.h"
#include "libcede/pure/graph_plan.h"

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
    atomic_uint nodes, captured, reason;
    atomic_int code;
    _Atomic uint64_t launched, eager, bytes;
};

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
    /* as in struct cede_graph_statistics */
    _Atomic uint64_t too_large, warmups, captures, retried, refusals, updates, rebuilds, evictions;
    _Atomic uint64_t capture_us, saved_us;
};

/* A counter has one writer at a time, so that no locked instruction is needed. */
static inline void graph_add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* For cede_graph_get_statistics(). code: of CUDA, if positive. */
static inline void graph_fail(struct cede_graph *g, enum graph_failure what, unsigned batch,
                              int code)
{
    uint64_t size = batch < GRAPH_FAILURE_BATCH ? batch : GRAPH_FAILURE_BATCH;
    uint64_t v = (uint64_t)(uint32_t)code << 32 | size << 2 | (uint64_t)what;
    atomic_store_explicit(&g->failure, v, memory_order_relaxed);
}

/* ---- graph_capture.c ------------------------------------------------------------------------- */

/* The program captures the stream itself. */
bool cede_graph_captured_outside(const struct cede_graph *g);

/* Makes or renews an entry's graph, within the limits. The entry has a graph or is refused then; or
 * a negative errno: the driver's failure, or the step's own. */
int cede_graph_capture(struct cede_graph *g, unsigned i);

/* The entry runs eagerly from now on. */
void cede_graph_refuse(struct cede_graph *g, unsigned i, enum cede_graph_reason reason, int code);

/* Takes an entry's graph away, if it has one. */
void cede_graph_drop(struct cede_graph *g, unsigned i);

#endif
