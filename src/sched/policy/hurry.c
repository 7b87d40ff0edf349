/* Deadlines beside classes: whom of the jobs below the latency class the others have to wait for
 * now. Not a policy: "laxity" and "edf" ask it before they decide as "priority" does, gated devices
 * too. A device on which no deadline is known is left exactly as "priority" leaves it.
 *
 * A job with a deadline is
 *   in a hurry when it has less time than it needs and params.urgent_us ("laxity"), or always
 *     ("edf"): it goes before the others of its class, one at a time, the highest priority and then
 *     the earliest deadline first (of the first k the first that can still be met);
 *   risen ("laxity", and only if it may) when at this pace it would be late, and with the whole
 *     GPU it would not: it runs as latency work, and the other jobs below the latency class wait.
 * What it needs is what it was said to need, over the share of time that latency jobs leave.
 * Once in a hurry it stays so for that deadline, so that it does not go to and fro at the edge.
 * When the deadline has passed it hurries on for LATE_NS, after those that are not late, because
 * one that is late makes its next ones late; then nobody does for it any more.
 *
 * Those without a deadline are not starved: others may hold them up for HOLD_NS in a row, and for
 * params.deadline_share of the time in the long run. Turns had in a hurry count like others, so a
 * job that was early has to wait for the others when it is not in a hurry.
 *
 * Not good for deadlines of a few ms: the latency class is for these. */
#include "sched/policy.h"

#define HOLD_NS       5000000000.0 /* with nobody held up before */
#define LATE_NS       5000000000U
#define UPPER_UNKNOWN 0.5 /* of the time: a guess, for drivers that do not tell */
#define UPPER_MAX     0.95

/* How long that takes beside the latency jobs. */
static uint64_t pace(const struct policy_device *dev, uint64_t left_ns)
{
    double left = (double)left_ns / (1.0 - dev->upper);
    return left < 1e18 ? (uint64_t)left : (uint64_t)1e18;
}

static uint64_t before(uint64_t deadline_ns, uint64_t ns)
{
    return deadline_ns > ns ? deadline_ns - ns : 0;
}

static void wake_at(struct policy_device *dev, uint64_t now_ns, uint64_t ns)
{
    if (ns > now_ns && ns < dev->wake_ns)
        dev->wake_ns = ns;
}

/* The debt of those who hurried to those who waited: it stays where it is when the former have
 * deadline_share of the time. */
static void account(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    double dt = now_ns > dev->hurry_seen_ns ? (double)(now_ns - dev->hurry_seen_ns) : 0;
    double most = HOLD_NS * (1 - p->deadline_share);
    double turn = p->rotation_us * 1000.0 * p->deadline_share;
    double enough = most > turn ? most - turn : 0;
    if (dev->hurry_seen_ns)
        dev->hurry_debt +=
            dt * (dev->holds_up ? 1 - p->deadline_share : -(double)p->deadline_share);
    dev->hurry_debt = dev->hurry_debt < 0 ? 0 : dev->hurry_debt;
    if (dev->hurry_debt >= most * (1 - 1e-9))
        dev->hurry_over = true;
    else if (dev->hurry_debt <= enough + 1)
        dev->hurry_over = false;
    dev->hurry_seen_ns = now_ns;
}

static void account_wake(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    double most = HOLD_NS * (1 - p->deadline_share);
    double turn = p->rotation_us * 1000.0 * p->deadline_share;
    double enough = most > turn ? most - turn : 0;
    if (dev->holds_up)
        wake_at(dev, now_ns,
                now_ns + 1 + (uint64_t)((most - dev->hurry_debt) / (1 - p->deadline_share)));
    else if (dev->hurry_over)
        wake_at(dev, now_ns,
                now_ns + 1 + (uint64_t)((dev->hurry_debt - enough) / p->deadline_share));
}

static bool has_deadline(const struct member *m, uint64_t now_ns)
{
    return !m->paused && !m->idle && m->own_class != CLASS_LATENCY &&
           m->deadline_ns != TIME_NEVER && before(now_ns, m->deadline_ns) < LATE_NS;
}

