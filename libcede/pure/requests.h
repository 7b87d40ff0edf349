/* The next request of each of several devices, and which requests are refused at once because they
 * would be late. Deterministic: no clock, no system call, no allocation after cede_requests_new().
 * It starts nothing: the caller asks when a device is free and reports when a request has ended.
 *
 * A device runs one request, or one batch, at a time and to its end. A request waits in the queue
 * of one device: the preferred one while that has little more to do than the least loaded, else the
 * least loaded. A device whose queue is empty takes from the longest queue of the others.
 *
 * Not thread-safe. Times are nanoseconds of any monotonic clock. */
#ifndef CEDE_LIBCEDE_PURE_REQUESTS_H
#define CEDE_LIBCEDE_PURE_REQUESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/terms.h"

enum request_policy {
    REQ_FIFO,
    REQ_PRIORITY, /* by class, then in order of arrival */
    REQ_EDF,      /* earliest deadline first; among the k earliest, the first that is still
                     achievable, within a bound (see cede_requests_choose()) */
    REQ_LAXITY, /* least laxity of the requests with less than urgent_ns; without such, by class */
    REQ_POLICIES
};

struct requests_params {
    enum request_policy policy;
    uint32_t devices;
    uint32_t capacity;         /* waiting requests, on all devices together */
    uint32_t k;                /* search depth of REQ_EDF; 1: plain EDF */
    bool admit;                /* refuse requests that would be late or make another late */
    uint64_t urgent_ns;        /* a request with less slack is urgent */
    uint64_t prefer_within_ns; /* by which a preferred device may have more to do */
};
void cede_requests_params_default(struct requests_params *p);

struct request {
    uint64_t id; /* the caller's; unique among the waiting requests */
    uint64_t arrival_ns;
    uint64_t deadline_ns; /* TIME_NEVER: none */
    uint64_t run_ns;      /* estimate */
    uint64_t after_ns;    /* further work of the same client with the same deadline */
    enum job_class class;
    uint32_t preferred; /* device; SLOT_NONE: any */
    /* Requests of one kind (model and shape) may share a batch of up to batch_max (0, 1: none). A
     * batch of n runs for run_ns + (n - 1) each_ns, with each_ns <= run_ns. */
    uint32_t batch_max;
    uint64_t kind, each_ns;
    uint64_t wait_ns; /* it is held at most this long on a free device for others to join */
};

enum request_answer {
    REQ_RUN, /* its device is free and no request is before it */
    REQ_QUEUED,
    REQ_INVALID,      /* refused: class, device or time out of range */
    REQ_FULL,         /* refused: capacity */
    REQ_HOPELESS,     /* refused: late even if it ran at once */
    REQ_BACKLOG,      /* refused: late behind the requests before it */
    REQ_HARMS_OTHERS, /* refused: an admitted request would be late */
};
/* A few words for people. */
const char *cede_requests_answer_text(enum request_answer a);

struct request_verdict {
    enum request_answer answer;
    bool urgent;     /* its slack is below urgent_ns */
    uint32_t device; /* in whose queue it is; SLOT_NONE: refused */
};

struct requests;

/* 0, -ENOMEM or -EINVAL (no devices or capacity, k of 0, unknown policy). */
int cede_requests_new(const struct requests_params *p, struct requests **out);
void cede_requests_free(struct requests *r);

struct request_verdict cede_requests_submit(struct requests *r, const struct request *q,
                                            uint64_t now_ns);
/* The batch that a free device is to run now. out, *n: room, and the size of the batch. Its first
 * request is the policy's choice, the rest the batcher's (batcher.h); a smaller batch is taken
 * where a larger one would make another request late. Requests are held on a free device only while
 * no other kind can run without harm, and no later than urgent_ns before one would be late by it.
 * 0, -EBUSY; -EAGAIN: *wake_ns is when to ask again if nothing arrives (TIME_NEVER: none waits);
 * -EINVAL: no such device, or no room. */
#define REQUESTS_BATCH_MAX 128U
int cede_requests_next_batch(struct requests *r, uint32_t device, uint64_t now_ns,
                             struct request *out, uint32_t *n, uint64_t *wake_ns);
/* The device is free again. 0, -ENOENT (it ran nothing) or -EINVAL. */
int cede_requests_done(struct requests *r, uint32_t device);
/* Forgets a waiting request. 0 or -ENOENT. */
int cede_requests_cancel(struct requests *r, uint64_t id);
/* What a device still has to do, waiting and running, by the estimates. */
uint64_t cede_requests_backlog_ns(const struct requests *r, uint32_t device, uint64_t now_ns);

#endif
