/* See limits.h. */
#include "plan/limits.h"

#include <math.h>

#include "plan/limit_parts.h"

#define FRAME_NS         500000000.0 /* limits.h says why */
#define LATENCY_FRAME_NS 100000000.0
#define WINDOW_MIN_NS    5000000.0
#define SLICE_LEAST_US   200U     /* a switch takes as long */
#define REST_NS          500000.0 /* of a window that is left: not worth another turn */
/* What stopping one job takes before the next can run. Measured on H200: a window beside seven
 * others was shorter by 5 ms, one after a single other by 0.7 ms. */
#define STOP_NS 700000.0
#define LOW     0.1 /* a ceiling, in the gaps of which a job beside one that saturates hardly runs */

/* ---- frames ---- */

static const struct limits *of_account(const struct policy_device *dev, const struct member *m)
{
    return &dev->accounts[m->account].limits;
}

static bool is_limited(const struct policy_device *dev, const struct member *m)
{
    const struct limits *a = of_account(dev, m), *own = &m->limit.own;
    if (!m->present && m->limit.verdict != LIMIT_OUT)
        return false; /* paused */
    return own->max > 0 || a->max > 0 ||
           (limits_class(m) != CLASS_LATENCY && (own->min > 0 || a->min > 0));
}

/* The length of a probe. */
static double look_ns(const struct sched_params *p)
{
    return fmin(p->probe_us * 1e3, FRAME_NS / 5);
}

static bool first_of(const struct machine *mc, const struct policy_device *dev,
                     const struct member *m)
{
    return !m->gang || dev == mc->devices + m->gang_first;
}

static double ceiling_of(const struct policy_device *dev, const struct member *m)
{
    return fmin(limits_ceiling(&m->limit.own), limits_ceiling(of_account(dev, m)));
}

/* Chooses an idle job that is probed in this frame, where the rest of the frame may leave it
 * nothing, or too little to see that it works: a gang, a job with a low ceiling, any job with
 * latency jobs, or, where limited jobs work, also one without limits. It is the account, and of
 * that the job, whose last probe was longest ago. */
static void choose_probe(struct policy_device *dev)
{
    bool latency = false, windows = false;
    const struct member *best = NULL;
    for_each_member (dev, m) {
        latency |= limits_class(m) == CLASS_LATENCY && limits_present(m);
        windows |= limits_takes_part(m) && is_limited(dev, m);
    }
    for_each_member (dev, m) {
        const bool unseen = latency || m->gang || ceiling_of(dev, m) < LOW;
        if (!m->idle || !limits_present(m) || limits_class(m) == CLASS_LATENCY ||
            !(windows || (unseen && is_limited(dev, m))))
            continue;
        uint64_t account = dev->accounts[m->account].fill.looked;
        uint64_t than = best ? dev->accounts[best->account].fill.looked : 0;
        if (!best || account < than || (account == than && m->limit.looked < best->limit.looked))
            best = m;
    }
    dev->probed = best ? best->job : SLOT_NONE;
}

/* The next window, less what the last one had too much, or with what was too short for a window. */
static double window_of(const struct member *m, double quota)
{
    double saved = fmin(m->limit.window_ns, quota < WINDOW_MIN_NS ? WINDOW_MIN_NS : 0);
    return fmax(quota + saved, -FRAME_NS);
}

/* Gives a job its window and gaps of a new frame; an idle job gets gaps, in which it is seen when
 * it begins to work, and a window if it is probed. */
static void renew(const struct machine *mc, const struct frames *f, struct policy_device *own,
                  struct member *m)
{
    double part = 1, max = ceiling_of(own, m);
    for_each_device_of (mc, own, m, dev)
        part = fmin(part, dev->members[m->job].limit.part);
    double window = window_of(m, part * FRAME_NS);
    double gaps = (m->limit.most - m->limit.part) * FRAME_NS;
    if (m->idle) {
        bool looked_at = own->probed == m->job;
        window = looked_at ? fmin(max * FRAME_NS, look_ns(mc->params)) : 0;
        gaps = max * FRAME_NS - window;
        if (looked_at)
            m->limit.looked = own->accounts[m->account].fill.looked = f->number;
    }
    for_each_device_of (mc, own, m, dev) {
        struct member_limits *l = &dev->members[m->job].limit;
        l->window_ns = window;
        l->gaps_ns = m->gang ? 0 : gaps;
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
        choose_probe(&mc->devices[d]);
        double looks = mc->devices[d].probed == SLOT_NONE ? 0 : look_ns(mc->params) / FRAME_NS;
        limit_parts_set(mc->params, &mc->devices[d], f->claims, 1 - looks);
    }
    for_each (own, mc->devices, mc->n) {
        for_each_member (own, m) {
            bool any = is_limited(own, m) || own->probed == m->job;
            if (any && limits_class(m) != CLASS_LATENCY && first_of(mc, own, m))
                renew(mc, f, own, m);
            else if (!any)
                m->limit.window_ns = m->limit.gaps_ns = 0;
        }
    }
}

