/* See light_jobs.h: chooses the jobs that run together with the one that has its turn. */
#include "plan/light_jobs.h"

#include <math.h>
#include <stdlib.h>

#include "plan/sched_impl.h"

#define ROOM           2.0 /* sum of duties of light jobs; above 1 as estimates are too high */
#define ROOM_OUTRANKED 1.0 /* the same for batch jobs while a normal one works */
#define PART_LEAST     0.1 /* least part of a turn that a job which saturates the GPU is charged */
#define TRY_NS         150000000U
/* Time until another try on a device, 1.5 times as long after each that finds no light context. */
#define TRY_NEXT_NS     500000000U
#define TRY_AGAIN_NS    4000000000U
#define TRY_SELDOM_NS   64000000000U
#define TRY_BLIND_NS    30000000000U /* if the load of the device is not known */
#define TRY_CONTEXTS    8U           /* that run at once in a try, at most */
#define GATHER_US       500U
#define GATHER_CONTEXTS 64U  /* of a job, at most, because latency jobs wait for each of them */
#define FIT_LEAST_US    100U /* shortest slice with which contexts fit into a budget */
#define AHEAD_TURNS     2
#define IDLE_MOST       4U   /* idle jobs that run at once, in case they begin to work */
#define IDLE_US         250U /* their slice */

/* A batch job while a normal job wants the device. */
static bool is_outranked(const struct policy_device *dev, const struct member *m)
{
    return dev->rotation.batch_waits && m->class == CLASS_BATCH;
}

/* While a normal job saturates the device no batch job counts as light. */
static bool is_light(const struct policy_device *dev, const struct member *m)
{
    return !m->company.heavy && !(is_outranked(dev, m) && dev->normal_heavy);
}

static bool has_company(const struct policy_device *dev)
{
    const struct rotation *r = &dev->rotation;
    return dev->company && (r->linked || (r->current != SLOT_NONE && !r->by_class));
}

/* On linked devices a job is light if it is so on all of them. */
static bool counts_as_light(const struct policy_device *dev, const struct member *m)
{
    return dev->rotation.linked ? m->company.floats : is_light(dev, m);
}

/* Whether the job had so much more than the current job that it has to wait. */
static bool is_ahead(const struct sched_params *p, const struct policy_device *dev,
                     const struct member *m, const struct member *current)
{
    double turns = AHEAD_TURNS * p->rotation_us * 1e3 * WEIGHT_DEFAULT;
    if (dev->rotation.linked || m->account == current->account)
        return (double)m->vtime > (double)current->vtime +
                                      turns / m->turn_weight / (dev->rotation.linked ? m->pace : 1);
    return (double)dev->turns[m->account].all.vtime >
           (double)dev->turns[current->account].all.vtime + turns / dev->turns[m->account].part;
}

static struct member *current_of(const struct policy_device *dev)
{
    return dev->rotation.current == SLOT_NONE ? NULL : &dev->members[dev->rotation.current];
}

static bool may_join(const struct policy_device *dev, const struct member *m)
{
    return rotation_takes_part(dev, m) && m->job != dev->rotation.current && !m->company.beside;
}

/* The longest slice with which this number of contexts may have work at once within the latency
 * jobs' budget; 0: none. */
static uint32_t fit_us(const struct sched_params *p, const struct policy_device *dev,
                       uint32_t contexts)
{
    const uint32_t budget_us = policy_budget(dev), spared_us = (contexts + 2) * p->switch_us;
    if (!budget_us)
        return UINT32_MAX;
    return budget_us > spared_us ? (budget_us - spared_us) / contexts : 0;
}

/* The number of contexts that may, with slices that are long enough to be of use. */
static uint32_t contexts_most(const struct sched_params *p, const struct policy_device *dev)
{
    const uint32_t budget_us = policy_budget(dev), spared_us = 2 * p->switch_us;
    if (!budget_us)
        return UINT32_MAX;
    return budget_us > spared_us ? (budget_us - spared_us) / (FIT_LEAST_US + p->switch_us) : 0;
}

