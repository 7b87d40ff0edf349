/* libcede: a cache of CUDA graphs for programs that serve models. A program that runs the same step
 * for batches of many sizes gives the step as a function; the cache captures it once for each of a
 * few sizes (buckets) and then launches the graph, which is one call instead of one for each
 * kernel. A step that cannot be captured runs eagerly, and the cache says why. See
 * cede_graph_open(3) and docs/graphs.md.
 *
 * A cache needs no daemon and no CUDA toolkit: libcuda (driver 525 or later) is opened at run time.
 * It has no thread. The context in which it was opened has to be current in every thread that
 * calls.
 *
 * A cache is for steps that run one after the other, on any streams: a graph that is launched again
 * begins when it has run, and both have the same buffers. What runs at the same time needs caches
 * of its own, as a rule one for each `lane` of a queue's batches (cede/queue.h). One thread at a
 * time may use a cache: a second one gets -EBUSY. Caches share nothing, so threads that each have
 * one never wait for each other in libcede. cede_graph_changed(), cede_graph_get_bucket() and
 * cede_graph_get_statistics() may be called from any thread at any time before cede_graph_close()
 * begins. No function may be called from a signal handler, or in a forked child on its parent's
 * cache. Functions that return int return 0 or a negative errno, and none changes errno. */
#ifndef CEDE_GRAPH_H
#define CEDE_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cede_graph;

#define CEDE_GRAPH_BUCKETS_MAX 128

/* A function of the program that queues one step for a batch of n on the stream without waiting. n
 * is a bucket's size when the step is warmed up or captured, else the size of the launch. In a
 * capture, for which it may be called up to three times, its calls are recorded and do not run. It
 * returns 0, the CUresult or cudaError_t of the call that failed (> 0), which gives a refusal its
 * exact reason, or a negative errno. */
typedef int (*cede_graph_step)(void *arg, void *stream, unsigned n);

enum cede_graph_flags {
    CEDE_GRAPH_EAGER = 1, /* capture nothing: for debugging, or where there is no libcuda */
};

/* Settings, which cede_graph_defaults() fills in. The comments give the defaults. */
struct cede_graph_config {
    size_t size; /* of this struct; set by cede_graph_defaults() */
    unsigned flags;
    unsigned max_batch;      /* 128: buckets are 1, 2, 4, 8, ... and this; at most 2^30 */
    unsigned nbuckets;       /* 0; else the number of sizes in `buckets` */
    const unsigned *buckets; /* NULL; ascending, in place of max_batch; read at opening only */
    unsigned warmups;        /* 1: eager runs of a bucket before its capture; at most 1000 */
    unsigned max_graphs;     /* 0: no limit */
    uint64_t max_bytes;      /* 0: no limit; GPU memory of all graphs of this cache */
};

/* config must not be NULL. */
void cede_graph_defaults(struct cede_graph_config *config);

/* Opens a cache of graphs of one step, and captures nothing yet. config: NULL for the defaults.
 * CEDE_GRAPH=0 in the environment has the effect of CEDE_GRAPH_EAGER. On failure *out is NULL.
 * -EINVAL: a setting is out of range, or out or step is NULL. -ENOMEM. -ENOSYS: no libcuda of
 * driver 525 or later, or no context is current. */
int cede_graph_open(const struct cede_graph_config *config, cede_graph_step step, void *arg,
                    struct cede_graph **out);

/* Warms up and captures the bucket of a batch of n now, or with n = 0 all buckets, from the
 * smallest until a limit is reached. stream: as cede_graph_launch(). Without this call a bucket is
 * captured after `warmups` launches. A refused bucket is tried again. The step runs on the present
 * contents of its buffers. 0 also if buckets were refused: see cede_graph_get_bucket(). -EBUSY,
 * -EIO and the step's errors: as cede_graph_launch(). -EINVAL: g is NULL, or n is larger than the
 * largest bucket. */
int cede_graph_prepare(struct cede_graph *g, void *stream, unsigned n);

/* Runs the step for a batch of n on a stream, once: as the graph of the smallest bucket that is at
 * least n, or eagerly if n is larger than the largest bucket, the bucket is refused, or it is not
 * warm yet. A graph computes its whole bucket: rows from n on are the program's padding. *bucket
 * (bucket may be NULL): the size of the launched graph; 0: the step ran eagerly. stream: a CUstream
 * or cudaStream_t of the cache's context; on the legacy default stream (0 or 1) everything runs
 * eagerly. Kernels of a graph may have the priority of the stream that it was captured on. The
 * launch of a captured bucket takes no lock and allocates nothing in libcede. The call waits for
 * the stream only if a new graph finds the GPU full and others are evicted for it. -EBUSY: another
 * thread, or the step itself, calls meanwhile. -EINVAL: g is NULL, or n is 0. -EIO: the driver or
 * the step failed; cede_graph_get_statistics() has the message. Or a negative errno that the step
 * returned. On failure the step has not run, or failed itself. */
