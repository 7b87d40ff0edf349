/* See limits.h. */
#include "sched/limits.h"

#include <math.h>

#include "sched/policy.h"

#define FRAME_NS      100000000.0
#define WINDOW_MIN_NS 5000000.0
#define PROBE_FRAMES  5U
#define REST_NS       500000.0 /* of a window that is left: not worth another turn */
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

/* The accounts that have members at work here, each with its members in a list. */
static uint32_t list_accounts(struct policy_device *dev)
{
    uint32_t first = SLOT_NONE;
    for_each_member (dev, m)
        dev->accounts[m->account].fill.first = SLOT_NONE;
    for_each_member (dev, m) {
        struct account *a = &dev->accounts[m->account];
        m->limit.part = m->limit.most = 0;
        if (!takes_part(m))
            continue;
        if (a->fill.first == SLOT_NONE) {
            a->fill.next = first;
            a->fill.lo = a->limits.min;
            a->fill.left = a->limits.max > 0 ? a->limits.max : INFINITY;
            a->fill.members = 0;
            first = m->account;
        }
        m->limit.next = a->fill.first;
        a->fill.first = m->job;
        a->fill.members++;
    }
    return first;
}

/* Of an account's members of one class. */
static struct claim account_claim(const struct policy_device *dev, const struct account *a,
                                  enum job_class class)
{
    struct claim all = {0};
    for (uint32_t j = a->fill.first; j != SLOT_NONE; j = dev->members[j].limit.next) {
        const struct member *m = &dev->members[j];
        if (class_of(m) != class)
            continue;
        all.weight += m->share;
        all.lo += m->limit.own.min;
        all.hi += ceiling(&m->limit.own);
    }
    all.hi = fmin(all.hi, a->fill.left);
    all.lo = fmin(fmax(all.lo, a->fill.lo), all.hi);
    return all;
}

/* Divides what an account has among its members of that class. */
static void fill_account(const struct policy_device *dev, struct account *a, enum job_class class,
                         struct claim *v, double amount)
{
    uint32_t n = 0;
    for (uint32_t j = a->fill.first; j != SLOT_NONE; j = dev->members[j].limit.next) {
        const struct member *m = &dev->members[j];
        if (class_of(m) == class)
            v[n++] = (struct claim){m->share, m->limit.own.min, ceiling(&m->limit.own), 0};
    }
    limits_fill(v, n, amount);
    n = 0;
    for (uint32_t j = a->fill.first; j != SLOT_NONE; j = dev->members[j].limit.next) {
        if (class_of(&dev->members[j]) == class)
            dev->members[j].limit.part = v[n++].got;
    }
    a->fill.left = fmax(a->fill.left - amount, 0);
    a->fill.lo = fmax(a->fill.lo - amount, 0);
}

/* What the classes below have to have at least, of what is left: by their own floors, or by the one
 * that is kept for lower classes. */
static double floors_below(const struct sched_params *p, const struct policy_device *dev,
                           uint32_t first, enum job_class class, double left)
{
    double sum = 0;
    bool any = false;
    for (uint32_t i = first; i != SLOT_NONE; i = dev->accounts[i].fill.next) {
        const struct account *a = &dev->accounts[i];
        for (unsigned c = class + 1U; c < CLASS_COUNT; c++) {
            struct claim all = account_claim(dev, a, (enum job_class)c);
            sum += all.weight > 0 ? all.lo : 0;
            any |= all.weight > 0;
        }
    }
    return any ? fmax(sum, p->floor * left) : 0;
}

