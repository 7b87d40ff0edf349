/* Deadline boost: decides for which jobs below the latency class others have to wait. It is not a
 * policy: "laxity" and "edf" ask it before they decide as "priority" does, on gated devices too.
 * Without a known deadline the result is exactly that of "priority".
 *
 * A job with a deadline is
 *   urgent when it has less time than it needs and params.urgent_us ("laxity"), or always ("edf");
 *   boosted when it is the most urgent one: it gets the next turn of its class, at once. A device
 *     boosts one job at a time, that with the highest priority and then the earliest deadline (of
 *     the first k deadlines the first that can still be met);
 *   promoted ("laxity", and only if it may be) when it would be late at this pace, but not with the
 *     whole GPU: it joins the latency class, and the other jobs below that class wait.
 * The time that it needs is what was stated, divided by the share of time that latency jobs leave.
 * An urgent job stays so until its deadline, so that it does not oscillate, and for LATE_NS after
 * it, but then behind jobs that are not late, because lateness delays the job's next deadlines.
 *
 * A gang (turns.h) is boosted on all its devices or on none: where one of them boosts another
 * job, the gang waits, and its other devices may boost another job. It is urgent if it is so at the
 * pace of its slowest device, and promoted on all of them or on none.
 *
 * Jobs without a deadline are not starved: they wait for DELAY_NS in a row, and for
 * params.deadline_share of the time in the long run, at most. Turns of a boosted job count like
 * others, so that it waits longer when it is not boosted.
 *
 * Not good for deadlines of a few ms, for which there is the latency class. */
#ifndef CEDE_PLAN_BOOST_H
#define CEDE_PLAN_BOOST_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/sched.h"

enum deadline_use { DEADLINES_IGNORED, DEADLINES_LAXITY, DEADLINES_FIRST };

/* A member's deadline, the same on all devices of its job. */
struct member_due {
    uint64_t deadline_ns, left_ns; /* of the open request; TIME_NEVER: none */
    int priority;
    bool may_promote, expects;         /* EV_DEADLINE's may_promote and on */
    bool urgent, joins_latency;        /* in this decision */
    uint64_t urgent_for, promoted_for; /* the deadlines for which it is or was; 0: none */
};

/* The boost of a device. Invariants: job is SLOT_NONE or a member whose own class is below the
 * latency class, and the same on all devices of a gang; promoted only with a job, and only where
 * there is a latency job; debt is 0 or more, and grows only while delays. */
struct boost {
    uint32_t job;   /* the boosted job; SLOT_NONE: none */
    bool promoted;  /* it joined the latency class */
    bool delays;    /* others wait for it */
    bool exhausted; /* others have waited enough for now */
    double debt;    /* of boosted jobs to those that waited, ns */
    uint64_t charged_ns;
    double upper, upper_seen; /* share of time that latency jobs take; seen < 0: not known */

    enum job_class top; /* of this decision: the highest class present; CLASS_COUNT: none */
    uint32_t below;     /* number of jobs that may have to wait */
    bool known;         /* a job here has a deadline */
};

struct machine;
struct policy_device;

void boost_init(struct boost *b);
/* Takes the share of latency jobs from EV_ACTIVITY. */
void boost_observe(struct boost *b, const struct sched_event *ev);
/* Called before the policy: decides which jobs join the latency class, and the boost of every
 * device, and when to decide again. */
void boost_decide(const struct machine *mc, enum deadline_use use);

#endif
