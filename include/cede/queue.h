/* libcede: a queue of requests for programs that serve models. It decides which request runs next,
 * on which device and in what batch, and refuses at once a request that would be late; the program
 * runs them. See cede_queue_open(3); the policies are in docs/queue.md.
 *
 * A queue needs neither a daemon nor a GPU: a device is anything that runs batches. With a pool of
 * cede/lease.h each batch comes with a lease of a GPU, and several run on one GPU at a time while
 * the pool has room; with memory of cede/memory.h it comes with room in the GPU's memory. A queue
 * has no thread, and allocates nothing after cede_queue_open().
 *
 * Thread-safe: all functions may be called from several threads at once, except cede_queue_close(),
 * which no other call but cede_queue_next() may overlap. No function may be called from a signal
 * handler, or in a forked child on its parent's queue. Functions that return int return 0 or a
 * negative errno, and none changes errno. Times are microseconds, and deadlines count from now. */
#ifndef CEDE_QUEUE_H
#define CEDE_QUEUE_H

#include "cede/cede.h"
#include "cede/lease.h"
#include "cede/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cede_queue;

#define CEDE_QUEUE_BATCH_MAX   128
#define CEDE_QUEUE_MODELS      64  /* with separate settings */
#define CEDE_QUEUE_BATCHES_MAX 256 /* at a time, per device */

enum cede_queue_policy {
    CEDE_QUEUE_FIFO,
    CEDE_QUEUE_PRIORITY, /* by class, then in order of arrival */
    CEDE_QUEUE_EDF,      /* earliest deadline first */
    CEDE_QUEUE_LAXITY,   /* as CEDE_QUEUE_PRIORITY, but requests with less slack than urgent_us run
                            first */
};

/* Settings, which cede_queue_defaults() fills in. The comments give the defaults. */
struct cede_queue_config {
    size_t size;                   /* of this struct; set by cede_queue_defaults() */
    enum cede_queue_policy policy; /* CEDE_QUEUE_EDF */
    unsigned k;                    /* 16: search depth of CEDE_QUEUE_EDF; 1: plain EDF */
    unsigned devices;              /* 1; at most 64 */
    unsigned batches;              /* 0: 1 batch at a time per device, with a pool 8 */
    unsigned capacity;             /* 1024 waiting requests; at most 1048576 */
    int admit;                     /* 0; 1: refuse requests that would be late or make one late */
    uint64_t urgent_us;            /* 1000: a request with less slack is urgent, and is not held */
    double quantile; /* 0.99: of past runs, how much longer than usual is allowed for */
    /* For models without separate settings (cede_queue_set_model()): */
    unsigned batch_max;     /* 32 requests; 1: no batches */
    uint64_t batch_wait_us; /* 10000: a request is held at most this long for others to join */
    uint64_t expected_us;   /* 1000: run time of one request, until some were seen */
    cede_handle *client;    /* NULL; else requests are reported on this handle, which has to outlive
                             the queue. Admission then knows how much of the GPU other programs
                             leave (cede_share()) */
    struct cede_pool *pool; /* NULL; else each batch has a lease of this pool, whose devices are the
                               queue's, and which has to outlive the queue */
    struct cede_memory *const *memory; /* NULL; else a handle for each device: each batch has room
                                          there. They have to outlive the queue, the array not */
};
/* config must not be NULL. */
void cede_queue_defaults(struct cede_queue_config *config);

/* config: NULL for the defaults. On failure *out is NULL. -EINVAL: a setting out of range, the pool
 * has fewer devices or is closed, or out is NULL. -ENOMEM. */
int cede_queue_open(const struct cede_queue_config *config, struct cede_queue **out);

/* Settings of one model, 0 to CEDE_QUEUE_MODELS - 1. Waiting requests keep the settings that they
 * were submitted with. -EINVAL: out of range. */
int cede_queue_set_model(struct cede_queue *q, unsigned model, unsigned batch_max,
                         uint64_t batch_wait_us, uint64_t expected_us);

/* Sets the kernel and the shape of one request, for leases and room of batches of one model. The
 * kernel has to be registered with the pool before (cede_pool_kernel(), cede_pool_occupancy()); one
 * that is registered anew later counts from the next batch on. `blocks` and `memory_bytes` count
 * once for each request of a batch, which has no more of them than there ever is room for; 0 bytes:
 * as much as earlier batches of this kernel and shape allocated from their room. priority and
 * due_us are the queue's. kernel, shape: NULL for none, as by default: then only the number of
 * leases is limited. On failure nothing has changed. -EINVAL: out of range, there is neither pool
 * nor memory, or the kernel is one of cede_pool_kernel() and the shape has no threads. -ENOENT: the
 * pool does not know the kernel. -ENOMEM: the memory never has room for one request. -ESHUTDOWN:
 * the pool or the memory is closed. */
int cede_queue_set_lease(struct cede_queue *q, unsigned model, const char *kernel,
                         const struct cede_shape *shape);

/* Device d, counted from 0 as everywhere, or CEDE_ANY_DEVICE; other numbers are refused. */
#define CEDE_PREFER_DEVICE(d) ((d) + 0x20000)

struct cede_queue_request {
    uint32_t model;       /* only requests of one model and shape share a batch */
    uint64_t shape;       /* e.g. a padded length */
    enum cede_class cls;  /* 0: CEDE_NORMAL */
    uint64_t deadline_us; /* from now; 0: none */
    uint64_t after_us;    /* run time of further work of this client with the same deadline */
    int device;           /* the preferred one, as CEDE_PREFER_DEVICE(); 0, CEDE_ANY_DEVICE: any */
    void *user;           /* comes back with the batch */
};

