/* Throttling of lower jobs beside a busy latency job: they run only part of the time where what
 * they get is not worth what it costs the latency job. Pure arithmetic over one device. */
#ifndef CEDE_SCHED_THROTTLE_H
#define CEDE_SCHED_THROTTLE_H

#include "sched/budget.h"

/* Invariants: until_ns is 0 unless may is true (of the last decision). While until_ns is set
 * nothing is observed: what is seen then is of the throttled device. */
struct throttle {
    bool may;          /* lower jobs would be throttled if latency jobs had most of the GPU */
    uint64_t until_ns; /* lower jobs are throttled until then; 0: they are not */
    uint64_t ended_ns; /* when they last were */
    double blind_s;    /* so much of what is reported next is still of the throttled time */
};

/* EV_ACTIVITY: whether it may be observed (observed_add). */
bool throttle_observes(struct throttle *t, double window_s);
/* Whether the lower jobs are throttled from now on; t->may was set by the caller. */
bool throttle_decide(const struct sched_params *p, struct throttle *t, struct observed *seen,
                     uint64_t now_ns);

#endif
