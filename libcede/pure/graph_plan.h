/* Decisions of a graph cache: which bucket a batch takes, when one is captured, which graph is
 * evicted, and what a failed capture means. No clock, no system call, no driver. */
#ifndef CEDE_LIBCEDE_PURE_GRAPH_PLAN_H
#define CEDE_LIBCEDE_PURE_GRAPH_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "cede/graph.h"

/* Numbers of the driver API's reference. */
enum {
    GRAPH_CUDA_NO_MEMORY = 2,
    GRAPH_CUDA_ILLEGAL_STATE = 401,
    GRAPH_CUDA_UNSUPPORTED = 900, /* the first that is about stream capture */
    GRAPH_CUDA_INVALIDATED = 901,
    GRAPH_CUDA_WRONG_THREAD = 908, /* the last */
};

/* The sizes of a cache's buckets, rising. Their number, or -EINVAL. */
int cede_graph_sizes(const struct cede_graph_config *c, unsigned out[CEDE_GRAPH_BUCKETS_MAX]);

/* The smallest that is at least `batch`; -1: none. */
int cede_graph_pick(const unsigned *sizes, unsigned n, unsigned batch);

/* What the policy knows of a bucket. */
struct graph_use {
    bool ready;         /* it has a graph */
    unsigned eager;     /* runs since it has had none */
    unsigned evictions; /* so far */
    uint64_t used;      /* number of the launch that used it last */
    uint64_t bytes;
};

/* Whether a bucket without a graph is to be captured at this launch. The first time, it is warmed
 * up. After each eviction it has to be wanted twice as often as before, so that buckets that do not
 * fit at the same time are not captured in turns. */
bool cede_graph_due(const struct graph_use *u, unsigned warmups);

/* The graph used least recently, other than `keep`; -1: none. */
int cede_graph_oldest(const struct graph_use *u, unsigned n, int keep);

/* The graph to evict next, until the limits (0: none) are kept: the least recently used one, and
 * `keep` itself if it is alone, or too large even then. -1: they are kept. */
int cede_graph_victim(const struct graph_use *u, unsigned n, int keep, unsigned max_graphs,
                      uint64_t max_bytes);

/* What one attempt to capture came to, from what the step returned and cuStreamEndCapture() did:
 * the CUresult that prevented it. 0: it was captured, or *own, which else is 0, is an error of the
 * step's own. */
int cede_graph_outcome(int step, int end, int *own);

/* Whether another attempt can tell more about it: the same error means a synchronization, which
 * fails in every mode of capture, or a call that is only unsafe, which relaxed mode allows. */
bool cede_graph_ambiguous(int code);

/* relaxed: an attempt in relaxed mode succeeded. */
enum cede_graph_reason cede_graph_explain(int code, bool relaxed);

#endif
