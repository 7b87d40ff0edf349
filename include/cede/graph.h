/* libcede: a cache of CUDA graphs for programs that serve models. A program that runs the same step
 * for batches of many sizes gives the step as a function; the cache captures it once for each of a
 * few sizes (buckets) and then launches the graph, which is one call in place of one for each
 * kernel. What cannot be captured runs eagerly, and the cache says why. See cede_graph_open(3) and
 * docs/graphs.md.
 *
 * Needs no daemon and no CUDA toolkit: libcuda (driver 525 or later) is opened at run time. A cache
 * has no thread. The stream's context has to be current in every thread that calls.
 *
 * A cache belongs to one stream, and one thread at a time uses it: if two do, the second gets
 * -EBUSY. Caches share nothing, so that threads with a stream and a cache each never wait for each
 * other here. cede_graph_changed(), cede_graph_get_bucket() and cede_graph_get_statistics() may be
 * called from any thread at any time before cede_graph_close() begins. No function may be called
 * from a signal handler, or in a forked child on its parent's cache. Functions that return int
 * return 0 or a negative errno, and none changes errno. */
#ifndef CEDE_GRAPH_H
#define CEDE_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cede_graph;

#define CEDE_GRAPH_BUCKETS_MAX 128

/* Queues one step for a batch of n on the stream, and waits for nothing. It is called for the size
 * of a bucket when the step is warmed up or captured, else for the size that was asked for. In a
 * capture its calls are recorded and do not run; it may be called up to three times for one
 * capture. Returns 0; or the CUresult or cudaError_t of the call that failed (> 0), by which a
 * refusal has its exact reason; or a negative errno of the program's own. */
typedef int (*cede_graph_step)(void *arg, void *stream, unsigned n);

enum cede_graph_flags {
    CEDE_GRAPH_EAGER = 1, /* capture nothing: for debugging, or where there is no libcuda */
};

/* To be filled in by cede_graph_defaults(), then changed. The comments give the defaults. */
struct cede_graph_config {
    size_t size; /* of this struct; set by cede_graph_defaults() */
    unsigned flags;
    unsigned max_batch;      /* 128: buckets are 1, 2, 4, 8, ... and this; at most 2^30 */
    unsigned nbuckets;       /* 0; else that many sizes, rising, in place of max_batch: */
    const unsigned *buckets; /* NULL; read by cede_graph_open() only */
    unsigned warmups;        /* 1: eager runs of a bucket before its capture; at most 1000 */
    unsigned max_graphs;     /* 0: no limit */
    uint64_t max_bytes;      /* 0: no limit; GPU memory of all graphs of this cache */
};

/* config must not be NULL. */
void cede_graph_defaults(struct cede_graph_config *config);

/* A cache of graphs of one step on one stream. config: NULL for the defaults. stream: a CUstream or
 * cudaStream_t, which has to outlive the cache; the legacy default stream (0 or 1) is allowed, but
 * there everything runs eagerly. Captures nothing yet. Like CEDE_GRAPH_EAGER: CEDE_GRAPH=0 in the
 * environment. On failure *out is NULL. -EINVAL: something out of range, or out or step is NULL.
 * -ENOMEM. -ENOSYS: no libcuda of driver 525 or later, or no context is current. */
int cede_graph_open(const struct cede_graph_config *config, void *stream, cede_graph_step step,
                    void *arg, struct cede_graph **out);

/* Warms up and captures now the bucket that a batch of n would take, or with n = 0 all, from the
 * smallest until a limit is reached. Without this a bucket is captured when it has been launched
 * `warmups` times. A refused bucket is tried again. Runs the step on whatever its buffers hold.
 * 0 also if buckets were refused: cede_graph_get_bucket(). -EBUSY, -EIO and the step's own error:
 * as cede_graph_launch(). -EINVAL: g is NULL, or n is larger than the largest bucket. */
int cede_graph_prepare(struct cede_graph *g, unsigned n);