static void begin_latency_frame(const struct machine *mc, struct frames *f)
{
    uint64_t frame = (uint64_t)LATENCY_FRAME_NS;
    f->latency_ns = mc->now_ns - (mc->now_ns - f->begun_ns) % frame;
    for (uint32_t d = 0; d < mc->n; d++) {
        for_each_member (&mc->devices[d], m) {
            if (limits_class(m) != CLASS_LATENCY || !is_limited(&mc->devices[d], m))
                continue;
            m->limit.part = ceiling_of(&mc->devices[d], m);
            m->limit.window_ns = window_of(m, m->limit.part * LATENCY_FRAME_NS);
        }
    }
}

static void charge(const struct machine *mc, struct frames *f)
{
    double ns = mc->now_ns > f->charged_ns ? (double)(mc->now_ns - f->charged_ns) : 0;
    f->charged_ns = mc->now_ns;
    for_each (dev, mc->devices, mc->n) {
        for_each_member (dev, m) {
            bool runs = limits_class(m) == CLASS_LATENCY ? m->limit.begun : dev->window == m->job;
            m->limit.window_ns -= runs ? ns : 0;
            m->limit.gaps_ns -= m->limit.in_gaps && m->runnable ? ns : 0;
            m->limit.in_gaps = false;
        }
    }
}

void limits_charge(const struct policy_device *dev, struct member *m, uint64_t ns)
{
    m->limit.window_ns -= is_limited(dev, m) ? (double)ns : 0;
}

/* ---- windows ---- */

static double part_ns(const struct member *m)
{
    return m->limit.part * (limits_class(m) == CLASS_LATENCY ? LATENCY_FRAME_NS : FRAME_NS);
}

/* The least time for which a window begins. */
static double window_least(const struct member *m)
{
    return part_ns(m) < WINDOW_MIN_NS && !m->idle ? WINDOW_MIN_NS : REST_NS;
}

static bool may_have_window(const struct policy_device *dev, const struct member *m)
{
    double least = dev->window == m->job ? 1 : window_least(m) * 0.99;
    return limits_present(m) && m->limit.window_ns >= least;
}

static bool window_fits(const struct machine *mc, struct policy_device *own, const struct member *m)
{
    for_each_device_of (mc, own, m, dev) {
        if (dev->window != SLOT_NONE || !may_have_window(dev, &dev->members[m->job]))
            return false;
    }
    return true;
}

/* Suspending the others, all but one that fills the gaps, takes time, by which a window is longer,
 * below the ceiling. */
static double stopping_ns(const struct policy_device *dev, const struct member *current)
{
    double stopped = -1, max = ceiling_of(dev, current);
    for_each_member (dev, m)
        stopped += limits_takes_part(m) && !is_limited(dev, m);
    return fmax(fmin(stopped * STOP_NS, (max - current->limit.part) * FRAME_NS), 0);
}

/* The job that is probed comes first, so that windows leave enough for it; then gangs, which need
 * several devices at once; then the job whose last window was longest ago. */
