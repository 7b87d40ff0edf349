/* See turns.h: decides which jobs are gangs, where they take turns, and which devices that
 * links.
 *
 * A gang below the top class on one of its devices takes turns there, and therefore on all of them,
 * because its other members would only spin while it is suspended there. On a device where its
 * class is the top, jobs of that class and below then take turns with it. A gang of the top class
 * on all devices takes turns too if it has peers on two or more of them, because their timeslices
 * are not synchronized and it would run only where they happen to overlap. With peers on one
 * device, timeslices are enough. A gang of the latency class never waits. */
#include "plan/policy.h"

static bool computes(const struct policy_device *dev, uint32_t job)
{
    return !dev->gated && dev->members[job].used && dev->members[job].ncompute;
}

void gang_mark(const struct machine *mc, uint32_t job)
{
    uint32_t n = 0, busy = 0, first = SLOT_NONE;
    for (uint32_t d = 0; d < mc->n; d++)
        busy += computes(&mc->devices[d], job) && !mc->devices[d].members[job].idle_here;
    for (uint32_t d = mc->n; d-- > 0;) {
        if (!computes(&mc->devices[d], job) || (busy && mc->devices[d].members[job].idle_here))
            continue;
        first = d;
        n++;
    }
    for (uint32_t d = 0; d < mc->n; d++) {
        struct member *m = &mc->devices[d].members[job];
        if (!m->used)
            continue;
        m->stray = busy && computes(&mc->devices[d], job) && m->idle_here;
        bool part = n > 1 && computes(&mc->devices[d], job) && !m->stray;
        mc->devices[d].gangs += (uint32_t)part - (m->gang > 0);
        m->gang = part ? n : 0;
        m->gang_first = part ? first : SLOT_NONE;
        m->idle = m->idle_here && !(part && busy);
    }
}

/* Each gang at its first device. */
#define for_each_gang(mc, d, m)                                                                    \
    if ((mc)->devices[d].gangs)                                                                    \
        for_each_member (&(mc)->devices[d], m)                                                     \
            if (m->gang && m->gang_first == (d))

static bool may_wait(const struct member *m)
{
    return m->present && !m->watched && m->class != CLASS_LATENCY;
}

static bool has_peer(const struct policy_device *dev, const struct member *m)
{
    for_each_member (dev, x) {
        if (x->job != m->job && x->class == m->class && x->ncompute && may_wait(x))
            return true;
    }
    return false;
}

static bool takes_turns(const struct machine *mc, const struct member *m)
{
    uint32_t contended = 0;
    if (!may_wait(m))
        return false;
    for_each_device_of (mc, mc->devices, m, dev) {
        if (m->class >= dev->rotation.from)
            return true;
        contended += has_peer(dev, m);
    }
    return contended > 1;
}

/* Turns of one gang may bring turns for others, so this goes on until nothing changes. Each pass
 * lowers the bound of a device, which has three values. */
static void spread_turns(const struct machine *mc)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t d = 0; d < mc->n; d++) {
            for_each_gang (mc, d, m) {
                if (!takes_turns(mc, m))
                    continue;
                for_each_device_of (mc, mc->devices, m, dev) {
                    changed |= dev->rotation.from > m->class;
                    if (dev->rotation.from > m->class)
                        dev->rotation.from = m->class;
                }
            }
        }
    }
}

static void gang_join(const struct machine *mc, uint32_t a, uint32_t b)
{
    uint32_t low = a < b ? a : b, high = a < b ? b : a;
    for (uint32_t d = 0; d < mc->n; d++) {
        struct rotation *r = &mc->devices[d].rotation;
        if (r->link == high)
            r->link = low;
        r->linked |= low != high && r->link == low;
    }
}

/* The lowest vtime floor of the devices that were linked as `before` and now are linked as `link`.
 * TIME_NEVER: there are none. */
static uint64_t reached(const struct machine *mc, uint32_t link, uint32_t before)
{
    uint64_t floor = TIME_NEVER;
    for (uint32_t d = 0; d < mc->n; d++) {
        const struct rotation *r = &mc->devices[d].rotation;
        if (r->link == link && r->was_link == before && r->vtime_floor < floor)
            floor = r->vtime_floor;
    }
    return floor;
}

/* How far a job's account is behind on a device that was not linked, where each account has its own
 * vtime. */
static uint64_t apart(const struct policy_device *dev, const struct member *m)
{
    const struct rotation *r = &dev->rotation;
    return r->linked && !r->was_linked ? r->vtime_floor - dev->turns[m->account].floor : 0;
}

/* Devices that were not linked before have different vtimes. Those that are behind are moved up, so
 * that each job keeps its distance to its peers. */
static void level_vtime(const struct machine *mc, uint32_t link)
{
    uint64_t furthest = 0, round = 0;
    for (uint32_t d = link; d < mc->n; d++) {
        const struct rotation *r = &mc->devices[d].rotation;
        if (r->link != link)
            continue;
        uint64_t floor = reached(mc, link, r->was_link);
        furthest = floor > furthest ? floor : furthest;
        round = r->round_ns > round ? r->round_ns : round;
    }
    for (uint32_t before = 0; before < mc->n; before++) {
        uint64_t floor = reached(mc, link, before);
        for (uint32_t d = link; d < mc->n && floor != TIME_NEVER; d++) {
            struct rotation *r = &mc->devices[d].rotation;
            if (r->link != link || r->was_link != before)
                continue;
            for_each_member (&mc->devices[d], m)
                m->vtime += furthest - floor + apart(&mc->devices[d], m);
            r->vtime_floor += furthest - floor;
            r->round_ns = round;
        }
    }
}

/* A gang that works on a new device keeps its vtime. */
static void level_gang(const struct machine *mc, const struct member *m)
{
    uint64_t most = 0;
    bool fresh = true;
    for_each_device_of (mc, mc->devices, m, dev) {
        const struct member *x = &dev->members[m->job];
        fresh &= x->fresh;
        most = x->vtime > most && !x->fresh ? x->vtime : most;
    }
    for_each_device_of (mc, mc->devices, m, dev) {
        dev->members[m->job].vtime = most;
        dev->members[m->job].fresh = fresh;
    }
}

void gang_link(const struct machine *mc)
{
    spread_turns(mc);
    for (uint32_t d = 0; d < mc->n; d++) {
        mc->devices[d].rotation.was_link = mc->devices[d].rotation.link;
        mc->devices[d].rotation.link = d;
        mc->devices[d].rotation.was_linked = mc->devices[d].rotation.linked;
        mc->devices[d].rotation.linked = false;
    }
    for (uint32_t d = 0; d < mc->n; d++) {
        for_each_gang (mc, d, m) {
            if (!takes_turns(mc, m))
                continue;
            for_each_device_of (mc, mc->devices, m, dev)
                gang_join(mc, mc->devices[d].rotation.link, dev->rotation.link);
        }
    }
    for (uint32_t d = 0; d < mc->n; d++) {
        if (mc->devices[d].rotation.link == d)
            level_vtime(mc, d);
    }
    for (uint32_t d = 0; d < mc->n; d++) {
        for_each_gang (mc, d, m) {
            if (takes_turns(mc, m))
                level_gang(mc, m);
        }
    }
}
