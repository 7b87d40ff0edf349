/* See turns.h: turns on a device that shares no gang with others. */
#include "plan/policy.h"

#define PROBE_CHARGE 10U /* turns that a probe is charged, so that one in this many is a probe */
#define WAITS_NS     1000000000U
#define GAPS_FLOOR   0.5
#define GAPS_CHEAP   10U /* divisor of the charge for turns in the gaps of a window */

void rotation_init(struct rotation *r, uint32_t device)
{
    r->link = r->was_link = device;
    r->current = r->left = SLOT_NONE;
    r->idle_since_ns = TIME_NEVER;
}

/* Whether the job may have the next turn; batch jobs may not while they wait for normal ones. */
static bool is_candidate(const struct policy_device *dev, const struct member *m)
{
    return rotation_takes_part(dev, m) && !(dev->rotation.batch_waits && m->class == CLASS_BATCH);
}

/* With a floor a turn contains at least one of the job's slices, however busy the top class is. */
uint64_t rotation_length_ns(const struct sched_params *p, uint32_t us)
{
    double cycle_us = p->floor > 0.0 ? p->timeslice_floor_us / p->floor : 0;
    return (us < cycle_us ? (uint64_t)cycle_us : us) * 1000ULL; /* floor is 0 or 0.001 and more */
}

/* The turn of an idle job is a short probe, unless all jobs are idle. */
uint64_t rotation_turn_ns(const struct sched_params *p, const struct member *m, uint32_t busy)
{
    return rotation_length_ns(p, m->idle && busy ? p->probe_us : p->rotation_us);
}

/* In the gaps of a window a working job has the turn until the window ends, because each change
 * costs as much as between ordinary turns. */
uint64_t rotation_turn_end(const struct sched_params *p, const struct policy_device *dev,
                           uint32_t busy)
{
    const struct rotation *r = &dev->rotation;
    const struct member *m = &dev->members[r->current];
    bool gaps = r->in_window == WINDOW_GAPS;
    if (gaps && dev->window == SLOT_NONE)
        return r->turn_ns;
    if (gaps && !m->idle && dev->members[dev->window].limit.served <= r->turn_ns)
        return TIME_NEVER;
    return r->turn_ns + rotation_turn_ns(p, m, busy);
}

/* Whether another job of its account works, whose turns a probe of this one delays. */
static bool account_works(const struct policy_device *dev, const struct member *m)
{
    for_each_member (dev, x) {
        if (x->account == m->account && !x->idle && is_candidate(dev, x) &&
            (!dev->rotation.by_class || x->class == m->class))
            return true;
    }
    return false;
}

void rotation_grant(struct policy_device *dev, struct member *m, uint64_t now_ns)
{
    m->turn_group = SLOT_NONE; /* the next of several contexts runs */
    dev->rotation.current = m->job;
    dev->rotation.turn_ns = now_ns;
    dev->rotation.in_window = dev->window == m->job      ? WINDOW_OWN
                              : dev->window == SLOT_NONE ? WINDOW_NONE
                                                         : WINDOW_GAPS;
}

/* A new account starts at the vtime that others have reached. */
static void had_reach(struct account_had *had, uint64_t *floor, bool counts)
{
    if (had->vtime < *floor)
        had->vtime = *floor;
    else if (counts)
        *floor = had->vtime;
}

void rotation_begin(struct policy_device *dev, struct member *m, bool leads, uint64_t now_ns)
{
    struct rotation *r = &dev->rotation;
    struct account_turns *a = &dev->turns[m->account];
    if (m->vtime < a->floor)
        m->vtime = a->floor;
    else if (!m->idle && m->job != dev->boost.job)
        a->floor = m->vtime;
    bool counts = !m->idle && !leads && m->job != dev->window;
    had_reach(&a->all, &r->account_floor, counts);
    if (r->by_class)
        had_reach(&a->by_class[m->class], &r->account_class_floor[m->class], counts);
    r->vtime_floor = a->floor > r->vtime_floor ? a->floor : r->vtime_floor;
    r->round_ns = now_ns;
    rotation_grant(dev, m, now_ns);
}

static void had_charge(struct account_had *had, double weighted_ns, bool probe)
{
    had->vtime += (uint64_t)weighted_ns;
    had->probe = probe ? (uint64_t)weighted_ns : 0;
}

static void had_forgive(struct account_had *had, uint64_t floor)
{
    uint64_t ahead = had->vtime > floor ? had->vtime - floor : 0;
    had->vtime -= ahead < had->probe ? ahead : had->probe;
    had->probe = 0;
}

void rotation_wake(struct policy_device *dev, const struct member *m)
{
    struct account_turns *a = &dev->turns[m->account];
    had_forgive(&a->all, dev->rotation.account_floor);
    had_forgive(&a->by_class[m->class], dev->rotation.account_class_floor[m->class]);
}

