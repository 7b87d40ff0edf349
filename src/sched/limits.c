/* See limits.h. */
#include "sched/limits.h"

#include <math.h>

#include "sched/policy.h"

#define FRAME_NS       100000000.0
#define WINDOW_MIN_NS  5000000.0
#define PROBE_FRAMES   5U
#define LEAST          0.05     /* of all jobs at work, see floor_of() */
#define SLICE_LEAST_US 200U     /* a switch takes as long */
#define REST_NS        500000.0 /* of a window that is left: not worth another turn */
/* What stopping one job takes before the next can run. Measured on H200: a window beside seven
 * others was shorter by 5 ms, one after a single other by 0.7 ms. */
#define STOP_NS 700000.0

/* ---- parts ---- */

void limits_fill(struct claim *v, uint32_t n, double amount)
{
    double lo = 0, hi = 0, below = 0, above = 0;
    for (uint32_t i = 0; i < n; i++) {
        lo += v[i].lo;
        hi += v[i].hi;
        above = fmax(above, v[i].hi / v[i].weight);
    }
    bool cut = lo >= amount, all = hi <= amount;
    for (unsigned step = 0; step < 50 && !cut && !all; step++) {
        double by = (below + above) / 2, sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += fmin(fmax(by * v[i].weight, v[i].lo), v[i].hi);
        *(sum < amount ? &below : &above) = by;
    }
    for (uint32_t i = 0; i < n; i++)
        v[i].got = cut   ? v[i].lo * (lo > 0 ? fmax(amount, 0) / lo : 0)
                   : all ? v[i].hi
                         : fmin(fmax(below * v[i].weight, v[i].lo), v[i].hi);
}

/* Without what a deadline makes of it for now. */
static enum job_class class_of(const struct member *m)
{
    return m->class == CLASS_LATENCY ? m->own_class : m->class;
}

static bool takes_part(const struct member *m)
{
    return !m->paused && !m->idle && class_of(m) != CLASS_LATENCY;
}

static const struct limits *of_account(const struct policy_device *dev, const struct member *m)
{
    return &dev->accounts[m->account].limits;
}

static bool is_limited(const struct policy_device *dev, const struct member *m)
{
    const struct limits *a = of_account(dev, m), *own = &m->limit.own;
    if (m->paused && !m->limit.held)
        return false;
    return own->max > 0 || a->max > 0 ||
           (class_of(m) != CLASS_LATENCY && (own->min > 0 || a->min > 0));
}

static double ceiling(const struct limits *l)
{
    return l->max > 0 ? l->max : 1;
}

/* Of a device: the accounts that have members at work, each with its members in a list. */
struct parts {
    struct policy_device *dev;
    uint32_t first;       /* account */
    enum job_class top;   /* of those at work */
    double kept;          /* for lower classes */
    double least;         /* see floor_of() */
    double cut;           /* what is left of floors that come to more than all */
    struct claim *claims; /* scratch */
};

static struct parts list_accounts(const struct sched_params *p, struct policy_device *dev,
                                  struct claim *claims)
{
    struct parts all = {dev, SLOT_NONE, CLASS_BATCH, p->floor, 0, 1, claims};
    double n = 0;
    for_each_member (dev, m)
        dev->accounts[m->account].fill.first = SLOT_NONE;
    for_each_member (dev, m) {
        struct account *a = &dev->accounts[m->account];
        m->limit.part = m->limit.most = 0;
        if (!takes_part(m))
            continue;
        if (a->fill.first == SLOT_NONE) {
            a->fill.next = all.first;
            a->fill.lo = a->limits.min;
            a->fill.left = a->limits.max > 0 ? a->limits.max : INFINITY;
            a->fill.members = 0;
            all.first = m->account;
        }
        all.top = class_of(m) < all.top ? class_of(m) : all.top;
        m->limit.next = a->fill.first;
        a->fill.first = m->job;
        a->fill.members++;
        n++;
    }
    all.least = n > 0 ? LEAST / n : 0;
    return all;
}