static bool is_gathered(const struct policy_device *dev, const struct member *m)
{
    return dev->gather.on && m->company.heavy > 1 && member_width(m) <= GATHER_CONTEXTS;
}

/* The number of its contexts that run at once in a turn: the light ones, and one of the others. */
static uint32_t member_at_once(const struct policy_device *dev, const struct member *m, bool tries)
{
    const uint32_t width = member_width(m);
    if (dev->alone && m->job == dev->rotation.current)
        return 1;
    if (tries || is_gathered(dev, m))
        return width;
    if (is_outranked(dev, m) && !is_light(dev, m))
        return 1;
    if (m->idle && !m->company.heavy)
        return width;
    return m->company.light + (m->company.light < width);
}

/* Whether latency jobs keep their floor of speed with light contexts of this duty and slice. */
static bool room_keeps_floor(const struct sched_params *p, const struct policy_device *dev,
                             double duty, uint32_t slice_us)
{
    const double most = dev->speed.may_lose > 0 ? dev->speed.may_lose : INFINITY;
    return speed_floor_lost(p, &dev->speed, duty, slice_us) <= most;
}

/* Whether the job fits, as a light one or as the one that saturates the GPU. */
static bool room_fits(const struct sched_params *p, const struct policy_device *dev,
                      const struct member *m, bool light)
{
    const struct company_room *room = &dev->room;
    if (!has_company(dev) || !may_join(dev, m))
        return false;
    if (!light)
        return !room->heavy && room->contexts;
    if (!room->heavy && room->duty <= 0)
        return true; /* otherwise it would never run */
    return room->duty + m->company.duty <= (is_outranked(dev, m) ? ROOM_OUTRANKED : ROOM) &&
           room_keeps_floor(p, dev, room->duty + m->company.duty, TRY_SLICE_US) &&
           member_at_once(dev, m, false) <= room->contexts &&
           (!room->heavy || !is_ahead(p, dev, m, room->heavy));
}

static void take_contexts(struct policy_device *dev, const struct member *m)
{
    const uint32_t contexts = member_at_once(dev, m, false);
    dev->room.contexts -= contexts < dev->room.contexts ? contexts : dev->room.contexts;
}

static void room_take(struct policy_device *dev, struct member *m, bool light, uint64_t now_ns)
{
    m->company.beside = true;
    take_contexts(dev, m);
    if (!light) {
        dev->room.heavy = m;
        if (dev->rotation.turn_ns == now_ns)
            m->turn_group = SLOT_NONE; /* the next of several contexts runs */
        return;
    }
    dev->room.duty += m->company.duty;
}

/* By class, then in the order of turns. */
static int company_order(const void *x, const void *y)
{
    const struct company_entry *a = x, *b = y;
    if (a->m->class != b->m->class)
        return a->m->class < b->m->class ? -1 : 1;
    if (a->dev->rotation.linked)
        return (a->m->vtime > b->m->vtime) - (a->m->vtime < b->m->vtime);
    return account_before(a->dev, a->m, b->m) ? -1 : account_before(a->dev, b->m, a->m);
}

static bool in_try(const struct policy_device *dev, uint64_t now_ns)
{
    return now_ns < dev->try_until_ns;
}

/* Whether the job is tried in this decision. */
static bool is_tried(const struct policy_device *dev, const struct member *m)
{
    return dev->tries && m->job == dev->tried;
}

/* How badly the job serves as a witness, which should always have work. */
static uint32_t blindness(const struct member *m)
{
    return (m->company.heavy ? 0U : 2U) + m->company.unknown;
}

static bool may_witness(const struct machine *mc, struct policy_device *own, const struct member *m)
{
    bool may = may_join(own, m) && !m->idle;
    for_each_device_of (mc, own, m, dev)
        may &= has_company(dev) && !in_try(dev, mc->now_ns) &&
               rotation_takes_part(dev, &dev->members[m->job]);
    return may;
}

static struct member *find_witness(const struct machine *mc, struct policy_device *dev)
{
    struct member *best = NULL;
    for_each_member (dev, m) {
        if (may_witness(mc, dev, m) &&
            (!best || blindness(m) < blindness(best) ||
             (blindness(m) == blindness(best) && account_before(dev, m, best))))
            best = m;
    }
    return best;
}

