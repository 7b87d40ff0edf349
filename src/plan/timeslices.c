/* See timeslices.h. */
#include "plan/timeslices.h"

#include <math.h>

#include "plan/sched_impl.h"

/* Shorter slices than this lose more than a fifth to switching (about 0.2 ms each on an H200). */
#define SLICE_FLOOR_US 1000U
/* Divisor of the slice of a limited job that goes on after its window. */
#define IN_GAPS 100

/* A gang's GPU time counts on all its GPUs, so that it gets less on each of them. */
static double slice_weight(const struct member *m)
{
    return m->share / (m->gang ? m->gang : 1);
}

/* Makes the members of this class runnable, with timeslices in proportion to their weights: base_us
 * for the lightest, divided among a member's contexts. */
static void share_slices(const struct sched_params *p, struct policy_device *dev, uint32_t base_us,
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

bool timeslices_keep_floor(const struct sched_params *p, const struct policy_device *dev,
                           enum job_class top)
{
    bool lower = false;
    for_each_member (dev, m)
        lower |= m->present && m->class > top && !m->limit.in_gaps;
    return lower && p->floor > 0.0 && (dev->window == SLOT_NONE || dev->window_beside);
}

void timeslices_top(const struct sched_params *p, struct policy_device *dev, enum job_class top,
                    uint32_t jobs, bool lower)
{
    uint32_t width = 0;
    for_each_member (dev, m)
        width += m->present && m->class == top ? member_width(m) : 0;
    share_slices(p, dev, top == CLASS_LATENCY ? p->timeslice_latency_us : p->timeslice_share_us,
                 top);
    bool alone = width == 1 && (lower || top == CLASS_LATENCY);
    bool untouched = jobs == 1 && top != CLASS_LATENCY && !lower;
    /* With a floor, slices are short enough to leave the lower job its share. */
    double most = timeslices_keep_floor(p, dev, top)
                      ? p->timeslice_floor_us * (1.0 - p->floor) / p->floor / width
                      : UINT32_MAX;
    most = most < p->timeslice_min_us ? p->timeslice_min_us : most;
    for_each_member (dev, m) {
        if (!m->present || m->class != top)
            continue;
        m->timeslice_us = alone ? p->timeslice_alone_us : untouched ? 0 : m->timeslice_us;
        if (m->timeslice_us > most)
            m->timeslice_us = (uint32_t)most;
        if (m->limit.in_gaps && m->timeslice_us > p->timeslice_share_us / IN_GAPS)
            m->timeslice_us = p->timeslice_share_us / IN_GAPS;
    }
    if (top == CLASS_LATENCY)
        slack_slices(p, dev, lower);
}

struct sched_setting timeslices_setting(const struct sched *c, const struct member *m, uint32_t g)
{
    const struct group *x = &c->groups[g];
    uint32_t beside_us = m->serialize_contexts && x->computes ? company_slice(c, x) : 0;
    bool waits = m->serialize_contexts && x->computes && g != m->turn_group && !beside_us;
    bool apart = c->params.copies_apart && m->serialize_contexts && !c->groups[g].computes;
    bool other = m->compute_us && (c->groups[g].computes || !m->ncompute);
    uint32_t us = other ? m->compute_us : m->timeslice_us;
    us = beside_us > us ? beside_us : us;
    return (struct sched_setting){.group = g,
                                  .timeslice_us = apart ? 0 : us,
                                  .runnable = apart ? m->present : m->runnable && !waits};
}
