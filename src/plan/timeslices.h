/* Timeslices: how long each group may run at a time. They come from
 *
 *   the top class        its weights, or the longest for a job alone: timeslices_top()
 *   latency jobs         their order, if requests are due: latency_order.h
 *   a job in its turn    the smallest, or a longer one within a budget (budget.h) or the latency
 *                        jobs' floor of speed (speed_floor.h): chosen in policy/priority.c
 *   light jobs beside    the length of their runs: company_slice(), light_jobs.h
 *   floors and ceilings  limits_slices(), limits.h
 *   a gated device       policy/gated.c
 *
 * timeslices_setting() makes of that the setting of one group. */
#ifndef CEDE_PLAN_TIMESLICES_H
#define CEDE_PLAN_TIMESLICES_H

#include "plan/policy.h"

/* Sets long slices for the top class: of one job that has the GPU, or of several that share it. */
void timeslices_top(const struct sched_params *p, struct policy_device *dev, enum job_class top,
                    uint32_t jobs, bool lower);
/* Whether a floor is kept against the top class. Not in a window, because others get their parts in
 * the rest of the frame; nor for jobs that had their windows. */
bool timeslices_keep_floor(const struct sched_params *p, const struct policy_device *dev,
                           enum job_class top);
/* What the plan has for group g, which is the member's. */
struct sched_setting timeslices_setting(const struct sched *c, const struct member *m, uint32_t g);

#endif