/* A member's own floor, or a little: those of others, which may come to more than all, must not
 * leave it without a window or a rest for ever. Of a class below the highest only if something is
 * kept for it. */
static double floor_of(const struct parts *all, const struct member *m)
{
    bool least = class_of(m) == all->top || all->kept > 0;
    return fmax(m->limit.own.min, least ? fmin(all->least, ceiling(&m->limit.own)) : 0);
}

/* Of an account's members of one class; least: what is left of the account's own floor. */
static struct claim account_claim(const struct parts *all, const struct account *a,
                                  enum job_class class, double least)
{
    struct claim sum = {0};
    for (uint32_t j = a->fill.first; j != SLOT_NONE; j = all->dev->members[j].limit.next) {
        const struct member *m = &all->dev->members[j];
        if (class_of(m) != class)
            continue;
        sum.weight += m->share;
        sum.lo += floor_of(all, m);
        sum.hi += ceiling(&m->limit.own);
    }
    sum.hi = fmin(sum.hi, a->fill.left);
    sum.lo = fmin(fmax(sum.lo, least), sum.hi);
    return sum;
}

/* The floors of an account's members in that class and those below. */
static void account_floors(const struct parts *all, const struct account *a, enum job_class class,
                           double floors[static CLASS_COUNT])
{
    double least = a->fill.lo;
    for (unsigned c = class; c < CLASS_COUNT; c++) {
        double lo = account_claim(all, a, (enum job_class)c, least).lo;
        floors[c] += lo;
        least = fmax(least - lo, 0);
    }
}

/* What that class may have of what is left of an account's ceiling: the classes below have their
 * floors of it, and what is kept for them. */
static double account_room(const struct parts *all, const struct account *a, enum job_class class)
{
    double floors[CLASS_COUNT] = {0}, below = 0, left = a->fill.left;
    bool any = false;
    if (!isfinite(left))
        return left;
    account_floors(all, a, class, floors);
    for (unsigned c = class + 1U; c < CLASS_COUNT; c++) {
        below += floors[c];
        any |= account_claim(all, a, (enum job_class)c, 0).weight > 0;
    }
    double sum = below + floors[class], cut = sum > left ? left / sum : 1;
    return any ? left - below * cut - all->kept * (left - sum * cut) : left;
}

/* Divides what an account has among its members of that class. */
static void fill_account(const struct parts *all, struct account *a, enum job_class class)
{
    struct member *members = all->dev->members;
    struct claim *v = all->claims;
    uint32_t n = 0;
    for (uint32_t j = a->fill.first; j != SLOT_NONE; j = members[j].limit.next) {
        const struct member *m = &members[j];
        if (class_of(m) == class)
            v[n++] = (struct claim){m->share, floor_of(all, m), ceiling(&m->limit.own), 0};
    }
    limits_fill(v, n, a->fill.got);
    n = 0;
    for (uint32_t j = a->fill.first; j != SLOT_NONE; j = members[j].limit.next) {
        if (class_of(&members[j]) == class)
            members[j].limit.part = v[n++].got;
    }
    a->fill.left = fmax(a->fill.left - a->fill.got, 0);
    a->fill.lo = fmax(a->fill.lo - a->fill.got, 0);
}

/* What the classes below have to have at least, of what is left: their own floors, and of what no
 * floor takes the share that is kept for lower classes, which those without a floor live on. */
static double floors_below(const struct parts *all, enum job_class class, double left)
{
    double floors[CLASS_COUNT] = {0}, below = 0;
    bool any = false;
    for (uint32_t i = all->first; i != SLOT_NONE; i = all->dev->accounts[i].fill.next)
        account_floors(all, &all->dev->accounts[i], class, floors);
    for_each_member (all->dev, m)
        any |= takes_part(m) && class_of(m) > class;
    for (unsigned c = class + 1U; c < CLASS_COUNT; c++)
        below += floors[c];
    double free = fmax(left - (below + floors[class]) * all->cut, 0);
    return any ? below * all->cut + all->kept * free : 0;
}

