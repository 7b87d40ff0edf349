/* See graph_plan.h. */
#include "libcede/pure/graph_plan.h"

#include <errno.h>
#include <stddef.h>

#include "base/util.h"

#define BATCH_MAX    (1U << 30)
#define EVICTION_MAX 10U /* more double nothing any more */

int cede_graph_sizes(const struct cede_graph_config *c, unsigned out[CEDE_GRAPH_BUCKETS_MAX])
{
    unsigned n = 0;
    if (!c->nbuckets) {
        if (!c->max_batch || c->max_batch > BATCH_MAX)
            return -EINVAL;
        for (unsigned size = 1; size < c->max_batch; size *= 2)
            out[n++] = size;
        out[n++] = c->max_batch;
        return (int)n;
    }
    if (c->nbuckets > CEDE_GRAPH_BUCKETS_MAX || !c->buckets)
        return -EINVAL;
    for (; n < c->nbuckets; n++) {
        if (c->buckets[n] > BATCH_MAX || c->buckets[n] <= (n ? out[n - 1] : 0))
            return -EINVAL;
        out[n] = c->buckets[n];
    }
    return (int)n;
}

int cede_graph_pick(const unsigned *sizes, unsigned n, unsigned batch)
{
    unsigned low = 0, high = n;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (sizes[middle] < batch)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n ? (int)low : -1;
}

bool cede_graph_due(const struct graph_use *u, unsigned warmups)
{
    unsigned shift = u->evictions < EVICTION_MAX ? u->evictions : EVICTION_MAX;
    return u->eager >= (shift ? 1U << shift : warmups);
}

int cede_graph_oldest(const struct graph_use *u, unsigned n, int keep)
{
    int oldest = -1;
    for (int i = 0; i < (int)n; i++) {
        if (u[i].ready && i != keep && (oldest < 0 || u[i].used < u[oldest].used))
            oldest = i;
    }
    return oldest;
}

int cede_graph_victim(const struct graph_use *u, unsigned n, int keep, unsigned max_graphs,
                      uint64_t max_bytes)
{
    unsigned graphs = 0;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < n; i++) {
        graphs += u[i].ready;
        bytes += u[i].ready ? u[i].bytes : 0;
    }
    if ((!max_graphs || graphs <= max_graphs) && (!max_bytes || bytes <= max_bytes))
        return -1;
    int oldest = cede_graph_oldest(u, n, keep);
    bool vain = max_bytes && u[keep].ready && u[keep].bytes > max_bytes;
    return oldest >= 0 && !vain ? oldest : keep;
}

/* ---- failed captures ------------------------------------------------------------------------- */

static bool graph_is_capture_error(int code)
{
    return code >= GRAPH_CUDA_UNSUPPORTED && code <= GRAPH_CUDA_WRONG_THREAD;
}

int cede_graph_outcome(int step, int end, int *own)
{
    *own = 0;
    /* What the step saw first says more than the end's "invalidated", or an end that went well. */
    if (graph_is_capture_error(step) && (step != GRAPH_CUDA_INVALIDATED || !end))
        return step;
    if (!end)
        *own = step;
    return end;
}

bool cede_graph_ambiguous(int code)
{
    return code == GRAPH_CUDA_UNSUPPORTED || code == GRAPH_CUDA_INVALIDATED;
}

enum cede_graph_reason cede_graph_explain(int code, bool relaxed)
{
    static const enum cede_graph_reason reasons[] = {
        CEDE_GRAPH_SYNCHRONIZES,   CEDE_GRAPH_INVALIDATED,    CEDE_GRAPH_MERGES,
        CEDE_GRAPH_UNMATCHED,      CEDE_GRAPH_UNJOINED,       CEDE_GRAPH_OUTSIDE_EVENT,
        CEDE_GRAPH_DEFAULT_STREAM, CEDE_GRAPH_CAPTURED_EVENT, CEDE_GRAPH_OTHER_THREAD,
    };
    if (cede_graph_ambiguous(code) && relaxed)
        return CEDE_GRAPH_UNSAFE_CALL;
    if (graph_is_capture_error(code))
        return reasons[code - GRAPH_CUDA_UNSUPPORTED];
    if (code == GRAPH_CUDA_NO_MEMORY)
        return CEDE_GRAPH_NO_MEMORY;
    return code == GRAPH_CUDA_ILLEGAL_STATE ? CEDE_GRAPH_UNMATCHED : CEDE_GRAPH_OTHER;
}

CEDE_API const char *cede_graph_text(enum cede_graph_reason reason)
{
    static const char *const texts[] = {
        [CEDE_GRAPH_NOT_REFUSED] = "not refused",
        [CEDE_GRAPH_SYNCHRONIZES] =
            "the step waits for the GPU or asks whether work has ended: move synchronizations and "
            "queries of streams, events and the context out of it",
        [CEDE_GRAPH_UNSAFE_CALL] =
            "the step allocates outside a memory pool, frees such memory or loads a module each "
            "time: do that before, or allocate from a memory pool (cudaMallocAsync)",
        [CEDE_GRAPH_INVALIDATED] =
            "a call invalidated the capture, and the step did not return its error: return it; "
            "other threads must not synchronize the stream or the context meanwhile",
        [CEDE_GRAPH_DEFAULT_STREAM] =
            "the step, or the cache, uses the legacy default stream: queue all work on a stream "
            "that was created, and give that to the cache",
        [CEDE_GRAPH_MERGES] =
            "the step waits for an event of another capture: record the event outside of captures",
        [CEDE_GRAPH_UNMATCHED] =
            "the step ended the capture, or began one of its own on the stream: leave both to the "
            "cache",
        [CEDE_GRAPH_UNJOINED] =
            "the step left work on another stream: record an event there and make the stream of "
            "the step wait for it",
        [CEDE_GRAPH_OUTSIDE_EVENT] =
            "the step waits for an event that was recorded before it: wait for that before the "
            "launch",
        [CEDE_GRAPH_CAPTURED_EVENT] =
            "the step queries or waits for an event that it recorded itself: move that out of it, "
            "and record the event after the launch",
        [CEDE_GRAPH_OTHER_THREAD] =
            "another thread began a capture on the stream: give each thread a stream and a cache",
        [CEDE_GRAPH_EMPTY] =
            "the step queued nothing on its stream: queue its work on the stream that it is given",
        [CEDE_GRAPH_NO_MEMORY] =
            "the graph needs more GPU memory than there is, or than max_bytes: free some, raise "
            "max_bytes or have fewer buckets",
        [CEDE_GRAPH_NOT_EXECUTABLE] =
            "the driver makes no executable graph of the step: see cuda_error for its reason",
        [CEDE_GRAPH_OTHER] = "the driver refused the capture: see cuda_error for its reason",
    };
    return (unsigned)reason < ARRAY_SIZE(texts) ? texts[reason] : "unknown reason";
}
