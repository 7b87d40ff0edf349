/* Timeslices by weight, for jobs that share a device without turns. */
#include <math.h>

#include "plan/policy.h"

/* Shorter slices than this lose more than a fifth to switching (about 0.2 ms each on an H200). */
#define SLICE_FLOOR_US 1000U

/* A gang's GPU time counts on all its GPUs, so that it gets less on each of them. */
static double slice_weight(const struct member *m)
{
    return m->share / (m->gang ? m->gang : 1);
}

void policy_share_slices(const struct sched_params *p, struct policy_device *dev, uint32_t base_us,
                         enum job_class class)
{
    double lightest = INFINITY, heaviest = 0;
    for_each_member (dev, m) {
        if (!m->present || m->class != class)
            continue;
        lightest = fmin(lightest, slice_weight(m));
        heaviest = fmax(heaviest, slice_weight(m));
    }
    /* The lightest gets the base slice, unless the heaviest would get more than the longest. */
    double unit = fmin(base_us / lightest, p->timeslice_max_us / heaviest);
    for_each_member (dev, m) {
        if (!m->present || m->class != class)
            continue;
        double us = unit * slice_weight(m) / member_width(m);
        m->timeslice_us = us < SLICE_FLOOR_US ? SLICE_FLOOR_US : (uint32_t)(us + 0.001);
        m->runnable = true;
    }
}