/* At a job that does nothing. */
static double look_ns(const struct sched_params *p)
{
    return fmin(p->probe_us * 1e3, FRAME_NS / 5);
}

static void set_parts(const struct sched_params *p, struct policy_device *dev, struct claim *v)
{
    struct parts all = list_accounts(p, dev, v);
    double left = dev->probed == SLOT_NONE ? 1 : 1 - look_ns(p) / FRAME_NS;
    double floors[CLASS_COUNT] = {0};
    for (uint32_t i = all.first; i != SLOT_NONE; i = dev->accounts[i].fill.next)
        account_floors(&all, &dev->accounts[i], CLASS_NORMAL, floors);
    double sum = floors[CLASS_NORMAL] + floors[CLASS_BATCH];
    all.cut = sum > left ? left / sum : 1;
    for (unsigned c = CLASS_NORMAL; c < CLASS_COUNT; c++) {
        uint32_t n = 0;
        for (uint32_t i = all.first; i != SLOT_NONE; i = dev->accounts[i].fill.next) {
            const struct account *a = &dev->accounts[i];
            struct claim of = account_claim(&all, a, (enum job_class)c, a->fill.lo);
            of.hi = fmin(of.hi, account_room(&all, a, (enum job_class)c));
            of.lo = fmin(of.lo, of.hi);
            if (of.weight > 0)
                v[n++] = of;
        }
        limits_fill(v, n, left - floors_below(&all, (enum job_class)c, left));
        n = 0;
        for (uint32_t i = all.first; i != SLOT_NONE; i = dev->accounts[i].fill.next) {
            struct account *a = &dev->accounts[i];
            bool any = account_claim(&all, a, (enum job_class)c, 0).weight > 0;
            a->fill.got = any ? v[n++].got : 0;
            left -= a->fill.got;
        }
        for (uint32_t i = all.first; i != SLOT_NONE; i = dev->accounts[i].fill.next)
            fill_account(&all, &dev->accounts[i], (enum job_class)c);
    }
    for_each_member (dev, m) {
        const struct account *a = &dev->accounts[m->account];
        double most = ceiling(&m->limit.own);
        if (class_of(m) == CLASS_LATENCY)
            m->limit.part = fmin(most, ceiling(&a->limits));
        else if (takes_part(m))
            m->limit.most = fmin(most, m->limit.part + a->fill.left / a->fill.members);
    }
}

/* ---- frames ---- */

static bool first_of(const struct machine *mc, const struct policy_device *dev,
                     const struct member *m)
{
    return !m->gang || dev == mc->devices + m->gang_first;
}

/* Of the jobs that do nothing one is looked at, and beside latency jobs, which lose by it that
 * others wait meanwhile, only in some frames: that of the account, and of its jobs that, which was
 * looked at last longest ago. Where limited jobs work one without limits is, too: their windows may
 * leave it nothing. */
static void choose_probe(const struct frames *f, struct policy_device *dev)
{
    bool latency = false, windows = false;
    const struct member *best = NULL;
    for_each_member (dev, m) {
        latency |= class_of(m) == CLASS_LATENCY && !m->paused;
        windows |= takes_part(m) && is_limited(dev, m);
    }
    for_each_member (dev, m) {
        if (!m->idle || m->paused || class_of(m) == CLASS_LATENCY ||
            !(windows || is_limited(dev, m)))
            continue;
        uint64_t account = dev->accounts[m->account].fill.looked;
        uint64_t than = best ? dev->accounts[best->account].fill.looked : 0;
        if (!best || account < than || (account == than && m->limit.looked < best->limit.looked))
            best = m;
    }
    dev->probed = best && (!latency || f->number % PROBE_FRAMES == 0) ? best->job : SLOT_NONE;
}

