/* See light_jobs.h: judges, by the record of switches, which contexts are light. */
#include "plan/light_jobs.h"

#include <math.h>

#include "plan/sched_impl.h"

#define LIGHT          0.8 /* duty below which a context becomes light */
#define HEAVY          0.9 /* duty from which on it is light no more */
#define KNOWN_S        0.03
#define KNOWN_RUNS     4U
#define FED_NS         5000000000U  /* without a switch for this time there is no record */
#define GATHER_SEEN_NS 2500000000U  /* before gathering is judged: two looks of a second each */
#define GATHER_BAR_NS  60000000000U /* before contexts are gathered again, doubled each time */
#define IDLE_OVER_S    2.0          /* time constant of the mean idle time */
#define BLIND_OVER_S   185.0        /* the same where the load is not known: 30 s to COMPANY_IDLE */
#define SETTLED_NS     2000000000U
#define WASTED         0.6  /* load below which contexts are gathered */
#define GAINED         0.15 /* increase of the load without which they are gathered no more */
#define CUT_OFTEN      4U   /* a slice is too short if one run in this many ends with it */
#define CONTEXTS_MOST  64U  /* of a job, up to which they are grouped by processes */

bool company_is_fed(const struct policy_device *dev, uint64_t now_ns)
{
    return dev->runs.known && now_ns < dev->runs.since_ns + FED_NS;
}

static bool context_known(const struct context_use *u)
{
    return u->run_s + u->idle_s >= KNOWN_S && u->runs >= KNOWN_RUNS;
}

/* Includes the slices of idle and of tried contexts. */
static const uint32_t slices_us[] = {250, 350, 500, 700, LIGHT_MOST_US};

bool company_has_slice(uint64_t us)
{
    for (size_t i = 0; i < sizeof(slices_us) / sizeof(slices_us[0]); i++) {
        if (us == slices_us[i])
            return true;
    }
    return false;
}

/* The slice for the mean run without switching time, or twice the present one if many runs end with
 * that. It is one of few, because each change is a control call. */
static uint32_t light_slice(const struct sched_params *p, const struct context_use *u,
                            uint32_t now_us)
{
    double us = u->runs ? 1e6 * u->run_s / u->runs - RUNS_OWN_PART * p->switch_us : 0;
    us = u->ended >= KNOWN_RUNS && CUT_OFTEN * u->cut >= u->ended ? 2.0 * now_us : 1.1 * us;
    size_t i = 0;
    while (slices_us[i] < us && slices_us[i] < LIGHT_MOST_US)
        i++;
    return slices_us[i];
}

uint32_t company_first(const struct sched *c, uint32_t group)
{
    uint32_t first = group;
    for (uint32_t i = group; i != SLOT_NONE; i = c->groups[i].next) {
        if (c->groups[i].computes && c->groups[i].process == c->groups[group].process)
            first = i;
    }
    return first;
}

static void judge_group(const struct sched_params *p, struct group *g, struct context_use *u)
{
    /* The duty is a share of the time for which work, or none, is certain; a run costs a switch. */
    double work_s = u->run_s + u->runs * (1 - RUNS_OWN_PART) * 1e-6 * p->switch_us;
    double duty = context_known(u) ? work_s / (work_s + u->idle_s) : 1;
    bool light = duty < (g->light ? HEAVY : LIGHT);
    uint32_t slice_us = light_slice(p, u, g->light ? g->light_us : TRY_SLICE_US);
    if (light && (!g->light || slice_us > g->light_us)) {
        g->light_us = slice_us;
        u->ended = u->cut = 0;
    }
    g->light = light;
    g->duty = light ? duty : 1;
}

static void judge_member(struct sched *c, uint32_t d, struct member *m, bool fed)
{
    const bool was_heavy = m->company.heavy;
    struct context_use nothing = {0};
    m->company.duty = 0;
    m->company.unknown = false;
    m->company.heavy = m->company.light = m->company.slice_us = 0;
    for (uint32_t i = *sched_group_head(c, d, m->job); i != SLOT_NONE; i = c->groups[i].next) {
        struct group *g = &c->groups[i];
        if (!g->computes)
            continue;
        uint32_t first = m->ncompute > CONTEXTS_MOST ? i : company_first(c, i);
        judge_group(&c->params, g, fed ? &c->groups[first].use : &nothing);
        m->company.unknown |= !context_known(&c->groups[first].use);
        m->company.heavy += first == i && !g->light;
        m->company.light += g->light;
        m->company.duty += first == i ? g->duty : 0;
        if (g->light && g->light_us > m->company.slice_us)
            m->company.slice_us = g->light_us;
    }
    /* The same work is a larger share of the time that latency jobs leave. */
    double busy = c->devices[d].speed.busy, duty = fmin(m->company.duty, 1);
    if (busy < 1 && duty > 0)
        duty = duty / (duty + (1 - duty) * (1 - busy));
    m->company.duty = m->idle ? 0 : duty;
    m->company.heavy = !fed || (m->gang && m->idle) ? 1 : m->idle ? 0 : m->company.heavy;
    m->company.saturates = m->company.heavy && !was_heavy && !m->idle;
}

static bool used_it_before(const struct member *m)
{
    return m->present && !m->idle && m->company.heavy && !m->company.saturates;
}