/* Runs the step for a batch of n, once: as the graph of the smallest bucket that is at least n, or
 * eagerly if n is larger than the largest bucket, the bucket is refused, or it is not warm yet. A
 * graph computes its whole bucket: rows from n on are the program's padding. bucket: NULL, or
 * becomes the size of the graph that was launched; 0: the step ran eagerly. The launch of a bucket
 * that is captured takes no lock and allocates nothing in libcede. Waits for the stream only if a
 * new graph finds the GPU full and others are evicted for it.
 * -EBUSY: another thread, or the step itself, calls meanwhile. -EINVAL: g is NULL, or n is 0. -EIO:
 * the driver or the step failed; cede_graph_get_statistics() has the message. Or a negative errno
 * that the step returned. On failure the step has not run, or failed itself. */
int cede_graph_launch(struct cede_graph *g, unsigned n, unsigned *bucket);

/* The addresses, or anything else that the step gives to the driver, have changed: each graph is
 * captured again when it is next launched or prepared, and updated in place if CUDA can do that.
 * NULL is allowed. */
void cede_graph_changed(struct cede_graph *g);

/* Destroys the graphs; those that run end by themselves. NULL is allowed. */
void cede_graph_close(struct cede_graph *g);

/* Why a bucket runs eagerly from now on. */
enum cede_graph_reason {
    CEDE_GRAPH_NOT_REFUSED,
    CEDE_GRAPH_SYNCHRONIZES, /* it waits for the GPU, or asks whether work has ended */
    CEDE_GRAPH_UNSAFE_CALL,  /* each time: an allocation outside a pool, a module loaded */
    CEDE_GRAPH_INVALIDATED,  /* by a call whose error the step did not return, or another thread */
    CEDE_GRAPH_DEFAULT_STREAM, /* the legacy one; unnoticed by a non-blocking stream */
    CEDE_GRAPH_MERGES,         /* with another capture */
    CEDE_GRAPH_UNMATCHED,      /* it ended the capture, or began one */
    CEDE_GRAPH_UNJOINED,       /* it left work on another stream */
    CEDE_GRAPH_OUTSIDE_EVENT,  /* it waits for an event that was recorded before it */
    CEDE_GRAPH_CAPTURED_EVENT, /* it queries or waits for an event that it recorded */
    CEDE_GRAPH_OTHER_THREAD,   /* began a capture on the stream */
    CEDE_GRAPH_EMPTY,          /* it queued nothing on the stream */
    CEDE_GRAPH_NO_MEMORY,      /* the GPU is full, or max_bytes is too small for it alone */
    CEDE_GRAPH_NOT_EXECUTABLE, /* the driver makes no executable graph of it */
    CEDE_GRAPH_OTHER,          /* an error that is none of stream capture's */
};
/* A reason in words, and what to change. Static; never NULL. */
const char *cede_graph_text(enum cede_graph_reason reason);

struct cede_graph_bucket {
    unsigned size;
    int captured;                   /* 1: there is a graph */
    enum cede_graph_reason refused; /* or CEDE_GRAPH_NOT_REFUSED */
    int cuda_error;                 /* the CUresult behind a refusal; 0: none */
    unsigned nodes;                 /* of the graph */
    uint64_t launched, eager;       /* launches that took it, and those that took it eagerly */
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
    uint64_t warmups, too_large;       /* of the eager ones; cede_graph_prepare()'s are not */
    uint64_t captures;                 /* that gave a graph */
    uint64_t retried;                  /* of those: a first attempt met a call made only once, such
                                          as a library that loaded a kernel */
    uint64_t refusals;
    uint64_t updates;    /* of the captures: put into the graph in place */
    uint64_t rebuilds;   /* of the captures: addresses had changed, but no update was possible */
    uint64_t evictions;  /* for max_graphs, max_bytes or a full GPU */
    uint64_t bytes;      /* GPU memory of the graphs now */
    uint64_t capture_us; /* time in captures, with making graphs executable and uploading them */
    uint64_t saved_us;   /* by updates: what making the graph took before, less what they took */
    char error[256];     /* the latest failure or refusal; "": none */
};
/* Since the cache was opened. size: sizeof(*out). -EINVAL: g or out is NULL, or this library does
 * not know the size. */
int cede_graph_get_statistics(struct cede_graph *g, struct cede_graph_statistics *out, size_t size);

#ifdef __cplusplus
}
#endif

#endif