/* What a frame brings a job: its part; or, if it does nothing, now and then a look. */
static void renew(const struct machine *mc, const struct frames *f, struct policy_device *own,
                  struct member *m)
{
    double part = 1, max = fmin(ceiling(&m->limit.own), ceiling(of_account(own, m)));
    for_each_device_of (mc, own, m, dev)
        part = fmin(part, dev->members[m->job].limit.part);
    double quota = part * FRAME_NS;
    double window = quota + fmin(m->limit.window_ns, quota < WINDOW_MIN_NS ? WINDOW_MIN_NS : 0);
    double gaps = m->gang ? 0 : (m->limit.most - m->limit.part) * FRAME_NS;
    if (m->idle && class_of(m) != CLASS_LATENCY) {
        bool looked_at = own->probed == m->job;
        window = looked_at ? fmin(max * FRAME_NS, look_ns(mc->params)) : 0;
        gaps = 0;
        if (looked_at)
            m->limit.looked = own->accounts[m->account].fill.looked = f->number;
    }
    for_each_device_of (mc, own, m, dev) {
        struct member_limits *l = &dev->members[m->job].limit;
        l->window_ns = fmax(window, -FRAME_NS);
        l->gaps_ns = gaps;
    }
}

static void begin_frame(const struct machine *mc, struct frames *f)
{
    uint64_t frame = (uint64_t)FRAME_NS;
    f->begun_ns = f->number ? mc->now_ns - (mc->now_ns - f->begun_ns) % frame : mc->now_ns;
    f->number++;
    for (uint32_t d = 0; d < mc->n; d++) {
        if (!mc->devices[d].nlimited)
            continue;
        choose_probe(f, &mc->devices[d]);
        set_parts(mc->params, &mc->devices[d], f->claims);
    }
    for (uint32_t d = 0; d < mc->n; d++) {
        struct policy_device *own = &mc->devices[d];
        for_each_member (own, m) {
            bool any = is_limited(own, m) || own->probed == m->job;
            if (any && first_of(mc, own, m))
                renew(mc, f, own, m);
            else if (!any)
                m->limit.window_ns = m->limit.gaps_ns = 0;
        }
    }
}

static void charge(const struct machine *mc, struct frames *f)
{
    double ns = mc->now_ns > f->charged_ns ? (double)(mc->now_ns - f->charged_ns) : 0;
    f->charged_ns = mc->now_ns;
    for (uint32_t d = 0; d < mc->n; d++) {
        struct policy_device *dev = &mc->devices[d];
        for_each_member (dev, m) {
            bool runs = class_of(m) == CLASS_LATENCY ? m->limit.begun : dev->window == m->job;
            m->limit.window_ns -= runs ? ns : 0;
            m->limit.gaps_ns -= m->limit.in_gaps && m->runnable ? ns : 0;
            m->limit.in_gaps = false;
        }
    }
}

/* ---- windows ---- */

/* That it takes to begin one. */
static double window_least(const struct member *m)
{
    return m->limit.part * FRAME_NS < WINDOW_MIN_NS && !m->idle ? WINDOW_MIN_NS : REST_NS;
}

static bool may_have_window(const struct policy_device *dev, const struct member *m)
{
    double least = dev->window == m->job ? 1 : window_least(m) * 0.99;
    return !m->paused && m->limit.window_ns >= least;
}

static bool window_fits(const struct machine *mc, struct policy_device *own, const struct member *m)
{
    for_each_device_of (mc, own, m, dev) {
        if (dev->window != SLOT_NONE || !may_have_window(dev, &dev->members[m->job]))
            return false;
    }
    return true;
}

/* A window begins when the others have stopped, all but one that fills its gaps: so much longer it
 * is, below the ceiling. */
static double stopping_ns(const struct policy_device *dev, const struct member *holder)
{
    double stopped = -1, max = fmin(ceiling(&holder->limit.own), ceiling(of_account(dev, holder)));
    for_each_member (dev, m)
        stopped += takes_part(m) && !is_limited(dev, m);
    return fmax(fmin(stopped * STOP_NS, (max - holder->limit.part) * FRAME_NS), 0);
}

