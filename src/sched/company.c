/* See company.h. */
#include "sched/company.h"

#include <math.h>
#include <stdlib.h>

#include "sched/sched_impl.h"

#define LIGHT          0.8 /* duty below which a context is light, */
#define HEAVY          0.9 /* and above which it is no more */
#define ROOM           1.5 /* duties of light jobs that run together: estimates are too high */
#define PART_LEAST     0.1 /* of a turn, that a job is charged which saturates the GPU */
#define KNOWN_S        0.05
#define KNOWN_RUNS     4U
#define FED_NS         5000000000U /* a record in which nothing happened for so long is none */
#define TRY_NS         150000000U
#define TRY_AGAIN_NS   4000000000U
#define TRY_SELDOM_NS  64000000000U
#define TRY_BLIND_NS   30000000000U /* if it is not known how busy jobs keep the device */
#define TRY_IDLE_NS    1500000000U
#define TRY_SLICE_US   500U
#define TRY_CONTEXTS   8U /* that run at once */
#define LIGHT_MOST_US  1000U
#define GATHER_US      500U
#define GATHER_SEEN_NS 2500000000U  /* two looks of a second each */
#define GATHER_BAR_NS  60000000000U /* and twice as long each time */
#define BUSY           0.85         /* how busy turns have to keep a device for no try to be made */
#define WASTED         0.6          /* how busy a device is at most, for contexts to be gathered */
#define GAINED         0.15         /* by how much more then, at least, for that to last */
#define AHEAD_TURNS    2
#define WITNESS        4
#define IDLE_MOST      4U   /* idle jobs that may begin at once, */
#define IDLE_US        250U /* with this slice */
#define CONTEXTS_MOST  64U  /* of a job, to be told apart by their processes */

static bool is_fed(const struct policy_device *dev, uint64_t now_ns)
{
    return dev->runs.known && now_ns < dev->runs.since_ns + FED_NS;
}

static bool context_known(const struct context_use *u)
{
    return u->seen_s >= KNOWN_S && u->runs >= KNOWN_RUNS;
}

/* Of its mean run, without what switching adds. Runs that are as long as the slice say only that it
 * is too short. One of few, since each change is a control call. */
static uint32_t light_slice(const struct sched_params *p, const struct context_use *u,
                            uint32_t now_us)
{
    static const uint32_t slices_us[] = {250, 350, 500, 700, LIGHT_MOST_US};
    double us = u->runs ? 1e6 * u->run_s / u->runs - RUNS_OWN_PART * p->switch_us : 0;
    us *= us >= 0.97 * now_us ? 2 : 1.1;
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

static const struct context_use nothing;

static void judge_group(const struct sched_params *p, struct group *g, const struct context_use *u)
{
    /* The bounds: when it did not certainly wait for its host, and when it ran. */
    double most = context_known(u) ? 1 - u->idle_s / u->seen_s : 1;
    double least = context_known(u) ? fmin(u->run_s / u->seen_s, most) : 1;
    bool light = context_known(u) && most < (g->light ? HEAVY : LIGHT);
    uint32_t slice_us = light_slice(p, u, g->light ? g->light_us : TRY_SLICE_US);
    if (light && (!g->light || slice_us > g->light_us || 3 * slice_us <= g->light_us))
        g->light_us = slice_us;
    g->light = light;
    g->duty = light ? (2 * least + most) / 3 : 1;
}

static void judge_member(struct sched *c, uint32_t d, struct member *m, bool fed)
{
    m->company.duty = 0;
    m->company.unknown = false;
    m->company.heavy = m->company.slice_us = 0;
    for (uint32_t i = *sched_group_head(c, d, m->job); i != SLOT_NONE; i = c->groups[i].next) {
        struct group *g = &c->groups[i];
        if (!g->computes)
            continue;
        uint32_t first = m->ncompute > CONTEXTS_MOST ? i : company_first(c, i);
        judge_group(&c->params, g, fed ? &c->groups[first].use : &nothing);
        m->company.unknown |= !context_known(&c->groups[first].use);
        m->company.heavy += first == i && !g->light;
        m->company.duty += first == i ? g->duty : 0;
        if (g->light && g->light_us > m->company.slice_us)
            m->company.slice_us = g->light_us;
    }
    m->company.duty = m->idle ? 0 : fmin(m->company.duty, 1);
    m->company.heavy = !fed || m->gang ? 1 : m->idle ? 0 : m->company.heavy;
}

/* Whether the contexts of jobs here are gathered. */
static void judge_gather(struct policy_device *dev, uint64_t now_ns)
{
    struct company_gather *x = &dev->gather;
    uint32_t several = 0;
    x->busy = 0;
    for_each_member (dev, m) {
        x->busy += m->company.busy;
        several += !m->paused && m->class != CLASS_LATENCY && m->company.heavy > 1;
    }
    if (x->busy >= BUSY)
        x->idle_ns = 0;
    else if (!x->idle_ns)
        x->idle_ns = now_ns;
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
        bool fed = is_fed(dev, now_ns);
        for_each_member (dev, m) {
            if (m->class != CLASS_LATENCY)
                judge_member(c, d, m, fed);
        }
        judge_gather(dev, now_ns);
    }
}

