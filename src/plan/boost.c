/* See boost.h. */
#include "plan/policy.h"

#define DELAY_NS      5000000000.0 /* if there was no debt before */
#define LATE_NS       5000000000U
#define UPPER_UNKNOWN 0.5 /* share of the time, a guess for drivers that do not report it */
#define UPPER_MAX     0.95
#define UPPER_S       2.0 /* time constant of the mean: some periods of a job with deadlines */

void boost_init(struct boost *b)
{
    b->job = SLOT_NONE;
    b->upper_seen = -1;
}

void boost_observe(struct boost *b, const struct sched_event *ev)
{
    double share = (double)ev->busy_ns / (double)ev->window_ns;
    double w = (double)ev->window_ns * 1e-9 / UPPER_S;
    b->upper_seen = b->upper_seen < 0 ? share : b->upper_seen + (share - b->upper_seen) * w;
}

/* The time that this takes while latency jobs run. */
static uint64_t pace(const struct boost *b, uint64_t left_ns)
{
    return policy_after(0, (double)left_ns / (1.0 - b->upper));
}

static uint64_t boost_before(uint64_t deadline_ns, uint64_t ns)
{
    return deadline_ns > ns ? deadline_ns - ns : 0;
}

static void wake_at(struct policy_device *dev, uint64_t now_ns, uint64_t ns)
{
    if (ns > now_ns)
        policy_wake(dev, ns);
}

/* The debt at which boosting stops, and the one at which it begins again. */
static double debt_most(const struct sched_params *p)
{
    return DELAY_NS * (1 - p->deadline_share);
}

static double debt_enough(const struct sched_params *p)
{
    double most = debt_most(p), turn = p->rotation_us * 1000.0 * p->deadline_share;
    return most > turn ? most - turn : 0;
}

/* The debt is constant in the mean when boosted jobs have deadline_share of the time. */
static void charge_debt(const struct sched_params *p, struct boost *b, uint64_t now_ns)
{
    double dt = now_ns > b->charged_ns ? (double)(now_ns - b->charged_ns) : 0;
    if (b->charged_ns)
        b->debt += dt * (b->delays ? 1 - p->deadline_share : -p->deadline_share);
    b->debt = b->debt < 0 ? 0 : b->debt;
    if (b->debt >= debt_most(p) * (1 - 1e-9))
        b->exhausted = true;
    else if (b->debt <= debt_enough(p) + 1)
        b->exhausted = false;
    b->charged_ns = now_ns;
}

static void debt_wake(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    const struct boost *b = &dev->boost;
    if (b->delays)
        wake_at(dev, now_ns,
                policy_after(now_ns + 1, (debt_most(p) - b->debt) / (1 - p->deadline_share)));
    else if (b->exhausted)
        wake_at(dev, now_ns,
                policy_after(now_ns + 1, (b->debt - debt_enough(p)) / p->deadline_share));
}

static bool has_deadline(const struct member *m, uint64_t now_ns)
{
    return m->present && !m->idle && m->own_class != CLASS_LATENCY &&
           m->due.deadline_ns != TIME_NEVER && boost_before(now_ns, m->due.deadline_ns) < LATE_NS;
}

static bool is_urgent(const struct sched_params *p, struct policy_device *dev,
                      const struct member *m, enum deadline_use use, uint64_t now_ns)
{
    if (!has_deadline(m, now_ns))
        return false;
    if (use == DEADLINES_FIRST || m->due.urgent_for == m->due.deadline_ns)
        return true;
    uint64_t at = boost_before(m->due.deadline_ns,
                               pace(&dev->boost, m->due.left_ns) + p->urgent_us * 1000ULL);
    wake_at(dev, now_ns, at);
    return at <= now_ns;
}

/* A gang that is urgent on one device is urgent on all. */
static void mark_urgent(const struct machine *mc, struct policy_device *own, struct member *m,
                        enum deadline_use use)
{
    if (!is_urgent(mc->params, own, m, use, mc->now_ns))
        return;
    for_each_device_of (mc, own, m, dev) {
        struct member_due *due = &dev->members[m->job].due;
        due->urgent = true;
        if (use != DEADLINES_FIRST)
            due->urgent_for = due->deadline_ns;
    }
}

/* A strict order: by class, then jobs that are not late, then by priority, deadline and slot. */
static bool earlier(const struct member *a, const struct member *b, uint64_t now_ns)
{
    bool a_late = a->due.deadline_ns <= now_ns, b_late = b->due.deadline_ns <= now_ns;
    if (a->own_class != b->own_class)
        return a->own_class < b->own_class;
    if (a_late != b_late)
        return b_late;
    if (a->due.priority != b->due.priority)
        return a->due.priority > b->due.priority;
    return a->due.deadline_ns != b->due.deadline_ns ? a->due.deadline_ns < b->due.deadline_ns
                                                    : a->job < b->job;
}

/* The job that this device would boost; NULL: none. */
static struct member *pick(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    struct member *first = NULL, *last = NULL;
    for (uint32_t k = 0; k < p->edf_k; k++) {
        struct member *next = NULL;
        for_each_member (dev, m) {
            if (m->due.urgent && (!last || earlier(last, m, now_ns)) &&
                (!next || earlier(m, next, now_ns)))
                next = m;
        }
        if (!next || (first && next->own_class != first->own_class))
            break;
        first = first ? first : next;
        uint64_t left = next->due.left_ns == TIME_NEVER ? 0 : next->due.left_ns;
        if (boost_before(next->due.deadline_ns, left) >= now_ns)
            return next;
        last = next;
    }
    return first;
}