/* A try is due only where turns leave the device idle, because else there is nothing to gain. */
static bool is_try_due(const struct policy_device *dev, const struct member *m, uint64_t now_ns)
{
    return company_is_fed(dev, now_ns) && now_ns >= dev->try_next_ns && !m->idle &&
           dev->gather.idle > COMPANY_IDLE && dev->gather.busy < 1 - COMPANY_IDLE &&
           (m->company.unknown || now_ns >= m->company.tried_ns + m->company.try_ns);
}

static void put_off(struct policy_device *dev, struct member *m, uint64_t now_ns)
{
    const uint64_t least_ns = dev->gather.busy > 0 ? TRY_NEXT_NS : TRY_BLIND_NS;
    dev->try_wait_ns = clamp_u64(dev->try_wait_ns + dev->try_wait_ns / 2, least_ns, TRY_SELDOM_NS);
    dev->try_next_ns = now_ns + dev->try_wait_ns;
    m->company.try_ns = m->company.unknown
                            ? TRY_AGAIN_NS
                            : clamp_u64(2 * m->company.try_ns, TRY_AGAIN_NS, TRY_SELDOM_NS);
    m->company.tried_ns = now_ns;
}

/* Begins a try on one device. A gang that is a witness is so on all its devices, for every job that
 * is tried there meanwhile. */
static bool try_on(const struct machine *mc, struct policy_device *dev, const struct member *m)
{
    const uint32_t n = member_width(m);
    const bool is_on = in_try(dev, mc->now_ns);
    struct member *witness = !is_on                      ? find_witness(mc, dev)
                             : dev->witness == SLOT_NONE ? NULL
                                                         : &dev->members[dev->witness];
    if (!has_company(dev) || (is_on && dev->tried != SLOT_NONE) || n + (witness != NULL) < 2 ||
        n > TRY_CONTEXTS || n + (witness != NULL) > contexts_most(mc->params, dev))
        return false;
    for_each_device_of (mc, dev, witness ? witness : m, x) {
        if (in_try(x, mc->now_ns))
            continue;
        x->tried = SLOT_NONE;
        x->witness = witness ? witness->job : SLOT_NONE;
        x->try_until_ns = mc->now_ns + TRY_NS;
    }
    dev->tried = m->job;
    return true;
}

/* Begins a try, of a gang on all its devices at once, because a delay on one of them delays all. */
static void begin_try(const struct machine *mc, struct policy_device *own, struct member *m)
{
    bool due = true, begun = false;
    for_each_device_of (mc, own, m, dev) {
        const struct member *x = &dev->members[m->job];
        due &= !x->company.heavy || is_try_due(dev, x, mc->now_ns);
    }
    if (!due)
        return;
    for_each_device_of (mc, own, m, dev)
        begun |= try_on(mc, dev, &dev->members[m->job]);
    if (!begun)
        return;
    for_each_device_of (mc, own, m, dev)
        put_off(dev, &dev->members[m->job], mc->now_ns);
}

static void join_try(const struct machine *mc, struct policy_device *own)
{
    if (!in_try(own, mc->now_ns))
        return;
    policy_wake(own, own->try_until_ns);
    if (own->witness == SLOT_NONE)
        return;
    struct member *m = &own->members[own->witness];
    bool joins = m->used && own->rotation.current != m->job;
    for_each_device_of (mc, own, m, dev)
        joins &= dev->witness == m->job && in_try(dev, mc->now_ns) &&
                 rotation_takes_part(dev, &dev->members[m->job]);
    m->company.beside |= joins;
}

/* Lets some idle jobs run in each turn, so that it is seen when they begin to work: one at least,
 * and not all, because they may begin together. */
static void watch_idle(const struct sched_params *p, struct policy_device *dev)
{
    const uint32_t room = dev->room.contexts;
    const uint32_t most = room < 1 ? 1 : room < IDLE_MOST ? room : IDLE_MOST;
    uint32_t n = 0, i = 0;
    for_each_member (dev, m)
        n += m->idle && is_light(dev, m) && may_join(dev, m);
    uint64_t turn = dev->rotation.turn_ns / (p->rotation_us * 1000ULL);
    uint32_t first = n > most ? (uint32_t)(turn * most % n) : 0;
    for_each_member (dev, m) {
        if (m->idle && is_light(dev, m) && may_join(dev, m))
            m->company.beside = n && (i++ + n - first) % n < most;
    }
}

