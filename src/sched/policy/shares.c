/* Policy "shares": every job gets GPU time in proportion to its weight, classes are ignored: as
 * "priority" with all jobs in one class.
 *
 * All groups stay runnable; the hardware's round-robin over timeslices does the sharing, and gives
 * what a job leaves unused to the others at once. Only gangs that would wait for each other take
 * turns (gang.c). Not good for latency: a request waits for the slices of all the others. */
#include <assert.h>

#include "sched/policy.h"

/* Shorter slices than this lose more than a fifth to switching (about 0.2 ms each on an H200). */
#define SLICE_FLOOR_US 1000U

void policy_share_slices(const struct sched_params *p, struct policy_device *dev, uint32_t base_us,
                         enum job_class class)
{
    uint32_t lightest = WEIGHT_MAX, heaviest = WEIGHT_MIN;
    for_each_member (dev, m) {
        if (m->paused || m->class != class)
            continue;
        lightest = m->weight < lightest ? m->weight : lightest;
        heaviest = m->weight > heaviest ? m->weight : heaviest;
    }
    assert(lightest >= WEIGHT_MIN);
    /* The lightest gets the base slice, unless the heaviest would get more than the longest. */
    bool too_long = (uint64_t)base_us * heaviest > (uint64_t)p->timeslice_max_us * lightest;
    for_each_member (dev, m) {
        if (m->paused || m->class != class)
            continue;
        uint64_t us = too_long ? (uint64_t)p->timeslice_max_us * m->weight / heaviest
                               : (uint64_t)base_us * m->weight / lightest;
        us /= member_width(m);
        m->timeslice_us = (uint32_t)(us < SLICE_FLOOR_US ? SLICE_FLOOR_US : us);
        m->runnable = true;
    }
}

const struct policy policy_shares = {
    .name = "shares",
    .summary = "GPU time in proportion to weight; classes are ignored",
    .turns = true,
    .decide = policy_priority_decide,
};
