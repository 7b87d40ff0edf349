/* Timeslices by weight, for jobs that share a device without turns. Decides nothing else. */
#include <assert.h>

#include "sched/policy.h"

/* Shorter slices than this lose more than a fifth to switching (about 0.2 ms each on an H200). */
#define SLICE_FLOOR_US 1000U

#define GANG_SCALE 720720U /* divisible by the width of any gang of up to 16 GPUs */

/* GPU time counts over all GPUs of a gang: on each of them it gets so much less. */
static uint64_t slice_weight(const struct member *m)
{
    return (uint64_t)m->weight * GANG_SCALE / (m->gang ? m->gang : 1);
}

void policy_share_slices(const struct sched_params *p, struct policy_device *dev, uint32_t base_us,
                         enum job_class class)
{
    uint64_t lightest = UINT64_MAX, heaviest = 1;
    for_each_member (dev, m) {
        if (m->paused || m->class != class)
            continue;
        uint64_t weight = slice_weight(m);
        lightest = weight < lightest ? weight : lightest;
        heaviest = weight > heaviest ? weight : heaviest;
    }
    assert(lightest > 0);
    /* The lightest gets the base slice, unless the heaviest would get more than the longest. */
    bool too_long = lightest != UINT64_MAX && base_us * heaviest > p->timeslice_max_us * lightest;
    for_each_member (dev, m) {
        if (m->paused || m->class != class)
            continue;
        uint64_t us = too_long ? p->timeslice_max_us * slice_weight(m) / heaviest
                               : base_us * slice_weight(m) / lightest;
        us /= member_width(m);
        m->timeslice_us = (uint32_t)(us < SLICE_FLOOR_US ? SLICE_FLOOR_US : us);
        m->runnable = true;
    }
}
