/* The order of requests, and a walk through a queue of them: when each would end if all ran in this
 * order from now on, each batch on the lane that is free first. Neighbours of one kind share a
 * batch while that makes none of them late. In a fixed order no batch begins later because another
 * one ends sooner (sorted, the times at which the lanes become free only fall), so a plan that
 * holds by the estimates holds where batches take less. The margin counts once, for the request
 * that is to meet its deadline: those before it rarely all take their longest. Half of it counts
 * for those whose batch it joins, which had all of theirs when they were admitted. */
#ifndef CEDE_LIBCEDE_PURE_REQUEST_PLAN_H
#define CEDE_LIBCEDE_PURE_REQUEST_PLAN_H

#include "libcede/pure/requests.h"
#include "libcede/pure/times.h"

/* At first without a batch, and due_ns and slack_ns TIME_NEVER. */
struct request_plan {
    const struct request *first; /* of the current batch; NULL: there is none yet */
    uint32_t n;                  /* its size */
    uint32_t lane;               /* where it runs */
    uint64_t run_ns;             /* how long it runs */
    uint64_t due_ns;             /* earliest deadline that it meets */
    uint64_t slack_ns;           /* by which all may begin later without missing a deadline more */
    uint32_t lanes;              /* at most CEDE_QUEUE_BATCHES_MAX */
    uint64_t end_ns[CEDE_QUEUE_BATCHES_MAX]; /* of each lane's last batch */
};

static inline bool request_same_kind(const struct request *a, const struct request *b)
{
    return a->model == b->model && a->shape == b->shape;
}

/* How much longer than so long a run of it, or of a batch of its kind, may take. */
static inline uint64_t request_margin_ns(const struct request *q, uint64_t run_ns)
{
    return run_ns / 1000 * q->margin;
}

/* When it is to end by the estimate, so that it meets its deadline with its margin. */
static inline uint64_t request_end_by(const struct request *q)
{
    return q->deadline_ns == TIME_NEVER
               ? TIME_NEVER
               : saturating_sub(q->deadline_ns, request_margin_ns(q, q->run_ns));
}

/* The latest start that meets the deadline; the laxity is the time until then. */
static inline uint64_t request_latest_start(const struct request *q)
{
    return q->deadline_ns == TIME_NEVER
               ? TIME_NEVER
               : saturating_sub(request_end_by(q), saturating_add(q->run_ns, q->after_ns));
}

/* a runs before b. Equal requests keep the order in which they were submitted. */
static inline bool request_before(enum cede_queue_policy policy, const struct request *a,
                                  const struct request *b)
{
    if ((policy == CEDE_QUEUE_PRIORITY || policy == CEDE_QUEUE_LAXITY) && a->class != b->class)
        return a->class < b->class;
    if (policy == CEDE_QUEUE_EDF && a->deadline_ns != b->deadline_ns)
        return a->deadline_ns < b->deadline_ns;
    if (policy == CEDE_QUEUE_LAXITY && request_latest_start(a) != request_latest_start(b))
        return request_latest_start(a) < request_latest_start(b);
    return a->arrival_ns < b->arrival_ns;
}

/* Adds the next request. True: it meets its deadline, whatever is added later. */
bool cede_request_plan_step(struct request_plan *p, const struct request *q);
uint64_t cede_request_plan_slack(const struct request_plan *p);

/* ---- batches --------------------------------------------------------------------------------- */

/* How many of the waiting requests to run as one batch, and when: a decision for one model on one
 * free device. A batch starts when it is full, when the most urgent request that can still meet its
 * deadline has no slack left, or when a request has waited for wait_ns. It is the largest batch
 * that meets that deadline. A more urgent arrival overtakes the waiting requests and may make one
 * of them late. Requests that are late whatever happens fill the rest of a batch and delay no
 * other. */
struct batch_params {
    uint32_t max;             /* requests in a batch; at least 1 */
    uint64_t run_ns, each_ns; /* a batch of n runs for run_ns + (n - 1) each_ns */
    uint64_t wait_ns;         /* a request waits no longer, whatever its slack */
};

struct batch_choice {
    uint32_t n, first; /* these start now, from the first on, all around; n is 0: wait */
    uint64_t wake_ns;  /* until then, if nothing arrives */
};

/* due: in order of deadline. */
struct batch_choice cede_batch_decide(const struct batch_params *p,
                                      const struct request *const *due, uint32_t n,
                                      uint64_t now_ns);

/* n: at least 1. */
uint64_t cede_batch_run_ns(uint64_t run_ns, uint64_t each_ns, uint32_t n);

#endif