static struct member *next_window(const struct machine *mc, struct policy_device *own)
{
    struct member *best = NULL;
    unsigned best_rank = 0;
    if (!own->nlimited || own->window != SLOT_NONE)
        return NULL;
    for_each_member (own, m) {
        unsigned rank = own->probed == m->job ? 0 : m->gang ? 1 : 2;
        if (limits_class(m) == CLASS_LATENCY || !window_fits(mc, own, m) ||
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
    for_each (own, mc->devices, mc->n) {
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

static void take_out(const struct machine *mc, struct policy_device *own, struct member *m)
{
    for_each_device_of (mc, own, m, dev) {
        struct member *x = &dev->members[m->job];
        if (limits_present(x))
            x->limit.verdict = LIMIT_OUT;
    }
}

/* Suspends latency jobs that have had their part. Nothing else changes: lower jobs go on with their
 * turns and slices. */
static void suspend_latency(const struct machine *mc, const struct frames *f,
                            struct policy_device *own)
{
    for_each_member (own, m) {
        if (limits_class(m) != CLASS_LATENCY || !limits_present(m) || !is_limited(own, m))
            continue;
        /* A part that is too short to be of use is saved up. */
        m->limit.begun = m->limit.window_ns >= (m->limit.begun ? 1 : window_least(m) * 0.99);
        if (m->limit.begun)
            policy_wake(own, policy_after(mc->now_ns + 1, m->limit.window_ns));
        for_each_device_of (mc, own, m, dev) {
            if (!m->limit.begun)
                dev->members[m->job].limit.verdict = LIMIT_AWAY;
        }
        policy_wake(own, f->latency_ns + (uint64_t)LATENCY_FRAME_NS);
    }
}

static bool latency_beside(const struct machine *mc, struct policy_device *own,
                           const struct member *m)
{
    for_each_device_of (mc, own, m, dev) {
        for_each_member (dev, x) {
            if (limits_class(x) == CLASS_LATENCY && x != &dev->members[m->job] && limits_present(x))
                return true;
        }
    }
    return false;
}

/* A gang has no gaps, because its class has to be the same on all its devices. */
static bool has_gaps(const struct member *m)
{
    return limits_present(m) && !m->gang && limits_class(m) != CLASS_LATENCY &&
           m->limit.gaps_ns >= REST_NS;
}

static void give_gaps(const struct machine *mc, const struct frames *f, struct policy_device *dev,
                      struct member *m)
{
    m->limit.in_gaps = true;
    dev->turns_from_ns = f->begun_ns;
    policy_wake(dev, policy_after(mc->now_ns + 1, m->limit.gaps_ns));
}

/* Decides a device with a window, whose gaps the other jobs share as usual. */
static void give_window(const struct machine *mc, const struct frames *f, struct policy_device *dev)
{
    struct member *current = &dev->members[dev->window];
    bool beside = dev->window_beside;
    for_each_member (dev, m) {
        if (m == current || limits_class(m) == CLASS_LATENCY || (!beside && !is_limited(dev, m)))
            continue;
        if (!beside && has_gaps(m))
            give_gaps(mc, f, dev, m);
        else
            take_out(mc, dev, m);
    }
    current->limit.class = beside ? CLASS_COUNT : CLASS_LATENCY;
    policy_wake(dev, policy_after(mc->now_ns + 1, current->limit.window_ns));
}

/* Decides a device without a window: jobs without limits run, and limited jobs run in their gaps,
 * with small slices (policy/priority.c) or by turns. An idle job has turns as if it had no limits,
 * because with the long slices of others it would never be seen to begin to work. */
static void give_rest(const struct machine *mc, const struct frames *f, struct policy_device *dev)
{
    bool latency = false, gaps = false, normal = false;
    for_each_member (dev, m) {
        latency |= limits_class(m) == CLASS_LATENCY && limits_present(m);
        normal |= limits_class(m) == CLASS_NORMAL && limits_takes_part(m) && !is_limited(dev, m);
    }
    for_each_member (dev, m) {
        if (!is_limited(dev, m) || limits_class(m) == CLASS_LATENCY)
            continue;
        if (latency || !has_gaps(m)) {
            take_out(mc, dev, m);
            continue;
        }
        give_gaps(mc, f, dev, m);
        gaps |= !m->idle;
        m->limit.class = normal ? limits_class(m) : CLASS_BATCH;
    }
    for_each_member (dev, m) {
        if (gaps && !normal && !m->gang && !m->limit.in_gaps && m->class == CLASS_BATCH)
            m->limit.class = CLASS_NORMAL;
    }
}

/* In a part that is hardly longer than a timeslice only the first of a job's contexts would run,
 * the same in every frame, so timeslices are shorter. Where windows change timeslices, groups that
 * only copy keep the driver's, because each of a context's three costs as much as the computing
 * one. */
void limits_slices(struct policy_device *dev)
{
    bool windows = dev->nlimited > 0;
    for_each_member (dev, m)
        windows &= limits_class(m) != CLASS_LATENCY || !limits_present(m);
    for_each_member (dev, m) {
        double us = part_ns(m) / 1e3 / (2 * member_width(m));
        if (member_width(m) > 1 && is_limited(dev, m) && us < m->timeslice_us)
            m->timeslice_us = us < SLICE_LEAST_US ? SLICE_LEAST_US : (uint32_t)us;
        if (windows) {
            m->compute_us = m->timeslice_us;
            m->timeslice_us = 0;
        }
    }
}

void limits_release(const struct machine *mc)
{
    for (uint32_t d = 0; d < mc->n; d++) {
        for_each_member (&mc->devices[d], m) {
            m->limit.verdict = LIMIT_NONE;
            m->limit.class = CLASS_COUNT;
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
    for_each (dev, mc->devices, mc->n) {
        dev->nlimited = 0;
        for_each_member (dev, m)
            dev->nlimited += is_limited(dev, m);
        any |= dev->nlimited > 0;
    }
    charge(mc, f);
    bool first = !f->number;
    if (any && (first || mc->now_ns - f->begun_ns >= (uint64_t)FRAME_NS))
        begin_frame(mc, f);
    if (any && (first || mc->now_ns - f->latency_ns >= (uint64_t)LATENCY_FRAME_NS))
        begin_latency_frame(mc, f);
    for (uint32_t d = 0; d < mc->n; d++)
        suspend_latency(mc, f, &mc->devices[d]);
    set_windows(mc);
    for_each (dev, mc->devices, mc->n) {
        dev->window_beside =
            dev->window != SLOT_NONE && latency_beside(mc, dev, &dev->members[dev->window]);
    }
    for_each (dev, mc->devices, mc->n) {
        if (!dev->nlimited && dev->window == SLOT_NONE)
            continue; /* but a gang that is probed elsewhere has a window here, too */
        if (dev->window != SLOT_NONE)
            give_window(mc, f, dev);
        else
            give_rest(mc, f, dev);
        policy_wake(dev, f->begun_ns + (uint64_t)FRAME_NS);
    }
}
