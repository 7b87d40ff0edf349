/* Policy "static": what can be done once, without a timer and with nobody left to undo it. The
 * direct forms of `cede set` and `cede pause` use it.
 *
 * Nothing is suspended but paused jobs. A latency job's budget is used up in full, since nobody
 * looks how often it works. A lone batch job gets the smallest timeslice; several would thrash each
 * other there (two at 1 us made no progress, H200), and taking turns needs a daemon, so they keep
 * the driver's default. */
#include "sched/policy.h"

static void decide(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    (void)now_ns;
    uint32_t batch = 0;
    for_each_member (dev, m)
        batch += !m->paused && m->class == CLASS_BATCH ? member_width(m) : 0;
    uint32_t batch_us = budget_slice_us(p, policy_budget(dev), NULL);
    for_each_member (dev, m) {
        if (m->paused)
            continue;
        m->runnable = true;
        if (m->class == CLASS_LATENCY)
            m->timeslice_us = p->timeslice_latency_us;
        else if (m->class == CLASS_BATCH && batch == 1)
            m->timeslice_us = batch_us;
        else
            m->timeslice_us = 0;
    }
}

const struct policy policy_static = {
    .name = "static",
    .summary = "fixed timeslices by class, nothing suspended; what works without a daemon",
    .strict = true,
    .decide = decide,
};
