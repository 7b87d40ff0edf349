/* How the time of a frame is divided: each job's part, by share between floors and ceilings. Inside
 * of limits.c, which has the frames. */
#ifndef CEDE_SCHED_LIMIT_PARTS_H
#define CEDE_SCHED_LIMIT_PARTS_H

#include "sched/policy.h"

/* Without what a deadline makes of it for now. */
static inline enum job_class limits_class(const struct member *m)
{
    return m->class == CLASS_LATENCY ? m->own_class : m->class;
}

static inline bool limits_takes_part(const struct member *m)
{
    return !m->paused && !m->idle && limits_class(m) != CLASS_LATENCY;
}

static inline double limits_ceiling(const struct limits *l)
{
    return l->max > 0 ? l->max : 1;
}

/* Sets `part` and `most` of the device's members below the latency class, of what is left of a
 * frame. claims: scratch. */
void limit_parts_set(const struct sched_params *p, struct policy_device *dev, struct claim *claims,
                     double left);

#endif