/* Sets the room that the current job leaves. */
static void room_open(const struct sched_params *p, struct policy_device *dev)
{
    struct company_room *room = &dev->room;
    struct member *current = current_of(dev);
    bool light = !current || is_light(dev, current);
    *room =
        (struct company_room){.heavy = light ? NULL : current, .contexts = contexts_most(p, dev)};
    dev->alone = false;
    if (!current)
        return;
    dev->alone = member_at_once(dev, current, false) > room->contexts;
    take_contexts(dev, current);
    room->duty = light ? current->company.duty : 0;
}

/* Lets a job run on all its devices or on none. last: a batch job that did not fit so far may be
 * the one that saturates the GPU, with the shortest slice. */
static void join_all(const struct machine *mc, const struct company_entry *at, bool last)
{
    bool fits = true;
    for (int pass = 0; pass < 2 && fits; pass++) {
        for_each_device_of (mc, at->dev, at->m, dev) {
            struct member *m = &dev->members[at->m->job];
            bool light = (is_light(dev, m) || dev->takers == 1) && !(last && is_outranked(dev, m));
            if (pass)
                room_take(dev, m, light, mc->now_ns);
            else
                fits &= room_fits(mc->params, dev, m, light);
        }
    }
}

/* Whether the job is considered in this pass: first jobs that saturate the GPU, then light ones,
 * last batch jobs once more. */
static bool is_in_pass(const struct company_entry *at, int pass)
{
    return pass == 2 ? is_outranked(at->dev, at->m) : counts_as_light(at->dev, at->m) == pass;
}

/* For this device and those that are linked to it; it is the first of them. */
static void pick_beside(const struct machine *mc, uint32_t first)
{
    struct company_entry *order = mc->order;
    size_t n = 0;
    for (uint32_t d = first; d < mc->n; d++) {
        struct policy_device *dev = &mc->devices[d];
        if (dev->rotation.link != first || !has_company(dev))
            continue;
        room_open(mc->params, dev);
        for_each_member (dev, m) {
            if (may_join(dev, m) && !m->idle && (!m->gang || m->gang_first == d))
                order[n++] = (struct company_entry){dev, m};
        }
    }
    qsort(order, n, sizeof(*order), company_order);
    for (int pass = 0; pass < 3; pass++) {
        for (size_t i = 0; i < n; i++) {
            if (is_in_pass(&order[i], pass))
                join_all(mc, &order[i], pass == 2);
        }
    }
}

void company_open(const struct sched_params *p, struct policy_device *dev)
{
    const struct rotation *r = &dev->rotation;
    dev->company = r->from != CLASS_COUNT && !r->blocked && dev->window == SLOT_NONE &&
                   dev->boost.job == SLOT_NONE && speed_floor_beside_us(p, &dev->speed);
    dev->takers = 0;
    for_each_member (dev, m) {
        dev->takers += rotation_takes_part(dev, m);
        m->company.floats = false;
    }
}

void company_float(const struct machine *mc, struct policy_device *own, const struct member *m)
{
    bool floats = true, others = false;
    for_each_device_of (mc, own, m, dev) {
        const struct member *x = &dev->members[m->job];
        others |= dev->takers > 1;
        /* A job that would not fit even if no other ran takes turns. */
        floats &= dev->company && rotation_takes_part(dev, x) &&
                  (dev->takers == 1 ||
                   (is_light(dev, x) &&
                    room_keeps_floor(mc->params, dev, x->company.duty, TRY_SLICE_US) &&
                    member_at_once(dev, x, false) <= contexts_most(mc->params, dev)));
    }
    for_each_device_of (mc, own, m, dev)
        dev->members[m->job].company.floats = floats && others;
}

/* The longest slice while several contexts run, within the latency jobs' budget and their floor of
 * speed, and most_us, because longer slices would hide that a context waits for its host. */