/* While a normal job wants the device, batch jobs get what it leaves, with the shortest slice. */
static bool is_light(const struct policy_device *dev, const struct member *m)
{
    return !m->company.heavy && !(dev->rotation.batch_waits && m->class == CLASS_BATCH);
}

/* It had so much more than the holder that the holder is to have what there is. */
static bool is_ahead(const struct sched_params *p, const struct policy_device *dev,
                     const struct member *m, const struct member *holder)
{
    double turns = AHEAD_TURNS * p->rotation_us * 1e3 * WEIGHT_DEFAULT;
    if (m->account == holder->account)
        return (double)m->vtime > (double)holder->vtime + turns / m->turn_weight;
    return (double)dev->turns[m->account].all.vtime >
           (double)dev->turns[holder->account].all.vtime + turns / dev->turns[m->account].part;
}

static bool may_join(const struct policy_device *dev, const struct member *m,
                     const struct member *holder)
{
    return rotation_takes_part(dev, m) && !m->gang && m->job != holder->job && !m->company.beside;
}

/* How long a latency job may wait for it, if all its contexts have work. */
static uint32_t waits_us(const struct sched_params *p, const struct policy_device *dev,
                         const struct member *m)
{
    bool gathered = dev->gather.on && m->company.heavy > 1 && m->company.slice_us < GATHER_US;
    return member_width(m) * ((gathered ? GATHER_US : m->company.slice_us) + p->switch_us);
}

/* Of the latency jobs' budget; without one, as long as it takes. */
static uint32_t may_wait_us(const struct sched_params *p, const struct policy_device *dev)
{
    const uint32_t budget_us = policy_budget(dev), spared_us = 2 * p->switch_us;
    return budget_us > spared_us ? budget_us - spared_us : budget_us ? 0 : UINT32_MAX;
}

/* Jobs that are ahead wait, but in one turn of WITNESS: beside nobody it could not be seen that the
 * other one waits for its host, too. */
static bool is_witnessed(const struct sched_params *p, const struct policy_device *dev)
{
    return dev->rotation.turn_ns / (p->rotation_us * 1000ULL) % WITNESS == 0;
}

static bool room_fits(const struct sched_params *p, const struct policy_device *dev,
                      const struct member *m)
{
    const struct company_room *room = &dev->room;
    return room->duty + m->company.duty <= ROOM && waits_us(p, dev, m) <= room->us &&
           (!room->heavy || is_witnessed(p, dev) || !is_ahead(p, dev, m, room->heavy));
}

static void room_take(const struct sched_params *p, struct policy_device *dev, struct member *m)
{
    m->company.beside = true;
    dev->room.duty += m->company.duty;
    dev->room.us -= waits_us(p, dev, m);
}

