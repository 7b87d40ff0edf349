/* Which request runs next on which of several devices, and which is refused at once because it
 * would be late. Deterministic: no clock, no system call, no allocation after cede_requests_new().
 * It starts nothing; the caller asks when a device is free and says when a request ended.
 *
 * A device runs one request at a time, to its end. A request waits in the queue of one device: the
 * preferred one while that is about as loaded as the least loaded, else the least loaded. A device
 * whose queue is empty takes from the longest queue of the others.
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
    REQ_PRIORITY, /* class; in order of arrival within one */
    REQ_EDF,      /* of the k earliest deadlines the first that can be met, within a bound; else the
                     first */
    REQ_LAXITY,   /* least laxity of those with less than urgent_ns; if there are none, by class */
    REQ_POLICIES
};

struct requests_params {
    enum request_policy policy;
    uint32_t devices;
    uint32_t capacity; /* requests waiting, on all devices together */
    uint32_t k; /* REQ_EDF looks so far for one that can still be met. 1: plain EDF. More: fewer are
                   late, and the tail is the same (see cede_requests_choose()) */
    bool admit; /* refuse what would be late, or make another late */
    uint64_t urgent_ns;        /* less slack than that is urgent */
    uint64_t prefer_within_ns; /* a preferred device may have so much more to do */
};
void cede_requests_params_default(struct requests_params *p);

struct request {
    uint64_t id; /* the caller's; should be unique among those that wait */
    uint64_t arrival_ns;
    uint64_t deadline_ns; /* TIME_NEVER: none */
    uint64_t run_ns;      /* estimate */
    uint64_t after_ns;    /* more work of the same client, due at the same deadline */
    enum job_class class;
    uint32_t preferred; /* device; SLOT_NONE: any */
    /* Those of one group may run together, up to batch_max; 0: never. n of them run for
     * run_ns + (n - 1) each_ns, with each_ns <= run_ns. */
    uint32_t batch_max;
    uint64_t group, each_ns;
    uint64_t wait_ns; /* so long it may be held on a free device for others to join it */
};

enum request_answer {
    REQ_RUN, /* its device is free and nobody is before it */
    REQ_QUEUED,
    REQ_INVALID,      /* refused: class or device out of range */
    REQ_FULL,         /* refused: no room in the queues */
    REQ_HOPELESS,     /* refused: late even if it ran at once */
    REQ_BACKLOG,      /* refused: late because of those before it */
    REQ_HARMS_OTHERS, /* refused: would make one late that was let in */
};
/* A few words for people. */
const char *cede_requests_answer_text(enum request_answer a);

struct request_verdict {
    enum request_answer answer;
    bool urgent;     /* slack below urgent_ns: run it with precedence over other programs */
    uint32_t device; /* whose queue it is in; SLOT_NONE: refused */
};

struct requests;

/* 0, -ENOMEM or -EINVAL (no devices or capacity, k of 0, unknown policy). */
int cede_requests_new(const struct requests_params *p, struct requests **out);
void cede_requests_free(struct requests *r);

struct request_verdict cede_requests_submit(struct requests *r, const struct request *q,
                                            uint64_t now_ns);
/* What a free device is to run now. 0, -EAGAIN (nothing waits), -EBUSY (it runs one), -EINVAL. */
int cede_requests_next(struct requests *r, uint32_t device, uint64_t now_ns, struct request *out);
/* The same in batches: out, n: room, and how many. Which one is first is the policy's choice, the
 * rest is the batcher's (batcher.h); where that would make another late that is met otherwise, a
 * smaller one is taken. Requests are held on a free device only while nothing else can run
 * harmlessly, and until urgent_ns before somebody would be late by it. -EAGAIN: *wake_ns is when to
 * ask again if nothing arrives, TIME_NEVER: nothing waits. -EINVAL: no room too. */
#define REQUESTS_BATCH_MAX 128U
int cede_requests_next_batch(struct requests *r, uint32_t device, uint64_t now_ns,
                             struct request *out, uint32_t *n, uint64_t *wake_ns);
/* The device is free again. 0, -ENOENT (it ran nothing) or -EINVAL. */
int cede_requests_done(struct requests *r, uint32_t device);
/* A waiting request is forgotten. 0 or -ENOENT. */
int cede_requests_cancel(struct requests *r, uint64_t id);
/* What a device still has to do, waiting and running, by the estimates. */
uint64_t cede_requests_backlog_ns(const struct requests *r, uint32_t device, uint64_t now_ns);

#endif
