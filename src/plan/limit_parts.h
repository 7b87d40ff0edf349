/* Divides the time of a frame: each job's part, by share between floors and ceilings. Used by
 * limits.c, which has the frames. */
#ifndef CEDE_PLAN_LIMIT_PARTS_H
#define CEDE_PLAN_LIMIT_PARTS_H

#include "plan/policy.h"

/* The job's class, without a promotion for a deadline. */
static inline enum job_class limits_class(const struct member *m)
{
    return m->class == CLASS_LATENCY ? m->own_class : m->class;
}

/* Whether the job is present, by the limits that were decided so far. */
static inline bool limits_present(const struct member *m)
{
    return m->present && m->limit.verdict != LIMIT_OUT;
}

static inline bool limits_takes_part(const struct member *m)
{
    return limits_present(m) && !m->idle && limits_class(m) != CLASS_LATENCY;
}

static inline double limits_ceiling(const struct limits *l)
{
    return l->max > 0 ? l->max : 1;
}

/* Sets `part` and `most` of the device's members below the latency class. left: part of the frame
 * to divide; claims: scratch. */
void limit_parts_set(const struct sched_params *p, struct policy_device *dev, struct claim *claims,
                     double left);

#endif
