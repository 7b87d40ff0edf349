/* Decides a gated device (EV_DEVICE) under any policy. There programs delay their own submissions,
 * queued work ends first, and it is known at once which jobs want the device. So wants decide, not
 * slices:
 *   - the highest class that wants the device has it; lower classes wait meanwhile;
 *   - latency jobs have it together; of the other classes one job at a time has it, in turns that
 *     are fair by weight as in "priority";
 *   - the timeslice is the work that a job may have queued: as little as keeps the device busy
 * where a latency job (or, for batch jobs, a normal one) may come, more where it only delays the
 * end of a turn, any amount where there is no other job. A job that wants nothing keeps its turn
 * for a moment, because programs that wait for each result have such gaps, which the next job
 * fills. Not good for a latency job that saturates the device: no other job gets any of it, and
 * `floor` does not count here. */
#include "plan/policy.h"

#define GRACE_NS 2000000U

static bool wants(const struct member *m)
{
    return m->present && !m->idle && m->limit.verdict == LIMIT_NONE;
}

static struct member *next_of(struct policy_device *dev, enum job_class class)
{
    struct member *best = NULL;
    for_each_member (dev, m) {
        if (!wants(m) || m->class != class)
            continue;
        if (m->job == dev->boost.job && account_may_lead(dev, m))
            return m;
        if (!best || account_before(dev, m, best))
            best = m;
    }
    return best;
}

/* The job of this class that runs: the one that has its turn, or the one that fills its gap.
 * SLOT_NONE: none wants to. */
static uint32_t gated_turn(const struct sched_params *p, struct policy_device *dev,
                           enum job_class class, uint64_t now_ns)
{
    struct rotation *r = &dev->rotation;
    struct member *best = next_of(dev, class);
    uint32_t n = 0, others = 0;
    for_each_member (dev, m) {
        if (!wants(m) || m->class != class)
            continue;
        n++;
        others += m->job != r->current;
    }
    if (best && best->job == dev->boost.job && r->current != best->job && r->current != SLOT_NONE) {
        rotation_end(p, dev, now_ns);
        best = next_of(dev, class);
    }
    if (r->current != SLOT_NONE) {
        uint64_t turn_end = r->turn_ns + p->rotation_us * 1000ULL;
        if (wants(&dev->members[r->current]))
            r->idle_since_ns = TIME_NEVER;
        else if (r->idle_since_ns == TIME_NEVER)
            r->idle_since_ns = now_ns;
        uint64_t gap_end =
            r->idle_since_ns == TIME_NEVER ? TIME_NEVER : r->idle_since_ns + GRACE_NS;
        uint64_t end = gap_end < turn_end ? gap_end : turn_end;
        if (!others || now_ns < end) {
            policy_wake(dev, others ? end : TIME_NEVER);
            return wants(&dev->members[r->current]) || !best ? r->current : best->job;
        }
        rotation_end(p, dev, now_ns);
        best = next_of(dev, class); /* its vtime has grown */
    }
    if (!best)
        return SLOT_NONE;
    rotation_begin(dev, best, best->job == dev->boost.job, now_ns);
    r->idle_since_ns = TIME_NEVER;
    uint64_t end = n > 1 ? now_ns + p->rotation_us * 1000ULL : TIME_NEVER;
    policy_wake(dev, end);
    return r->current;
}

void policy_gated(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    struct rotation *r = &dev->rotation;
    uint32_t n[CLASS_COUNT] = {0}, all = 0;
    enum job_class top = CLASS_BATCH;
    for_each_member (dev, m) {
        n[m->class] += m->present;
        all += m->present;
        if (wants(m) && m->class < top)
            top = m->class;
    }
    bool interrupted = r->current != SLOT_NONE &&
                       (!dev->members[r->current].present || dev->members[r->current].class != top);
    if (interrupted)
        rotation_end(p, dev, now_ns);
    uint32_t runs = top == CLASS_LATENCY ? SLOT_NONE : gated_turn(p, dev, top, now_ns);
    uint32_t budget = policy_budget(dev);
    for_each_member (dev, m) {
        if (!m->present)
            continue;
        enum job_class class = m->class;
        m->runnable = class < top || (class == top && (runs == SLOT_NONE || m->job == runs));
        bool above = (class > CLASS_LATENCY && n[CLASS_LATENCY]) ||
                     (class > CLASS_NORMAL && n[CLASS_NORMAL]);
        if (class == CLASS_LATENCY)
            m->timeslice_us = all > n[CLASS_LATENCY] ? p->timeslice_alone_us : 0;
        else if (above)
            m->timeslice_us = budget > p->timeslice_min_us ? budget : p->timeslice_min_us;
        else
            m->timeslice_us = all == 1 && m->own_class != CLASS_BATCH ? 0 : p->timeslice_share_us;
    }
}