/* The best class first, and in a class the order of turns. */
static int company_order(const void *x, const void *y, void *on)
{
    const struct member *a = *(struct member *const *)x, *b = *(struct member *const *)y;
    if (a->class != b->class)
        return a->class < b->class ? -1 : 1;
    return account_before(on, a, b) ? -1 : account_before(on, b, a);
}

/* Whether it is to be tried, with the next in turn or with contexts of its own. */
static bool try_due(const struct member *m, uint64_t now_ns)
{
    return !m->idle && (m->company.unknown || now_ns >= m->company.tried_ns + m->company.try_ns);
}

static void set_tried(struct member *m, uint64_t now_ns)
{
    uint64_t ns = m->company.try_ns && !m->company.unknown ? 2 * m->company.try_ns : TRY_AGAIN_NS;
    m->company.tried_ns = now_ns;
    m->company.try_ns = ns < TRY_SELDOM_NS ? ns : TRY_SELDOM_NS;
}

/* With whom the holder is tried: one of its class that is due, if there is one. Beside a normal job
 * a batch job has the shortest slice, which shows best when the other one waits for its host. */
static struct member *partner(struct policy_device *dev, const struct member *holder,
                              uint64_t now_ns)
{
    struct member *best = NULL;
    for_each_member (dev, m) {
        if (!may_join(dev, m, holder) || m->idle || (best && m->class > best->class))
            continue;
        bool due = try_due(m, now_ns);
        if (!best || m->class < best->class ||
            (due != try_due(best, now_ns) ? due : account_before(dev, m, best)))
            best = m;
    }
    return best;
}

/* Whether turns leave the device idle, for more than a moment. */
static bool is_wasted(const struct company_gather *x, uint64_t now_ns)
{
    return x->busy < BUSY && now_ns >= x->idle_ns + (x->busy > 0 ? TRY_IDLE_NS : TRY_BLIND_NS);
}

/* Only there: else there is nothing to gain. */
static void begin_try(const struct sched_params *p, struct policy_device *dev,
                      struct member *holder, uint64_t now_ns)
{
    if (holder->gang || holder->idle || !is_fed(dev, now_ns) || now_ns < dev->try_next_ns ||
        !is_wasted(&dev->gather, now_ns) || !try_due(holder, now_ns))
        return;
    struct member *other = partner(dev, holder, now_ns);
    uint32_t contexts = member_width(holder) + (other ? member_width(other) : 0);
    if (contexts < 2 || contexts > TRY_CONTEXTS ||
        contexts * (TRY_SLICE_US + p->switch_us) > may_wait_us(p, dev))
        return;
    dev->tried = other ? other->job : holder->job;
    dev->try_until_ns = now_ns + TRY_NS;
    dev->try_next_ns = now_ns + (dev->gather.busy > 0 ? TRY_AGAIN_NS / 4 : TRY_BLIND_NS);
    set_tried(holder, now_ns);
    if (other)
        set_tried(other, now_ns);
}

/* Idle jobs are not suspended, so that it is seen when they begin: some of them in each turn, as
 * they may begin together. */
static void watch_idle(const struct sched_params *p, struct policy_device *dev,
                       const struct member *holder)
{
    uint32_t n = 0, i = 0;
    for_each_member (dev, m)
        n += m->idle && is_light(dev, m) && may_join(dev, m, holder);
    uint64_t turn = dev->rotation.turn_ns / (p->rotation_us * 1000ULL);
    uint32_t first = n > IDLE_MOST ? (uint32_t)(turn * IDLE_MOST % n) : 0;
    for_each_member (dev, m) {
        if (m->idle && is_light(dev, m) && may_join(dev, m, holder))
            m->company.beside = n && (i++ + n - first) % n < IDLE_MOST;
    }
}