int cede_graph_launch(struct cede_graph *g, void *stream, unsigned n, unsigned *bucket);

/* Reports that addresses, or other arguments that the step gives to the driver, have changed: each
 * graph is captured again when it is next launched or prepared, and updated in place if CUDA can do
 * that. NULL is allowed. */
void cede_graph_changed(struct cede_graph *g);

/* Frees the cache and its graphs; running graphs go on to their end. NULL is allowed. */
void cede_graph_close(struct cede_graph *g);

/* Why a bucket runs eagerly; "it" is the step. */
enum cede_graph_reason {
    CEDE_GRAPH_NOT_REFUSED,
    CEDE_GRAPH_SYNCHRONIZES, /* it waits for the GPU, or asks whether work has ended */
    CEDE_GRAPH_UNSAFE_CALL,  /* it allocates outside a memory pool or loads a module each time */
    CEDE_GRAPH_INVALIDATED,  /* by a call whose error the step did not return, or another thread */
    CEDE_GRAPH_DEFAULT_STREAM, /* it uses the legacy one; not noticed on a non-blocking stream */
    CEDE_GRAPH_MERGES,         /* it joins its capture with another one */
    CEDE_GRAPH_UNMATCHED,      /* it ended the capture, or began one */
    CEDE_GRAPH_UNJOINED,       /* it left work on another stream */
    CEDE_GRAPH_OUTSIDE_EVENT,  /* it waits for an event that was recorded before it */
    CEDE_GRAPH_CAPTURED_EVENT, /* it queries or waits for an event that it recorded */
    CEDE_GRAPH_OTHER_THREAD,   /* another thread began a capture on the stream */
    CEDE_GRAPH_EMPTY,          /* it queued nothing on the stream */
    CEDE_GRAPH_NO_MEMORY,      /* the GPU is full, or max_bytes is less than this graph takes */
    CEDE_GRAPH_NOT_EXECUTABLE, /* the driver makes no executable graph of the capture */
    CEDE_GRAPH_OTHER,          /* another error than those of stream capture */
};
/* A reason in words, and what to change. Static; never NULL. */
const char *cede_graph_text(enum cede_graph_reason reason);

struct cede_graph_bucket {
    unsigned size;
    int captured;                   /* 1: there is a graph */
    enum cede_graph_reason refused; /* or CEDE_GRAPH_NOT_REFUSED */
    int cuda_error;                 /* the CUresult behind a refusal; 0: none */
    unsigned nodes;                 /* of the graph */
    uint64_t launched, eager;       /* launches of its graph; eager runs in its place */
    uint64_t bytes;                 /* GPU memory of the graph, as measured */
};
/* The bucket that a batch of n takes. size: sizeof(*out). -EINVAL: g or out is NULL, n is 0 or
 * larger than the largest bucket, or this library does not know the size. */
int cede_graph_get_bucket(struct cede_graph *g, unsigned n, struct cede_graph_bucket *out,
                          size_t size);

struct cede_graph_statistics {
    unsigned buckets, graphs, refused; /* now: of the cache; with a graph; that run eagerly */
    uint64_t launched;                 /* as graphs */
    uint64_t eager;                    /* by calling the step */
    uint64_t warmups, too_large;       /* of the eager ones, without cede_graph_prepare()'s */
    uint64_t captures;                 /* captures that gave a graph */
    uint64_t retried;                  /* of those: at the second attempt, as the first met a call
                                          made only once, such as the loading of a kernel */
    uint64_t refusals;
    uint64_t updates;    /* of the captures: put into the graph in place */
    uint64_t rebuilds;   /* of the captures: addresses had changed, but no update was possible */
    uint64_t evictions;  /* for max_graphs, max_bytes or a full GPU */
    uint64_t bytes;      /* GPU memory of the graphs now */
    uint64_t capture_us; /* time in captures, with making graphs executable and uploading them */
    uint64_t saved_us;   /* by updates: the time to make the graphs anew, minus the updates' time */
    char error[256];     /* the latest failure or refusal; "": none */
};
/* Figures since the cache was opened. size: sizeof(*out). -EINVAL: g or out is NULL, or this
 * library does not know the size. */
int cede_graph_get_statistics(struct cede_graph *g, struct cede_graph_statistics *out, size_t size);

#ifdef __cplusplus
}
#endif

#endif