enum cede_queue_answer {
    CEDE_QUEUE_RUNS, /* its device is free and no request precedes it */
    CEDE_QUEUE_WAITS,
    CEDE_QUEUE_FULL,  /* refused: `capacity` requests wait */
    CEDE_QUEUE_ALONE, /* refused: it would be late even if it ran at once. Not where the device runs
                         nothing and nothing waits for it */
    CEDE_QUEUE_BEHIND, /* refused: it would be late behind the requests before it */
    CEDE_QUEUE_OTHERS, /* refused: an admitted request would be late */
};
/* An answer in words. Static; never NULL. */
const char *cede_queue_text(enum cede_queue_answer answer);

struct cede_queue_ticket {
    uint64_t id; /* 0: refused */
    enum cede_queue_answer answer;
    int device; /* in whose queue it is; an idle device may take it from there */
    int urgent; /* 1: its slack is below urgent_us */
};

/* Submits a request; never waits. ticket: may be NULL. -EBUSY: refused, and ticket->answer is why.
 * -EINVAL: class or device out of range. -ESHUTDOWN: the queue is shut down, or its pool or its
 * memory is closed. */
int cede_queue_submit(struct cede_queue *q, const struct cede_queue_request *request,
                      struct cede_queue_ticket *ticket);

/* Requests of one model and shape that run together now, in memory of the caller, which hands it to
 * cede_queue_done() unchanged. */
struct cede_queue_batch {
    uint64_t id, shape;
    uint32_t model;
    int device;
    uint32_t n;
    uint32_t lane; /* 0 to `batches` - 1, different for all batches that run on a device: an index
                      for the program's buffers and graph caches */
    int urgent;    /* 1: the slack of one of them is below urgent_us */
    uint64_t expected_us;  /* estimated run time */
    cede_timeout retry_us; /* with -EAGAIN and -ETIMEDOUT: when to ask again, from now, if none is
                              submitted; CEDE_TIMEOUT_FOREVER: not before that, or a batch's end */
    uint64_t ticket[CEDE_QUEUE_BATCH_MAX]; /* the first n are set */
    void *user[CEDE_QUEUE_BATCH_MAX];
    /* With a pool, with memory; else all 0. cede_queue_done() releases both. */
    struct cede_lease lease;
    struct cede_reservation room;
};

/* Gives the batch that a device is to run now. Waits for at most timeout_us until there is
 * one and the device may run it: with a pool, until it has a lease on this device, and with memory,
 * until it has room there. The lease's stream has a priority by the best class in the batch, and
 * the highest if the batch is urgent. Until both are there the requests stay in the queue, and
 * others may join or overtake them. Several threads may ask for one device: each gets a batch, up
 * to `batches`. -EAGAIN: none now, with a time-out of 0. -ECANCELED: the scope of the calling task
 * has ended (cede/scope.h): return. -EINVAL: no such device or time-out. -ENOSPC, -EIO: as
 * cede_acquire(); the requests stay in the queue. -ESHUTDOWN: the queue is shut down and nothing
 * waits in it any more, or the pool or the memory is closed, which ends all waits. -ETIMEDOUT: none
 * in time. */
int cede_queue_next(struct cede_queue *q, int device, cede_timeout timeout_us,
                    struct cede_queue_batch *batch);

/* Reports the end of a batch, and releases its lease and its room. The queue learns the run time
 * since cede_queue_next(), unless `failed` is set. -ENOENT: the batch does not run. */
int cede_queue_done(struct cede_queue *q, const struct cede_queue_batch *batch, int failed);

/* Removes a waiting request by its ticket's id. -EBUSY: it runs. -ENOENT: it has ended, or never
 * was. */
int cede_queue_cancel(struct cede_queue *q, uint64_t ticket);

/* Makes the queue accept no further request. What waits is still handed out; after that threads in
 * cede_queue_next() get -ESHUTDOWN. To end at once, take out what waits: cede_queue_reclaim(). */
void cede_queue_shutdown(struct cede_queue *q);

/* Removes one waiting request after a shutdown and gives its user pointer, so that its owner can be
 * informed. -EBUSY: the queue is not shut down. -ENOENT: none is left. */
int cede_queue_reclaim(struct cede_queue *q, void **user);

/* Shuts the queue down, hands out no batch any more, waits until no thread is in cede_queue_next(),
 * and frees it. NULL is allowed. */
void cede_queue_close(struct cede_queue *q);

struct cede_queue_statistics {
    uint64_t submitted, ended, failed, cancelled; /* accepted requests, and their ends */
    uint64_t batches;
    uint64_t late;                        /* requests that ended past their deadline */
    uint64_t full, alone, behind, others; /* refused, by answer */
    uint64_t waiting, running;            /* requests now */
    uint64_t busy_us;                     /* of all devices together */
    uint64_t p50_us,
        p99_us; /* from submit to done, over about the last 500; at most 1/8 too high */
};
/* Figures since the opening. size: sizeof(*out). -EINVAL: this library does not know the size. */
int cede_queue_get_statistics(struct cede_queue *q, struct cede_queue_statistics *out, size_t size);

#ifdef __cplusplus
}
#endif

#endif