/* What the holder leaves. */
static void room_open(const struct sched_params *p, struct policy_device *dev,
                      const struct member *holder)
{
    struct company_room *room = &dev->room;
    bool light = is_light(dev, holder);
    *room = (struct company_room){.heavy = light ? NULL : holder, .us = may_wait_us(p, dev)};
    dev->alone = waits_us(p, dev, holder) > room->us;
    room->duty = light ? holder->company.duty : 0;
    room->us -= light && !dev->alone ? waits_us(p, dev, holder) : 0;
}

static void pick_beside(const struct machine *mc, struct policy_device *dev, struct member *holder)
{
    struct member **order = mc->order;
    size_t n = 0;
    room_open(mc->params, dev, holder);
    for_each_member (dev, m) {
        if (may_join(dev, m, holder) && !m->idle)
            order[n++] = m;
    }
    qsort_r(order, n, sizeof(*order), company_order, dev);
    for (size_t i = 0; i < n && !dev->room.heavy; i++) {
        if (is_light(dev, order[i]))
            continue;
        dev->room.heavy = order[i];
        order[i]->company.beside = true;
    }
    for (size_t i = 0; i < n; i++) {
        if (is_light(dev, order[i]) && room_fits(mc->params, dev, order[i]))
            room_take(mc->params, dev, order[i]);
    }
    watch_idle(mc->params, dev, holder);
}

static bool has_company(const struct sched_params *p, const struct policy_device *dev)
{
    const struct rotation *r = &dev->rotation;
    return r->from != CLASS_COUNT && !r->linked && !r->blocked && r->holder != SLOT_NONE &&
           !r->by_class && dev->window == SLOT_NONE && dev->boost.job == SLOT_NONE &&
           speed_floor_beside_us(p, &dev->speed);
}

void company_pick(const struct machine *mc, struct policy_device *dev)
{
    const struct sched_params *p = mc->params;
    const struct rotation *r = &dev->rotation;
    const uint64_t now_ns = mc->now_ns;
    for_each_member (dev, m)
        m->company.beside = false;
    if (has_company(p, dev)) {
        struct member *holder = &dev->members[r->holder];
        pick_beside(mc, dev, holder);
        if (now_ns >= dev->try_until_ns)
            begin_try(p, dev, holder, now_ns);
        struct member *m = &dev->members[dev->tried];
        if (now_ns < dev->try_until_ns) {
            m->company.beside |= m->used && may_join(dev, m, holder);
            policy_wake(dev, dev->try_until_ns);
        }
    } else {
        dev->try_until_ns = 0;
    }
    dev->contexts = 0;
    for_each_member (dev, m)
        dev->contexts += m->company.beside || m->job == r->holder ? member_width(m) : 0;
}

double company_charge(const struct policy_device *dev, const struct member *m, double turn_ns)
{
    double light_ns = 0;
    if (dev->rotation.linked)
        return turn_ns;
    if (is_light(dev, m))
        return fmin(m->company.used_ns, turn_ns);
    for_each_member (dev, x)
        light_ns += is_light(dev, x) ? x->company.used_ns : 0;
    return fmax(turn_ns - light_ns, PART_LEAST * turn_ns);
}

uint32_t company_slice(const struct sched *c, const struct group *g, uint64_t now_ns)
{
    const struct policy_device *dev = &c->devices[g->device];
    const struct member *m = &dev->members[g->job];
    uint32_t most_us = speed_floor_beside_us(&c->params, &dev->speed), us = 0;
    if (dev->contexts < 2 || (dev->alone && m->job == dev->rotation.holder) ||
        (dev->rotation.batch_waits && m->class == CLASS_BATCH))
        return 0;
    bool gathered = dev->gather.on && m->company.heavy > 1;
    if (m->idle && !m->company.heavy)
        us = IDLE_US;
    else if (g->light)
        us = g->light_us;
    else if (gathered)
        us = GATHER_US;
    us = now_ns < dev->try_until_ns ? TRY_SLICE_US : us;
    return us < most_us ? us : most_us;
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