/* Jobs that begin to saturate the GPU get no credit for time that they did not use before: their
 * vtime is at least the least one of their class's jobs that saturated it. */
static void forget_credits(struct policy_device *dev)
{
    uint64_t accounts[CLASS_COUNT] = {TIME_NEVER, TIME_NEVER, TIME_NEVER};
    for_each_member (dev, m)
        dev->accounts[m->account].least_had[m->class] = TIME_NEVER;
    for_each_member (dev, x) {
        uint64_t *least = &dev->accounts[x->account].least_had[x->class];
        const uint64_t had = dev->turns[x->account].all.vtime;
        if (!used_it_before(x))
            continue;
        *least = x->vtime < *least ? x->vtime : *least;
        accounts[x->class] = had < accounts[x->class] ? had : accounts[x->class];
    }
    for_each_member (dev, m) {
        const uint64_t least = dev->accounts[m->account].least_had[m->class];
        uint64_t *had = &dev->turns[m->account].all.vtime;
        if (m->class == CLASS_LATENCY || !m->company.saturates)
            continue;
        if (least != TIME_NEVER && m->vtime < least)
            m->vtime = least;
        if (accounts[m->class] != TIME_NEVER && *had < accounts[m->class])
            *had = accounts[m->class];
    }
}

/* Updates the mean share of time that turns leave idle. Times without a turn, and probes, do not
 * count, and a new job's load is known only after a while. Switches count as busy. */
static void judge_idle(const struct sched_params *p, struct policy_device *dev, uint32_t members,
                       uint32_t light, uint64_t now_ns)
{
    struct company_gather *x = &dev->gather;
    const struct rotation *r = &dev->rotation;
    bool taken = r->current != SLOT_NONE && !dev->members[r->current].idle;
    double over_s = x->busy > 0 ? IDLE_OVER_S : BLIND_OVER_S;
    double seconds = x->judged_ns ? (double)(now_ns - x->judged_ns) * 1e-9 : 0;
    x->idle += (taken - x->busy - x->idle) * fmin(seconds / over_s, 1);
    x->idle -= (dev->runs.n - x->judged_runs) * 1e-6 * p->switch_us / over_s;
    if (members > x->members)
        x->settled_ns = now_ns + SETTLED_NS;
    if (members > x->members || light > x->light)
        dev->try_wait_ns = 0;
    if (now_ns < x->settled_ns)
        x->idle = fmin(x->idle, COMPANY_IDLE);
    x->members = members;
    x->light = light;
    x->judged_ns = now_ns;
    x->judged_runs = dev->runs.n;
}

/* Decides whether the contexts of jobs here are gathered. */
static void judge_gather(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    struct company_gather *x = &dev->gather;
    uint32_t several = 0, members = 0, light = 0;
    x->busy = 0;
    for_each_member (dev, m) {
        x->busy += m->company.busy;
        several += m->present && m->class != CLASS_LATENCY && m->company.heavy > 1;
        members++;
        light += m->company.light;
    }
    judge_idle(p, dev, members, light, now_ns);
    if (!several || !x->since_ns) {
        x->on &= several > 0;
        x->since_ns = several ? now_ns : 0;
        return;
    }
    if (now_ns < x->since_ns + GATHER_SEEN_NS)
        return;
    if (!x->on && x->busy < WASTED && x->busy > 0 && now_ns >= x->again_ns) {
        x->on = true;
        x->before = x->busy;
        x->since_ns = now_ns;
    } else if (x->on && x->busy < x->before + GAINED) {
        x->on = false;
        x->bar_ns = x->bar_ns ? 2 * x->bar_ns : GATHER_BAR_NS;
        x->again_ns = now_ns + x->bar_ns;
        x->since_ns = now_ns;
    }
}

void company_judge(struct sched *c, uint64_t now_ns)
{
    for (uint32_t d = 0; d < c->limits.devices; d++) {
        struct policy_device *dev = &c->devices[d];
        bool fed = company_is_fed(dev, now_ns), saturates = false;
        dev->normal_heavy = false;
        for_each_member (dev, m) {
            if (m->class == CLASS_LATENCY)
                continue;
            judge_member(c, d, m, fed);
            saturates |= m->company.saturates;
            dev->normal_heavy |=
                m->class == CLASS_NORMAL && m->company.heavy && !m->idle && m->present;
        }
        if (saturates && !dev->rotation.linked)
            forget_credits(dev);
        judge_gather(&c->params, dev, now_ns);
    }
}

static bool is_runnable(const struct sched *c, uint32_t group)
{
    return c->groups[group].computes && c->groups[group].runs;
}

void company_count(struct sched *c, uint64_t now_ns)
{
    for (uint32_t d = 0; d < c->limits.devices; d++) {
        struct policy_device *dev = &c->devices[d];
        uint32_t n = 0;
        for_each_member (dev, m) {
            for (uint32_t i = *sched_group_head(c, d, m->job);
                 m->class != CLASS_LATENCY && i != SLOT_NONE; i = c->groups[i].next)
                n += is_runnable(c, i);
        }
        for_each_member (dev, m) {
            for (uint32_t i = *sched_group_head(c, d, m->job); i != SLOT_NONE;
                 i = c->groups[i].next)
                runs_company(&c->groups[i].use,
                             n > 1 && m->class != CLASS_LATENCY && is_runnable(c, i), now_ns);
        }
    }
}