/* Charges ns of the device's time. A probe is charged as a long turn; to the account only if none
 * of its jobs works. */
static void turn_charge(struct policy_device *dev, struct member *m, double ns, double probe_ns)
{
    struct rotation *r = &dev->rotation;
    struct account_turns *a = &dev->turns[m->account];
    bool alone = probe_ns > 0 && !account_works(dev, m);
    double weighted_ns = (alone ? probe_ns : ns) * WEIGHT_DEFAULT / a->part;
    had_charge(&a->all, weighted_ns, alone);
    if (r->by_class)
        had_charge(&a->by_class[m->class], weighted_ns, alone);
    /* GPU time counts on all devices of a gang, but not that of a probe, so that a large gang is
     * probed as often as others. */
    ns = probe_ns > 0 ? probe_ns : ns * (m->gang ? m->gang : 1);
    m->vtime += (uint64_t)(ns * WEIGHT_DEFAULT / m->turn_weight / (r->linked ? m->pace : 1));
}

void rotation_charge(struct policy_device *dev, struct member *m, uint64_t ns)
{
    struct rotation *r = &dev->rotation;
    struct account_turns *a = &dev->turns[m->account];
    if (r->linked) {
        a->debt += (double)ns * WEIGHT_DEFAULT;
        return;
    }
    had_reach(&a->all, &r->account_floor, false);
    if (r->by_class)
        had_reach(&a->by_class[m->class], &r->account_class_floor[m->class], false);
    turn_charge(dev, m, (double)ns, 0);
}

void rotation_end(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    struct rotation *r = &dev->rotation;
    if (r->current == SLOT_NONE && !r->linked)
        return;
    struct member *m = r->current == SLOT_NONE ? NULL : &dev->members[r->current];
    if (m)
        m->ended_ns = now_ns;
    r->current = SLOT_NONE;
    if (m && r->in_window == WINDOW_OWN)
        return; /* its window is its part of the frame, and not charged as a turn */
    /* Time beyond its turn is not charged, because no other job wanted it. */
    uint64_t turn = m ? rotation_turn_ns(p, m, 0) : p->rotation_us * 1000ULL;
    uint64_t since_ns = m ? r->turn_ns : r->round_ns;
    uint64_t ns = now_ns > since_ns ? now_ns - since_ns : 0;
    ns = ns < turn ? ns : turn;
    ns /= m && r->in_window == WINDOW_GAPS ? GAPS_CHEAP : 1;
    for_each_member (dev, x) {
        if (x->company.beside)
            turn_charge(dev, x, company_charge(dev, x, (double)ns), 0);
    }
    if (m) {
        r->class_vtime[m->class] += r->by_class || r->linked ? ns : 0;
        bool probe = m->idle && !m->due.expects && !dev->gated;
        turn_charge(dev, m, company_charge(dev, m, (double)ns),
                    probe ? (double)(turn * PROBE_CHARGE) : 0);
    }
    for_each_member (dev, x)
        x->company.used_ns = 0;
}

/* On linked devices each device keeps its part of the job's lead as a debt of the account. */
void rotation_leave(struct policy_device *dev, const struct member *m)
{
    struct rotation *r = &dev->rotation;
    if (r->linked && !m->fresh) {
        double ahead = (double)m->vtime - (double)r->vtime_floor;
        double *debt = &dev->turns[m->account].debt;
        *debt += ahead * m->turn_weight * m->pace / (m->gang ? m->gang : 1);
        *debt = *debt > 0 ? *debt : 0;
    }
    if (r->current != m->job)
        return;
    r->current = SLOT_NONE;
    r->left = r->in_window == WINDOW_NONE ? m->account : SLOT_NONE;
}

void rotation_charge_left(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    struct rotation *r = &dev->rotation;
    if (r->left == SLOT_NONE)
        return;
    struct account_turns *a = &dev->turns[r->left];
    uint64_t turn = p->rotation_us * 1000ULL, ns = now_ns > r->turn_ns ? now_ns - r->turn_ns : 0;
    double weighted_ns = (double)(ns < turn ? ns : turn) * WEIGHT_DEFAULT;
    r->left = SLOT_NONE;
    if (r->linked)
        a->debt += weighted_ns;
    else
        had_charge(&a->all, weighted_ns / a->part, false);
}

/* The job that has a window may hardly use it. In its gaps a floor is kept for batch jobs, because
 * a normal job that hardly works either would keep them from using the gaps. */
double rotation_floor(const struct sched_params *p, const struct policy_device *dev)
{
    bool gaps = dev->window != SLOT_NONE && !dev->window_beside;
    return gaps ? GAPS_FLOOR : p->floor;
}

