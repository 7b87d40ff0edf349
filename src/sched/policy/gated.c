/* On a gated device (EV_DEVICE), whatever the policy but "static": programs hold their own
 * submissions, what is queued ends first, and it is known at once who wants the device. So who
 * wants it decides, not slices:
 *   - the highest class that wants the device has it; lower classes wait, but only meanwhile;
 *   - latency jobs have it together; of the other classes one job at a time, in turns that are fair
 *     by weight as in "priority";
 *   - the timeslice is what a job may have queued: as little as keeps the device busy where a
 *     latency job (or, for batch jobs, a normal one) may come, more where only turns end by it, any
 *     amount where nobody else is.
 * A holder that wants nothing keeps its turn for a moment, because programs that wait for each
 * result have such gaps; who is next fills them. Not good for a latency job that saturates the
 * device: nobody else gets any of it, and `floor` does not count here. */
#include "sched/policy.h"

#define GRACE_NS 2000000U

static bool wants(const struct member *m)
{
    return !m->paused && !m->idle;
}

static enum job_class class_of(const struct member *m, bool strict)
{
    return strict ? m->class : CLASS_BATCH;
}

static void end_turn(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    struct member *m = &dev->members[dev->holder];
    uint64_t turn = p->rotation_us * 1000ULL;
    uint64_t ns = now_ns > dev->turn_start_ns ? now_ns - dev->turn_start_ns : 0;
    m->vtime += (ns < turn ? ns : turn) * WEIGHT_DEFAULT / m->weight;
    dev->holder = SLOT_NONE;
}

static struct member *next_of(struct policy_device *dev, bool strict, enum job_class class)
{
    struct member *best = NULL;
    for_each_member (dev, m) {
        if (!wants(m) || class_of(m, strict) != class)
            continue;
        if (m->job == dev->hurried)
            return m;
        if (!best || m->vtime < best->vtime)
            best = m;
    }
    return best;
}

/* Who runs now among those of this class: who has the turn, or fills its gap. SLOT_NONE: nobody
 * wants to. */
static uint32_t rotate(const struct sched_params *p, struct policy_device *dev, bool strict,
                       enum job_class class, uint64_t now_ns)
{
    struct member *best = next_of(dev, strict, class);
    uint32_t n = 0, others = 0;
    for_each_member (dev, m) {
        if (!wants(m) || class_of(m, strict) != class)
            continue;
        n++;
        others += m->job != dev->holder;
    }
    if (best && best->job == dev->hurried && dev->holder != best->job && dev->holder != SLOT_NONE) {
        end_turn(p, dev, now_ns);
        best = next_of(dev, strict, class);
    }
    if (dev->holder != SLOT_NONE) {
        uint64_t turn_end = dev->turn_start_ns + p->rotation_us * 1000ULL;
        if (wants(&dev->members[dev->holder]))
            dev->idle_since_ns = TIME_NEVER;
        else if (dev->idle_since_ns == TIME_NEVER)
            dev->idle_since_ns = now_ns;
        uint64_t gap_end =
            dev->idle_since_ns == TIME_NEVER ? TIME_NEVER : dev->idle_since_ns + GRACE_NS;
        uint64_t end = gap_end < turn_end ? gap_end : turn_end;
        if (!others || now_ns < end) {
            dev->wake_ns = others && end < dev->wake_ns ? end : dev->wake_ns;
            return wants(&dev->members[dev->holder]) || !best ? dev->holder : best->job;
        }
        end_turn(p, dev, now_ns);
        best = next_of(dev, strict, class); /* its vtime has grown */
    }
    if (!best)
        return SLOT_NONE;
    policy_begin_turn(dev, best, best->job != dev->hurried, now_ns);
    dev->idle_since_ns = TIME_NEVER;
    uint64_t end = n > 1 ? now_ns + p->rotation_us * 1000ULL : TIME_NEVER;
    dev->wake_ns = end < dev->wake_ns ? end : dev->wake_ns;
    return dev->holder;
}

void policy_gated(const struct sched_params *p, struct policy_device *dev, bool strict,
                  uint64_t now_ns)
{
    uint32_t n[CLASS_COUNT] = {0}, all = 0;
    enum job_class top = CLASS_BATCH;
    for_each_member (dev, m) {
        n[class_of(m, strict)] += !m->paused;
        all += !m->paused;
        if (wants(m) && class_of(m, strict) < top)
            top = class_of(m, strict);
    }
    bool interrupted =
        dev->holder != SLOT_NONE &&
        (dev->members[dev->holder].paused || class_of(&dev->members[dev->holder], strict) != top);
    if (interrupted)
        end_turn(p, dev, now_ns);
    uint32_t runs = top == CLASS_LATENCY ? SLOT_NONE : rotate(p, dev, strict, top, now_ns);
    uint32_t budget = policy_budget(dev);
    for_each_member (dev, m) {
        if (m->paused)
            continue;
        enum job_class class = class_of(m, strict);
        m->runnable = class < top || (class == top && (runs == SLOT_NONE || m->job == runs));
        bool above = (class > CLASS_LATENCY && n[CLASS_LATENCY]) ||
                     (class > CLASS_NORMAL && n[CLASS_NORMAL]);
        if (class == CLASS_LATENCY)
            m->timeslice_us = all > n[CLASS_LATENCY] ? p->timeslice_alone_us : 0;
        else if (above)
            m->timeslice_us = budget > p->timeslice_min_us ? budget : p->timeslice_min_us;
        else
            m->timeslice_us = all == 1 && m->class != CLASS_BATCH ? 0 : p->timeslice_share_us;
    }
}
