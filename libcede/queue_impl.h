/* Inside libcede: the request queue, shared by
 *   queue.c        opening, requests, ending
 *   queue_batch.c  batches and their leases
 * The lock of struct cede_queue is held in all functions. Order of locks: a queue's, then a
 * pool's. */
#ifndef CEDE_LIBCEDE_QUEUE_IMPL_H
#define CEDE_LIBCEDE_QUEUE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "base/estimate.h"
#include "cede/queue.h"
#include "libcede/handle.h"
#include "libcede/memory.h"
#include "libcede/owner.h"
#include "libcede/pure/requests.h"
#include "libcede/pure/run_times.h"

#define PRIORITY_URGENT 5 /* the highest of cede_shape.priority that a stream has */

struct queue_model {
    unsigned batch_max;
    uint64_t wait_ns, expected_ns;
    uint32_t most;   /* requests for which there ever is room */
    char kernel[64]; /* "": none */
    struct cede_shape shape;
};

/* What a batch of at most `most` requests has of its device, by the settings. */
struct queue_grant {
    uint32_t most;
    struct cede_lease lease;
    struct cede_reservation room;
};

/* A batch that runs; in the slot of the pure part. */
struct queue_slot {
    uint64_t id; /* 0: none */
    uint64_t start_ns;
    double share; /* cede_share() when it started */
    struct queue_grant grant;
};

/* One thread of a device at a time asks for a grant; the others wait for it to have one. So a grant
 * goes to the batch that is first when the grant is there. */
struct queue_device {
    struct lease_owner owner;   /* of the device's leases; first */
    struct cede_memory *memory; /* NULL: none */
    atomic_int stop;            /* why that thread is to stop waiting; 0: it is not */
    pthread_cond_t changed;
    unsigned waiters, running; /* threads that wait for `changed`; batches */
    bool asking;
    int priority; /* of the grant that it asks for */
};

struct cede_queue {
    LIST_ENTRY(cede_queue) link; /* among the open queues */
    pthread_mutex_t lock;
    pthread_cond_t left; /* no thread waits any more */
    struct cede_queue_config config;
    struct requests *requests;
    struct run_times *times;
    struct estimate latency;
    struct cede_request *reported; /* to the daemon, by the lower half of the ticket */
    uint32_t nreported;            /* 0: requests are not reported */
    struct queue_device *devices;
    struct queue_slot *slots;                         /* config.batches for each device */
    struct queue_model models[CEDE_QUEUE_MODELS + 1]; /* the last: of all other models */
    uint64_t batches;                                 /* so far */
    unsigned inside;                                  /* threads in cede_queue_next() */
    bool shut, closed; /* no request gets in; no batch gets out either */
    struct cede_queue_statistics s;
    struct request out[CEDE_QUEUE_BATCH_MAX];
};

static inline const struct queue_model *queue_model(const struct cede_queue *q, uint32_t model)
{
    return &q->models[model < CEDE_QUEUE_MODELS ? model : CEDE_QUEUE_MODELS];
}

/* Of the GPU's time what other programs leave to this one. */
static inline double queue_share(const struct cede_queue *q)
{
    return cede_share(q->config.client);
}

/* served: false: it met no deadline, however early it ends. */
static inline void queue_report_end(struct cede_queue *q, uint64_t ticket, bool served)
{
    if (q->nreported)
        cede_request_finish(q->config.client, &q->reported[(uint32_t)ticket], served);
}

static inline int queue_priority(enum job_class class, bool urgent)
{
    return urgent ? PRIORITY_URGENT : (int)CLASS_BATCH - (int)class;
}

/* No batch will be handed out. */
static inline bool queue_over(const struct cede_queue *q)
{
    return q->closed || (q->shut && !q->s.waiting);
}

/* Its threads look again. */
static inline void queue_wake_all(struct cede_queue *q)
{
    for (unsigned i = 0; i < q->config.devices; i++)
        pthread_cond_broadcast(&q->devices[i].changed);
}

/* Gives back what there is. Without the lock: a memory may call the program. */
void cede_queue_give_back(struct queue_grant *g);

/* cede_queue_next() for batches of at most `most` requests. Without the lock. */
int cede_queue_take(struct cede_queue *q, int device, uint32_t most, cede_timeout timeout_us,
                    struct cede_queue_batch *b);
/* cede_queue_done() of the batch with that id on that device. Without the lock. */
int cede_queue_end(struct cede_queue *q, uint64_t batch, int device, bool failed);

/* Threads that wait for a grant look at `stop`. */
void cede_queue_wake_asking(const struct cede_queue *q);

/* Ends what waits for batches if there will be none. */
void cede_queue_end_waits(struct cede_queue *q);

/* Wakes a thread that waits for this device; if there is none, or the device takes none now, one
 * for a free device, which may take the request from this one's queue. */
void cede_queue_wake(struct cede_queue *q, uint32_t device);

#endif