/* Who is looked at comes first, so that no window leaves too little for it; then gangs, which need
 * several devices at once; then whose last window was longest ago. */
static struct member *next_window(const struct machine *mc, struct policy_device *own)
{
    struct member *best = NULL;
    unsigned best_rank = 0;
    if (!own->nlimited || own->window != SLOT_NONE)
        return NULL;
    for_each_member (own, m) {
        unsigned rank = own->probed == m->job ? 0 : m->gang ? 1 : 2;
        if (class_of(m) == CLASS_LATENCY || !window_fits(mc, own, m) ||
            (best &&
             (rank > best_rank || (rank == best_rank && m->limit.served >= best->limit.served))))
            continue;
        best = m;
        best_rank = rank;
    }
    return best;
}

static void begin_window(const struct machine *mc, struct policy_device *own, struct member *m)
{
    double stopping = 0;
    for_each_device_of (mc, own, m, dev)
        stopping = fmax(stopping, stopping_ns(dev, m));
    for_each_device_of (mc, own, m, dev) {
        dev->window = m->job;
        dev->members[m->job].limit.window_ns += stopping;
        dev->members[m->job].limit.served = mc->now_ns;
    }
}

/* Windows that are over end, and the next ones begin. */
static void set_windows(const struct machine *mc)
{
    for (uint32_t d = 0; d < mc->n; d++) {
        struct policy_device *own = &mc->devices[d];
        const struct member *m = own->window == SLOT_NONE ? NULL : &own->members[own->window];
        bool goes_on = m && m->used, limited = false;
        if (goes_on) {
            for_each_device_of (mc, own, m, dev) {
                goes_on &= dev->window == m->job && may_have_window(dev, &dev->members[m->job]);
                limited |= dev->nlimited > 0;
            }
        }
        own->window = goes_on && limited ? own->window : SLOT_NONE;
    }
    for (uint32_t d = 0; d < mc->n; d++) {
        struct member *m = next_window(mc, &mc->devices[d]);
        if (m)
            begin_window(mc, &mc->devices[d], m);
    }
}

static void limits_hold(const struct machine *mc, struct policy_device *own, struct member *m)
{
    for_each_device_of (mc, own, m, dev) {
        struct member *x = &dev->members[m->job];
        x->limit.held |= !x->paused;
        x->paused = true;
    }
}

/* A latency job does not wait for others' windows: it has its part from the frame's begin on. */
static void hold_latency(const struct machine *mc, struct policy_device *own)
{
    for_each_member (own, m) {
        if (class_of(m) != CLASS_LATENCY || m->paused || !is_limited(own, m))
            continue;
        /* What is too short to get anything done in is saved up. */
        m->limit.begun = m->limit.window_ns >= (m->limit.begun ? 1 : window_least(m) * 0.99);
        if (m->limit.begun)
            policy_wake(own, policy_after(mc->now_ns + 1, m->limit.window_ns));
        else
            limits_hold(mc, own, m);
    }
}

static bool latency_beside(const struct machine *mc, struct policy_device *own,
                           const struct member *m)
{
    for_each_device_of (mc, own, m, dev) {
        for_each_member (dev, x) {
            if (class_of(x) == CLASS_LATENCY && x != &dev->members[m->job] && !x->paused)
                return true;
        }
    }
    return false;
}

/* A gang has none: its class has to be the same on all its devices. */
static bool has_gaps(const struct member *m)
{
    return !m->paused && !m->gang && class_of(m) != CLASS_LATENCY && m->limit.gaps_ns >= REST_NS;
}

static void give_gaps(const struct machine *mc, const struct frames *f, struct policy_device *dev,
                      struct member *m)
{
    m->limit.in_gaps = true;
    dev->turns_from_ns = f->begun_ns;
    policy_wake(dev, policy_after(mc->now_ns + 1, m->limit.gaps_ns));
}