enum job_class rotation_owed_class(double floor, uint64_t upper_ns, uint64_t lower_ns)
{
    double u = (double)upper_ns / (1.0 - floor), l = (double)lower_ns / floor;
    return l < u ? CLASS_BATCH : CLASS_NORMAL;
}

/* The boosted job, if it comes before all others that may have this turn. */
static struct member *boosted(const struct policy_device *dev)
{
    struct member *m = dev->boost.job == SLOT_NONE ? NULL : &dev->members[dev->boost.job];
    return m && is_candidate(dev, m) && account_may_lead(dev, m) ? m : NULL;
}

/* With a floor kept, and a latency job present, turns go by class first. Returns whether only one
 * class may have the next turn, and which. */
static bool floor_class(const struct sched_params *p, struct policy_device *dev,
                        enum job_class *class)
{
    struct rotation *r = &dev->rotation;
    uint32_t busy[CLASS_COUNT] = {0};
    double floor = rotation_floor(p, dev);
    if (floor == 0.0 || r->top != CLASS_LATENCY || dev->window_beside)
        return false;
    for_each_member (dev, m)
        busy[m->class] += m->present && !m->idle;
    if (busy[CLASS_NORMAL] && busy[CLASS_BATCH]) {
        *class =
            rotation_owed_class(floor, r->class_vtime[CLASS_NORMAL], r->class_vtime[CLASS_BATCH]);
        return true;
    }
    /* A class does not save up turns while the other one is away. */
    r->class_vtime[CLASS_NORMAL] = r->class_vtime[CLASS_BATCH] = 0;
    return false;
}

/* Whether the job is idle, and needs no turn for it to be seen when that changes. */
static bool is_beside(const struct member *m)
{
    return m->idle && !m->company.heavy;
}

static void pick_next(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    enum job_class class = CLASS_COUNT;
    bool one_class = floor_class(p, dev, &class);
    struct member *best = NULL, *first = boosted(dev);
    dev->rotation.by_class = one_class;
    const bool beside = dev->company && !one_class; /* else it needs a turn */
    for_each_member (dev, m) {
        if (is_candidate(dev, m) && (!one_class || m->class == class) &&
            (!best || (beside && is_beside(m) != is_beside(best) ? is_beside(best)
                                                                 : account_before(dev, m, best))))
            best = m;
    }
    if (first && one_class && first->class != class)
        first = NULL;
    best = first ? first : best;
    if (best)
        rotation_begin(dev, best, first, now_ns);
}

static void rotate(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    struct rotation *r = &dev->rotation;
    uint32_t n = 0, busy = 0;
    for_each_member (dev, m) {
        n += is_candidate(dev, m) || m->company.beside ? member_width(m) : 0;
        busy += is_candidate(dev, m) && !m->idle;
    }
    const struct member *h = r->current == SLOT_NONE ? NULL : &dev->members[r->current];
    const struct member *first = boosted(dev);
    if (h &&
        (!is_candidate(dev, h) || (first && first != h && first->class == h->class) ||
         (n > 1 && (now_ns >= rotation_turn_end(p, dev, busy) || r->turn_ns < dev->turns_from_ns))))
        rotation_end(p, dev, now_ns);
    if (r->current == SLOT_NONE)
        pick_next(p, dev, now_ns);
    if (n > 1 && r->current != SLOT_NONE)
        policy_wake(dev, rotation_turn_end(p, dev, busy));
}

void rotation_look_again(struct policy_device *dev, uint64_t now_ns)
{
    bool batch = false;
    for_each_member (dev, m)
        batch |= m->present && m->class == CLASS_BATCH;
    if (dev->rotation.from != CLASS_COUNT && dev->rotation.batch_waits && batch)
        policy_wake(dev, now_ns + WAITS_NS);
}

void rotation_decide(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    struct rotation *r = &dev->rotation;
    if (r->from == CLASS_COUNT || r->blocked)
        rotation_end(p, dev, now_ns);
    else
        rotate(p, dev, now_ns);
    rotation_look_again(dev, now_ns);
}

void rotation_apply(const struct sched_params *p, struct policy_device *dev)
{
    const struct rotation *r = &dev->rotation;
    bool company = false;
    for_each_member (dev, m)
        company |= m->company.beside;
    for_each_member (dev, m) {
        if (!m->present || m->class < r->from)
            continue;
        /* Gaps that a promoted job and a latency job leave stay idle. */
        m->runnable = (m->job == r->current && (!dev->boost.promoted || p->floor > 0.0)) ||
                      m->watched || m->company.beside;
        if (m->class <= r->top && !company)
            continue; /* a gang's peer of the top class runs alone, with slices as without turns */
        m->timeslice_us = company_bounds(p, dev, r->slice_us);
        m->serialize_contexts = !m->watched;
    }
}
