/* Deadline boost: which jobs below the latency class the others have to wait for now. Not a policy:
 * "laxity" and "edf" ask it before they decide as "priority" does, gated devices too. A machine on
 * which no deadline is known is left exactly as "priority" leaves it.
 *
 * A job with a deadline is
 *   urgent when it has less time than it needs and params.urgent_us ("laxity"), or always ("edf");
 *   boosted when it is the most urgent one: it gets the next turn of its class, at once; one job on
 *     a device at a time, the highest priority and then the earliest deadline first (of the first k
 *     the first that can still be met);
 *   promoted ("laxity", and only if it may be) when at this pace it would be late, and with the
 *     whole GPU it would not: it joins the latency class, and the other jobs below that class wait.
 * What it needs is what it was said to need, over the share of time that latency jobs leave.
 * Once urgent it stays so for that deadline, so that it does not go to and fro at the edge. When
 * the deadline has passed it stays urgent for LATE_NS, after those that are not late, because one
 * that is late makes its next ones late; then it is no longer.
 *
 * A gang (rotation.h) is boosted on all its devices or on none: where another job has the boost of
 * one of them, the gang waits, and the rest of its devices may boost somebody else. It is urgent if
 * it is so at the pace of its slowest device, and promoted on all of them or on none.
 *
 * Jobs without a deadline are not starved: others may hold them up for HOLD_NS in a row, and for
 * params.deadline_share of the time in the long run. Turns had while boosted count like others, so
 * a job that was early has to wait for the others when it is not boosted.
 *
 * Not good for deadlines of a few ms: the latency class is for these. */
#ifndef CEDE_SCHED_BOOST_H
#define CEDE_SCHED_BOOST_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/sched.h"

enum deadline_use { DEADLINES_IGNORED, DEADLINES_LAXITY, DEADLINES_FIRST };

/* What is due for a member: the same on all devices of its job. */
struct member_due {
    uint64_t deadline_ns, left_ns; /* of a request that is open; TIME_NEVER: none */
    int priority;
    bool may_promote, expects;         /* EV_DEADLINE's may_promote and on */
    bool urgent;                       /* now */
    uint64_t urgent_for, promoted_for; /* deadlines; 0: none */
};

/* The boost of a device. Invariants: job is SLOT_NONE or a member below the latency class in its
 * own right, and then the same on all devices of a gang; promoted only with a job, and only where
 * there is a latency job; debt is 0 or more, and grows only while holds_up. */
struct boost {
    uint32_t job;   /* the boosted one; SLOT_NONE: none */
    bool promoted;  /* it joined the latency class */
    bool holds_up;  /* others wait for it */
    bool exhausted; /* they have waited enough for now */
    double debt;    /* of those who were boosted to those who waited, ns */
    uint64_t accounted_ns;
    double upper, upper_seen; /* share of time that latency jobs take; seen < 0: not known */

    enum job_class top; /* of this decision: the highest class present; CLASS_COUNT: none */
    uint32_t below;     /* jobs that may be held up */
    bool known;         /* some job here has a deadline */
};

struct machine;
struct policy_device;

void boost_init(struct boost *b);
/* EV_ACTIVITY: what latency jobs took. */
void boost_observe(struct boost *b, const struct sched_event *ev);
/* Before deciding: sets the class of every member and the boost of every device, and wakes in time.
 */
void boost_decide(const struct machine *mc, enum deadline_use use);

#endif
