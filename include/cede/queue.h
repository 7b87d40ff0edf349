/* libcede: a queue of requests for programs that serve models. It decides which request runs next
 * on which device and in what batch, and refuses at once what would be late; the program runs them.
 * See cede_queue_open(3); the policies are in docs/requests.md.
 *
 * Needs neither a daemon nor a GPU: a device is whatever runs one batch at a time. No thread of its
 * own, no allocation after cede_queue_open(). All calls may be made from several threads at once,
 * but cede_queue_close() by one, after which there is no queue. None may be made from a signal
 * handler, or in a forked child on its parent's queue. Functions return 0 or a negative errno.
 * Times are microseconds, deadlines count from now. */
#ifndef CEDE_QUEUE_H
#define CEDE_QUEUE_H

#include "cede/cede.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cede_queue;

#define CEDE_QUEUE_BATCH_MAX 128
#define CEDE_QUEUE_MODELS    64 /* with settings of their own */
#define CEDE_FOREVER         UINT64_MAX

enum cede_queue_policy {
    CEDE_FIFO,
    CEDE_PRIORITY, /* class; in order of arrival within one */
    CEDE_EDF,      /* earliest deadline first */
    CEDE_LAXITY,   /* class, but first who has less than urgent_us to spare */
};

/* Fill in with cede_queue_defaults(), then change. */
struct cede_queue_config {
    size_t size;                   /* of this struct; leave it */
    enum cede_queue_policy policy; /* CEDE_EDF */
    unsigned k;                    /* CEDE_EDF: 16. More than 1: fewer are late */
    unsigned devices;              /* 1 */
    unsigned capacity;             /* 1024 requests that wait */
    int admit;                     /* 0; 1: refuse what would be late or make another late */
    uint64_t urgent_us;            /* 1000: with less to spare a request is urgent and not held */
    double quantile;               /* 0.99 of the times seen is what a request is taken to need */
    /* Of each model that cede_queue_set_model() says nothing about: */
    unsigned batch_max;     /* 32; 1: no batches */
    uint64_t batch_wait_us; /* 10000: so long one is held at most for others to join it */
    uint64_t expected_us;   /* 1000: one alone, until some were seen */
    struct cede *cede;      /* NULL; else each request is told to cede, from submit to done */
};
void cede_queue_defaults(struct cede_queue_config *config);

/* config: NULL for the defaults. -EINVAL: a setting out of range. -ENOMEM. *out is NULL then. */
int cede_queue_open(const struct cede_queue_config *config, struct cede_queue **out);

/* model: 0..CEDE_QUEUE_MODELS-1. -EINVAL: out of range. What waits keeps its old settings. */
int cede_queue_set_model(struct cede_queue *q, unsigned model, unsigned batch_max,
                         uint64_t batch_wait_us, uint64_t expected_us);

struct cede_queue_request {
    uint32_t model; /* those of one model and shape may run together */
    uint64_t shape; /* e.g. a padded length */
    enum cede_class cls;
    uint64_t deadline_us; /* from now; 0: none */
    uint64_t after_us;    /* more work of the same client, due at the same time */
    unsigned prefer;      /* a device's number + 1, as long as it is no busier; 0: any */
    void *user;           /* comes back with the batch */
};

enum cede_queue_answer {
    CEDE_QUEUE_RUNS, /* its device is free and nobody is before it */
    CEDE_QUEUE_WAITS,
    CEDE_QUEUE_FULL,   /* refused: no room */
    CEDE_QUEUE_ALONE,  /* refused: late even if it ran at once */
    CEDE_QUEUE_BEHIND, /* refused: late because of those before it */
    CEDE_QUEUE_OTHERS, /* refused: would make one late that was let in */
};
const char *cede_queue_text(enum cede_queue_answer answer);

struct cede_queue_ticket {
    uint64_t id;
    enum cede_queue_answer answer;
    unsigned device; /* whose turn it waits for; another that is idle may take it */
    int urgent;
};

/* -EBUSY: refused, ticket->answer says why. -EINVAL: class or device out of range. -ESHUTDOWN. */
int cede_queue_submit(struct cede_queue *q, const struct cede_queue_request *request,
                      struct cede_queue_ticket *ticket);

/* Requests of one model and shape to run now, together. The caller's memory; to be handed to
 * cede_queue_done() unchanged. */
struct cede_queue_batch {
    uint64_t id, shape;
    uint32_t model, device, n;
    int urgent;           /* one of them has less than urgent_us to spare */
    uint64_t expected_us; /* that it will run */
    uint64_t retry_us; /* with -EAGAIN and -ETIMEDOUT: ask again after so long, or after a submit */
    uint64_t ticket[CEDE_QUEUE_BATCH_MAX];
    void *user[CEDE_QUEUE_BATCH_MAX];
};

/* What a device is to run now; waits for it, and for the device, for timeout_us (0: not at all;
 * CEDE_FOREVER). -EAGAIN: nothing now, with a timeout of 0. -ETIMEDOUT. -EINVAL: no such device.
 * -ESHUTDOWN. */
int cede_queue_next(struct cede_queue *q, unsigned device, uint64_t timeout_us,
                    struct cede_queue_batch *batch);

/* It has ended and the device is free; the time since cede_queue_next() is learnt. With failed
 * set it is not. -ENOENT: that batch does not run. */
int cede_queue_done(struct cede_queue *q, const struct cede_queue_batch *batch, int failed);

/* Takes back one that waits. -EBUSY: it runs. -ENOENT: it has ended, or never was. */
int cede_queue_cancel(struct cede_queue *q, uint64_t ticket);

/* From now on nothing is taken and nothing given out: whoever waits in cede_queue_next() gets
 * -ESHUTDOWN. What runs may be done. */
void cede_queue_shutdown(struct cede_queue *q);

/* After that: one of those that still waited, so that its owner can be told. -ENOENT: no more.
 * -EBUSY: the queue is not shut down. */
int cede_queue_reclaim(struct cede_queue *q, void **user);

/* Shuts down, waits until nobody is in cede_queue_next(), and frees. NULL is allowed. */
void cede_queue_close(struct cede_queue *q);

struct cede_queue_statistics {
    uint64_t submitted, ended, failed,
        cancelled;                        /* requests that were let in; what became of them */
    uint64_t batches, late;               /* of those that ended, with a deadline */
    uint64_t full, alone, behind, others; /* refused */
    uint64_t waiting, running;            /* requests */
    uint64_t busy_us;                     /* of all devices together */
    uint64_t p50_us, p99_us; /* from submit to done, of about the last 500; at most 1/8 too long */
};
/* size: sizeof(*out). -EINVAL. */
int cede_queue_get_statistics(struct cede_queue *q, struct cede_queue_statistics *out, size_t size);

#ifdef __cplusplus
}
#endif

#endif
