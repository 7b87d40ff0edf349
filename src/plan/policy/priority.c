/* Policy "priority", and "laxity" (the default) and "edf", which are the same but for jobs with
 * deadlines (boost.h): strict order latency > normal > batch.
 *
 * The highest class present (the top) gets long timeslices and always runs. Of the classes below
 * exactly one job is runnable at a time, at the smallest timeslice, so that work of the top class
 * gets the GPU after one switch; the others are suspended and take turns (turns.h). When only
 * one class is present its jobs share by weight through timeslices, which costs less than turns.
 *
 * Below the top the order is strict too: batch jobs get turns only while no normal job wants the
 * GPU. `floor` > 0 keeps a share for lower classes: between two classes that take turns by class
 * vtime, and against a top class that saturates the GPU by timeslices (floor_us for the lower job,
 * floor_us * (1 - floor) / floor for the top), which lets a request of the top class wait for up to
 * floor_us longer.
 *
 * A latency job with a budget lets the slice below it grow (budget.h), as far as the smallest
 * budget of the latency jobs goes; one without a budget keeps it small.
 *
 * Where latency jobs leave only gaps that are shorter than a switch, the jobs below have the
 * longest slice with which these keep their speed (speed_floor.h).
 *
 * Several latency jobs share by weight; under "laxity" and "edf" those with requests that are due
 * are in order of their slack where that makes a difference (latency_order.h). */
#include "plan/policy.h"
#include "plan/timeslices.h"

/* Whether the slice of lower jobs follows from the speed of the latency jobs: no budget, deadline
 * or floor comes first, and the latency jobs work, as far as is known. */
static bool keeps_speed(const struct sched_params *p, struct policy_device *dev)
{
    bool told = p->floor > 0.0 || dev->boost.job != SLOT_NONE;
    double busy = 0, all = 0;
    for_each_member (dev, m) {
        bool latency = m->class == CLASS_LATENCY && m->present;
        told |= latency && (m->budget_us || m->due.expects);
        busy += latency ? m->company.busy : 0;
        all += m->company.busy;
    }
    dev->speed.busy = all > 0 ? busy : 1;
    return !told && dev->speed.busy >= SPEED_BUSY;
}

static double least_speed(const struct sched_params *p, const struct policy_device *dev)
{
    double least = 0;
    for_each_member (dev, m) {
        double own = m->min_speed > 0 ? m->min_speed : p->latency_speed;
        if (m->class == CLASS_LATENCY && m->present && own > least)
            least = own;
    }
    return least;
}

void policy_priority_decide(const struct sched_params *p, struct policy_device *dev,
                            uint64_t now_ns)
{
    struct rotation *r = &dev->rotation;
    uint32_t n[CLASS_COUNT] = {0}, busy[CLASS_COUNT] = {0};
    for_each_member (dev, m) {
        n[m->class] += m->present;
        busy[m->class] += m->present && !m->idle;
    }
    enum job_class top = n[CLASS_LATENCY]  ? CLASS_LATENCY
                         : n[CLASS_NORMAL] ? CLASS_NORMAL
                                           : CLASS_BATCH;
    bool lower = false;
    for (unsigned c = top + 1U; c < CLASS_COUNT; c++)
        lower |= n[c] > 0;
    timeslices_top(p, dev, top, n[top], lower);

    r->top = top;
    r->from = lower ? top + 1U : CLASS_COUNT;
    r->batch_waits = top == CLASS_LATENCY && busy[CLASS_NORMAL] && rotation_floor(p, dev) == 0.0;
    r->slice_us = top == CLASS_LATENCY && lower
                      ? budget_decide(p, &dev->budget, &dev->seen, policy_budget(dev))
                      : p->timeslice_min_us;
    r->slice_us = timeslices_keep_floor(p, dev, top) ? p->timeslice_floor_us : r->slice_us;
    if (top == CLASS_LATENCY && lower && keeps_speed(p, dev)) {
        struct speed_slice s =
            speed_floor_decide(p, &dev->speed, &dev->runs, least_speed(p, dev), now_ns);
        r->slice_us = s.slice_us;
        r->blocked = s.blocked;
        policy_wake(dev, s.wake_ns);
    } else {
        speed_floor_reset(&dev->speed);
    }
}

const struct policy policy_priority = {
    .name = "priority",
    .summary = "latency before normal before batch; batch jobs take turns",
    .strict = true,
    .decide = policy_priority_decide,
};

const struct policy policy_laxity = {
    .name = "laxity",
    .summary = "as priority, but a job about to miss its deadline overtakes its class",
    .strict = true,
    .deadlines = DEADLINES_LAXITY,
    .decide = policy_priority_decide,
};

const struct policy policy_edf = {
    .name = "edf",
    .summary = "as priority, but within a class the earliest deadline runs first",
    .strict = true,
    .deadlines = DEADLINES_FIRST,
    .decide = policy_priority_decide,
};