/* Whether the job would be late at this pace on a device with latency jobs, but not with the whole
 * GPU. */
static bool needs_promotion(struct policy_device *dev, const struct member *m, uint64_t now_ns)
{
    const struct member_due *due = &m->due;
    uint64_t late_from = boost_before(due->deadline_ns, pace(&dev->boost, due->left_ns));
    if (!due->may_promote || due->left_ns == TIME_NEVER || dev->boost.top != CLASS_LATENCY)
        return false;
    wake_at(dev, now_ns, late_from);
    return late_from <= now_ns && boost_before(due->deadline_ns, due->left_ns) >= now_ns;
}

/* Boosts a job on all its devices. Without a higher class on any of them it joins the latency class
 * too, so that it has the GPU as a latency job has it, and its peers fill the gaps. */
static void grant(const struct machine *mc, struct policy_device *own, struct member *m,
                  enum deadline_use use)
{
    bool promote = false, on_top = true, latency = false;
    for_each_device_of (mc, own, m, dev) {
        promote |= use == DEADLINES_LAXITY && needs_promotion(dev, m, mc->now_ns);
        on_top &= dev->boost.top == m->own_class && dev->boost.below > 1 && !account_shared(dev, m);
        latency |= dev->boost.top == CLASS_LATENCY;
    }
    if (promote)
        m->due.promoted_for = m->due.deadline_ns;
    bool promoted = latency && m->due.promoted_for == m->due.deadline_ns && m->due.may_promote &&
                    m->due.deadline_ns > mc->now_ns;
    for_each_device_of (mc, own, m, dev) {
        struct boost *b = &dev->boost;
        struct member *x = &dev->members[m->job];
        x->due.promoted_for = m->due.promoted_for;
        b->job = m->job;
        b->promoted = promoted && b->top == CLASS_LATENCY;
        b->delays = b->below > 1 || b->promoted;
        x->due.joins_latency = promoted || on_top;
        wake_at(dev, mc->now_ns, m->due.deadline_ns);
        if (m->due.deadline_ns <= mc->now_ns)
            wake_at(dev, mc->now_ns, m->due.deadline_ns + LATE_NS);
    }
}

static bool grantable(const struct machine *mc, struct policy_device *own, const struct member *m)
{
    for_each_device_of (mc, own, m, dev) {
        if (dev->boost.job != SLOT_NONE || dev->boost.exhausted)
            return false;
    }
    return true;
}

static void boost_refuse(const struct machine *mc, struct policy_device *own,
                         const struct member *m)
{
    for_each_device_of (mc, own, m, dev)
        dev->members[m->job].due.urgent = false;
}

/* Boosts jobs, the most urgent one first, as long as there is one and a device that boosts none:
 * each round grants or refuses one. */
static void grant_all(const struct machine *mc, enum deadline_use use)
{
    for (;;) {
        struct policy_device *at = NULL;
        struct member *best = NULL;
        for_each (dev, mc->devices, mc->n) {
            if (dev->boost.job != SLOT_NONE || dev->boost.exhausted)
                continue;
            struct member *m = pick(mc->params, dev, mc->now_ns);
            if (!m || (best && !earlier(m, best, mc->now_ns)))
                continue;
            best = m;
            at = dev;
        }
        if (!best)
            return;
        if (grantable(mc, at, best))
            grant(mc, at, best, use);
        else
            boost_refuse(mc, at, best);
    }
}

/* Resets what the last decision set. Returns whether a deadline is known here. */
static bool boost_begin(const struct sched_params *p, struct policy_device *dev,
                        enum deadline_use use, uint64_t now_ns)
{
    struct boost *b = &dev->boost;
    b->known = false;
    b->top = CLASS_COUNT;
    b->below = 0;
    for_each_member (dev, m) {
        m->due.urgent = m->due.joins_latency = false;
        m->watched = m->present &&
                     (m->stray || (m->own_class != CLASS_LATENCY && m->due.expects && m->idle &&
                                   use != DEADLINES_IGNORED && p->deadline_share > 0));
        b->known |= m->own_class != CLASS_LATENCY && m->due.deadline_ns != TIME_NEVER;
        if (!m->present)
            continue;
        b->top = m->own_class < b->top ? m->own_class : b->top;
        b->below += m->own_class != CLASS_LATENCY && !m->idle;
    }
    charge_debt(p, b, now_ns);
    b->job = SLOT_NONE;
    b->promoted = b->delays = false;
    b->upper = b->top != CLASS_LATENCY ? 0 : b->upper_seen < 0 ? UPPER_UNKNOWN : b->upper_seen;
    b->upper = b->upper < UPPER_MAX ? b->upper : UPPER_MAX;
    return b->known;
}

void boost_decide(const struct machine *mc, enum deadline_use use)
{
    const struct sched_params *p = mc->params;
    bool any = false;
    for (uint32_t d = 0; d < mc->n; d++)
        any |= boost_begin(p, &mc->devices[d], use, mc->now_ns);
    if (!any || use == DEADLINES_IGNORED || p->deadline_share <= 0)
        return;
    for (uint32_t d = 0; d < mc->n; d++) {
        for_each_member (&mc->devices[d], m)
            mark_urgent(mc, &mc->devices[d], m, use);
    }
    grant_all(mc, use);
    for (uint32_t d = 0; d < mc->n; d++) {
        if (mc->devices[d].boost.known)
            debt_wake(p, &mc->devices[d], mc->now_ns);
    }
}