static bool in_hurry(const struct sched_params *p, struct policy_device *dev, struct member *m,
                     enum deadline_use use, uint64_t now_ns)
{
    if (!has_deadline(m, now_ns))
        return false;
    if (use == DEADLINES_FIRST || m->hurried_for == m->deadline_ns)
        return true;
    uint64_t at = before(m->deadline_ns, pace(dev, m->left_ns) + p->urgent_us * 1000ULL);
    if (at > now_ns) {
        wake_at(dev, now_ns, at);
        return false;
    }
    m->hurried_for = m->deadline_ns;
    return true;
}

/* Higher class first, then who is not late, who matters more, the earlier deadline, the lower slot:
 * a strict order. */
static bool earlier(const struct member *a, const struct member *b, uint64_t now_ns)
{
    bool a_late = a->deadline_ns <= now_ns, b_late = b->deadline_ns <= now_ns;
    if (a->own_class != b->own_class)
        return a->own_class < b->own_class;
    if (a_late != b_late)
        return b_late;
    if (a->priority != b->priority)
        return a->priority > b->priority;
    return a->deadline_ns != b->deadline_ns ? a->deadline_ns < b->deadline_ns : a->job < b->job;
}

static struct member *pick(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    struct member *first = NULL, *last = NULL;
    for (uint32_t k = 0; k < p->edf_k; k++) {
        struct member *next = NULL;
        for_each_member (dev, m) {
            if (m->in_hurry && (!last || earlier(last, m, now_ns)) &&
                (!next || earlier(m, next, now_ns)))
                next = m;
        }
        if (!next || (first && next->own_class != first->own_class))
            break;
        first = first ? first : next;
        uint64_t left = next->left_ns == TIME_NEVER ? 0 : next->left_ns;
        if (before(next->deadline_ns, left) >= now_ns)
            return next;
        last = next;
    }
    return first;
}

void policy_hurry(const struct sched_params *p, struct policy_device *dev, enum deadline_use use,
                  uint64_t now_ns)
{
    enum job_class top = CLASS_COUNT;
    uint32_t below = 0; /* that may be held up */
    bool any = false;
    for_each_member (dev, m) {
        m->class = m->own_class;
        m->in_hurry = false;
        m->watched = m->attends && m->idle && !m->paused && use != DEADLINES_IGNORED &&
                     p->deadline_share > 0;
        any |= m->deadline_ns != TIME_NEVER;
        if (m->paused)
            continue;
        top = m->own_class < top ? m->own_class : top;
        below += m->own_class != CLASS_LATENCY && !m->idle;
    }
    account(p, dev, now_ns);
    dev->hurried = SLOT_NONE;
    dev->risen = dev->holds_up = false;
    dev->upper = top != CLASS_LATENCY ? 0 : dev->upper_seen < 0 ? UPPER_UNKNOWN : dev->upper_seen;
    dev->upper = dev->upper < UPPER_MAX ? dev->upper : UPPER_MAX;
    if (!any || use == DEADLINES_IGNORED || p->deadline_share <= 0)
        return;
    for_each_member (dev, m)
        m->in_hurry = in_hurry(p, dev, m, use, now_ns);
    struct member *m = pick(p, dev, now_ns);
    if (m && !dev->hurry_over) {
        uint64_t late_from = before(m->deadline_ns, pace(dev, m->left_ns));
        if (use == DEADLINES_LAXITY && m->may_rise && m->left_ns != TIME_NEVER &&
            top == CLASS_LATENCY) {
            if (late_from > now_ns)
                wake_at(dev, now_ns, late_from);
            else if (before(m->deadline_ns, m->left_ns) >= now_ns)
                m->risen_for = m->deadline_ns;
        }
        dev->risen = m->risen_for == m->deadline_ns && m->may_rise && top == CLASS_LATENCY &&
                     m->deadline_ns > now_ns;
        dev->hurried = m->job;
        dev->holds_up = below > 1 || dev->risen;
        wake_at(dev, now_ns, m->deadline_ns);
        if (m->deadline_ns <= now_ns)
            wake_at(dev, now_ns, m->deadline_ns + LATE_NS);
        /* Nobody is above it: then it has the GPU as a latency job has it, and its like fill the
         * gaps. */
        if (dev->risen || (top == m->own_class && below > 1))
            m->class = CLASS_LATENCY;
    }
    account_wake(p, dev, now_ns);
}