static uint32_t bound_us(const struct sched_params *p, const struct policy_device *dev,
                         uint32_t most_us)
{
    uint32_t us = UINT32_MAX;
    if (dev->contexts < 2)
        return us;
    if (policy_budget(dev)) {
        us = fit_us(p, dev, dev->contexts);
        us = us < most_us ? us : most_us;
    }
    if (room_keeps_floor(p, dev, dev->room.duty, LIGHT_MOST_US))
        return us;
    return us < TRY_SLICE_US ? us : TRY_SLICE_US;
}

void company_pick(const struct machine *mc)
{
    for (uint32_t d = 0; d < mc->n; d++) {
        for_each_member (&mc->devices[d], m)
            m->company.beside = false;
    }
    for (uint32_t d = 0; d < mc->n; d++) {
        if (!mc->devices[d].gated && mc->devices[d].rotation.link == d)
            pick_beside(mc, d);
    }
    for_each (dev, mc->devices, mc->n) {
        if (!has_company(dev)) {
            dev->try_until_ns = 0;
            continue;
        }
        watch_idle(mc->params, dev);
        if (dev->room.heavy && dev->room.heavy->company.heavy)
            begin_try(mc, dev, dev->room.heavy);
    }
    for_each (dev, mc->devices, mc->n) {
        join_try(mc, dev);
        dev->tries = in_try(dev, mc->now_ns);
        dev->contexts = 0;
        for_each_member (dev, m) {
            if (m->company.beside || m->job == dev->rotation.current)
                dev->contexts += member_at_once(dev, m, is_tried(dev, m));
        }
        dev->fits_us = bound_us(mc->params, dev, dev->tries ? TRY_SLICE_US : LIGHT_MOST_US);
    }
}

uint32_t company_bounds(const struct sched_params *p, const struct policy_device *dev,
                        uint32_t slice_us)
{
    const uint32_t most_us =
        dev->fits_us > p->timeslice_min_us && !dev->tries ? dev->fits_us : p->timeslice_min_us;
    return p->floor > 0.0 || slice_us < most_us ? slice_us : most_us;
}

double company_charge(const struct policy_device *dev, const struct member *m, double turn_ns)
{
    double others_ns = 0;
    if (!dev->company)
        return turn_ns;
    if (counts_as_light(dev, m))
        return fmin(m->company.used_ns, turn_ns);
    for_each_member (dev, x) {
        if (x != m && (x->company.beside || counts_as_light(dev, x)))
            others_ns += x->company.used_ns;
    }
    double least = PART_LEAST;
    if (m->company.beside &&
        m == dev->room.heavy) /* a light context keeps the engine until this job wants it */
        least = fmax(least, 1 - dev->room.duty);
    double own_ns = fmax(turn_ns - others_ns, least * turn_ns);
    /* A job that runs only for a try is charged what it used. */
    return m->company.beside && m != dev->room.heavy ? fmin(m->company.used_ns, own_ns) : own_ns;
}

uint32_t company_slice(const struct sched *c, const struct group *g)
{
    const struct policy_device *dev = &c->devices[g->device];
    const struct member *m = &dev->members[g->job];
    uint32_t most_us = speed_floor_beside_us(&c->params, &dev->speed), us = 0;
    bool gathered = is_gathered(dev, m);
    /* Light contexts of one job run together, because they may wait for each other. */
    bool light = is_light(dev, m) && (dev->room.heavy != m || m->ncompute > 1);
    bool shortest = is_outranked(dev, m) && !light;
    bool tried = is_tried(dev, m);
    bool together = gathered || (tried && m->ncompute > 1);
    if (dev->contexts < 2 || (dev->alone && m->job == dev->rotation.current) ||
        (shortest && !together))
        return 0;
    if (m->idle && !m->company.heavy)
        us = IDLE_US;
    else if (g->light)
        us = g->light_us;
    else if (gathered)
        us = GATHER_US;
    us = tried ? TRY_SLICE_US : us;
    us = us < dev->fits_us ? us : dev->fits_us;
    return us < most_us ? us : most_us;
}