/* In somebody's window: what it leaves the others share as they always do. */
static void give_window(const struct machine *mc, const struct frames *f, struct policy_device *dev)
{
    struct member *holder = &dev->members[dev->window];
    bool beside = dev->window_beside;
    for_each_member (dev, m) {
        if (m == holder || class_of(m) == CLASS_LATENCY || (!beside && !is_limited(dev, m)))
            continue;
        if (!beside && has_gaps(m))
            give_gaps(mc, f, dev, m);
        else
            limits_hold(mc, dev, m);
    }
    holder->class = beside ? holder->class : CLASS_LATENCY;
    policy_wake(dev, policy_after(mc->now_ns + 1, holder->limit.window_ns));
}

/* In nobody's: those without limits run, and the others, which had theirs, in their gaps: with
 * small slices (policy/priority.c), or by turns. */
static void give_rest(const struct machine *mc, const struct frames *f, struct policy_device *dev)
{
    bool latency = false, gaps = false, normal = false;
    for_each_member (dev, m) {
        latency |= class_of(m) == CLASS_LATENCY && !m->paused;
        normal |= class_of(m) == CLASS_NORMAL && takes_part(m) && !is_limited(dev, m);
    }
    for_each_member (dev, m) {
        if (!is_limited(dev, m) || class_of(m) == CLASS_LATENCY)
            continue;
        if (latency || !has_gaps(m)) {
            limits_hold(mc, dev, m);
            continue;
        }
        give_gaps(mc, f, dev, m);
        gaps = true;
        m->class = normal ? class_of(m) : CLASS_BATCH;
    }
    for_each_member (dev, m) {
        if (gaps && !normal && !m->gang && !m->limit.in_gaps && m->class == CLASS_BATCH)
            m->class = CLASS_NORMAL;
    }
}

/* In a part that is hardly longer than a timeslice only the first of a job's contexts would work,
 * in every frame the same. */
void limits_slices(struct policy_device *dev)
{
    for_each_member (dev, m) {
        double us = m->limit.part * FRAME_NS / 1e3 / (2 * member_width(m));
        if (member_width(m) > 1 && is_limited(dev, m) && us < m->timeslice_us)
            m->timeslice_us = us < SLICE_LEAST_US ? SLICE_LEAST_US : (uint32_t)us;
    }
}

void limits_release(const struct machine *mc)
{
    for (uint32_t d = 0; d < mc->n; d++) {
        for_each_member (&mc->devices[d], m) {
            m->paused &= !m->limit.held;
            m->limit.held = false;
        }
    }
}

void limits_end(const struct machine *mc)
{
    for (uint32_t d = 0; d < mc->n; d++) {
        mc->devices[d].window = SLOT_NONE;
        mc->devices[d].window_beside = false;
    }
}

void limits_decide(const struct machine *mc, struct frames *f)
{
    bool any = false;
    for (uint32_t d = 0; d < mc->n; d++) {
        struct policy_device *dev = &mc->devices[d];
        dev->nlimited = 0;
        for_each_member (dev, m)
            dev->nlimited += is_limited(dev, m);
        any |= dev->nlimited > 0;
    }
    charge(mc, f);
    if (any && (!f->number || mc->now_ns - f->begun_ns >= (uint64_t)FRAME_NS))
        begin_frame(mc, f);
    for (uint32_t d = 0; d < mc->n; d++)
        hold_latency(mc, &mc->devices[d]);
    set_windows(mc);
    for (uint32_t d = 0; d < mc->n; d++) {
        struct policy_device *dev = &mc->devices[d];
        dev->window_beside =
            dev->window != SLOT_NONE && latency_beside(mc, dev, &dev->members[dev->window]);
    }
    for (uint32_t d = 0; d < mc->n; d++) {
        struct policy_device *dev = &mc->devices[d];
        if (!dev->nlimited && dev->window == SLOT_NONE)
            continue; /* a gang that is looked at has windows where others are limited, and here */
        if (dev->window != SLOT_NONE)
            give_window(mc, f, dev);
        else
            give_rest(mc, f, dev);
        policy_wake(dev, f->begun_ns + (uint64_t)FRAME_NS);
    }
}