static void set_parts(const struct sched_params *p, struct policy_device *dev, struct claim *v)
{
    uint32_t first = list_accounts(dev);
    double left = 1;
    for (unsigned c = CLASS_NORMAL; c < CLASS_COUNT; c++) {
        uint32_t n = 0;
        for (uint32_t i = first; i != SLOT_NONE; i = dev->accounts[i].fill.next) {
            struct claim all = account_claim(dev, &dev->accounts[i], (enum job_class)c);
            if (all.weight > 0)
                v[n++] = all;
        }
        limits_fill(v, n, left - floors_below(p, dev, first, (enum job_class)c, left));
        n = 0;
        for (uint32_t i = first; i != SLOT_NONE; i = dev->accounts[i].fill.next) {
            struct account *a = &dev->accounts[i];
            a->fill.got = account_claim(dev, a, (enum job_class)c).weight > 0 ? v[n++].got : 0;
            left -= a->fill.got;
        }
        for (uint32_t i = first; i != SLOT_NONE; i = dev->accounts[i].fill.next)
            fill_account(dev, &dev->accounts[i], (enum job_class)c, v, dev->accounts[i].fill.got);
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
 * looked at last longest ago. */
static void choose_probe(const struct frames *f, struct policy_device *dev)
{
    bool latency = false;
    const struct member *best = NULL;
    for_each_member (dev, m) {
        latency |= class_of(m) == CLASS_LATENCY && !m->paused;
        if (!m->idle || m->paused || !is_limited(dev, m) || class_of(m) == CLASS_LATENCY)
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
        window = looked_at ? fmin(max * FRAME_NS, mc->params->probe_us * 1e3) : 0;
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
        set_parts(mc->params, &mc->devices[d], f->claims);
        choose_probe(f, &mc->devices[d]);
    }
    for (uint32_t d = 0; d < mc->n; d++) {
        struct policy_device *own = &mc->devices[d];
        for_each_member (own, m) {
            if (is_limited(own, m) && first_of(mc, own, m))
                renew(mc, f, own, m);
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
            m->limit.window_ns -= dev->window == m->job ? ns : 0;
            m->limit.gaps_ns -= m->limit.in_gaps && m->runnable ? ns : 0;
            m->limit.in_gaps = false;
        }
    }
}

/* ---- windows ---- */

static bool may_have_window(const struct policy_device *dev, const struct member *m)
{
    double least = m->limit.part * FRAME_NS < WINDOW_MIN_NS && !m->idle ? WINDOW_MIN_NS : REST_NS;
    return is_limited(dev, m) && !m->paused &&
           m->limit.window_ns >= (dev->window == m->job ? 1 : least * 0.99);
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

/* Windows that are over end; then gangs come first, which need several devices at once. */
static void set_windows(const struct machine *mc)
{
    for (uint32_t d = 0; d < mc->n; d++) {
        struct policy_device *own = &mc->devices[d];
        const struct member *m = own->window == SLOT_NONE ? NULL : &own->members[own->window];
        bool goes_on = m && m->used;
        if (goes_on) {
            for_each_device_of (mc, own, m, dev)
                goes_on &= dev->window == m->job && may_have_window(dev, &dev->members[m->job]);
        }
        own->window = goes_on ? own->window : SLOT_NONE;
    }
    for (int gangs = 1; gangs >= 0; gangs--) {
        for (uint32_t d = 0; d < mc->n; d++) {
            struct policy_device *own = &mc->devices[d];
            for_each_member (own, m) {
                if (!own->nlimited || (m->gang > 0) != gangs || !window_fits(mc, own, m))
                    continue;
                double stopping = 0;
                for_each_device_of (mc, own, m, dev)
                    stopping = fmax(stopping, stopping_ns(dev, m));
                for_each_device_of (mc, own, m, dev) {
                    dev->window = m->job;
                    dev->members[m->job].limit.window_ns += stopping;
                }
            }
        }
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

static bool has_gaps(const struct member *m)
{
    return !m->paused && class_of(m) != CLASS_LATENCY && m->limit.gaps_ns >= REST_NS;
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
        if (m == holder || (!is_limited(dev, m) && (!beside || class_of(m) == CLASS_LATENCY)))
            continue;
        if (!beside && has_gaps(m))
            give_gaps(mc, f, dev, m);
        else
            limits_hold(mc, dev, m);
    }
    holder->class = beside ? holder->class : CLASS_LATENCY;
    policy_wake(dev, policy_after(mc->now_ns + 1, holder->limit.window_ns));
}

/* In nobody's: those without limits run, and the others, which had theirs, in their gaps. */
static void give_rest(const struct machine *mc, const struct frames *f, struct policy_device *dev)
{
    bool latency = false, gaps = false, normal = false;
    for_each_member (dev, m) {
        latency |= class_of(m) == CLASS_LATENCY && !m->paused;
        normal |= class_of(m) == CLASS_NORMAL && takes_part(m) && !is_limited(dev, m);
    }
    for_each_member (dev, m) {
        if (!is_limited(dev, m))
            continue;
        if (latency || !has_gaps(m)) {
            limits_hold(mc, dev, m);
            continue;
        }
        give_gaps(mc, f, dev, m);
        gaps = true;
        m->class = CLASS_BATCH;
    }
    for_each_member (dev, m) {
        if (gaps && !normal && !m->gang && !m->limit.in_gaps && m->class == CLASS_BATCH)
            m->class = CLASS_NORMAL;
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
    set_windows(mc);
    for (uint32_t d = 0; d < mc->n; d++) {
        struct policy_device *dev = &mc->devices[d];
        dev->window_beside =
            dev->window != SLOT_NONE && latency_beside(mc, dev, &dev->members[dev->window]);
    }
    for (uint32_t d = 0; d < mc->n; d++) {
        struct policy_device *dev = &mc->devices[d];
        if (!dev->nlimited)
            continue;
        if (dev->window != SLOT_NONE)
            give_window(mc, f, dev);
        else
            give_rest(mc, f, dev);
        policy_wake(dev, f->begun_ns + (uint64_t)FRAME_NS);
    }
}
