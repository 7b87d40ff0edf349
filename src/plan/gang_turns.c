/* Rounds: turns on devices that are linked by gangs (turns.h). All of them switch together,
 * every params.rotation_us. At a switch the turns go to the packing of jobs that is furthest behind
 * its fair part in all (packing.h). So small jobs do not starve a large gang, jobs that fit
 * together run together, and no GPU is idle while a job could use it. A device that becomes free in
 * mid-round is filled in the same way until the round ends.
 *
 * On linked devices vtime grows equally for all jobs that have their fair part: the charge of a
 * turn is divided by the job's pace, its GPU time relative to that of the job that has least.
 *
 * Classes (a working normal job before batch jobs) and boosts come before vtime: such a job does
 * not wait for the round's end where only lesser jobs are in its way. */
#include <math.h>

#include "plan/packing.h"
#include "plan/policy.h"

struct round {
    const struct machine *mc;
    uint32_t first;      /* of the linked devices */
    uint64_t blocked;    /* bit map, by rotation.bit, of devices without turns now */
    uint32_t busy;       /* number of working jobs */
    bool floats;         /* some jobs need no turn: light_jobs.h */
    uint64_t length_ns;  /* of a round */
    bool by_class;       /* a floor is kept, and both classes work */
    enum job_class owed; /* then, the class that has had less than its share */
};

#define for_each_linked(rd, dev)                                                                   \
    for (struct policy_device *dev = (rd)->mc->devices + (rd)->first;                              \
         dev < (rd)->mc->devices + (rd)->mc->n; dev++)                                             \
        if (dev->rotation.link == (rd)->first)

static bool is_first_of(const struct round *rd, const struct policy_device *dev,
                        const struct member *m)
{
    return !m->gang || dev == rd->mc->devices + m->gang_first;
}

/* Each job that takes turns or floats, once. */
#define for_each_taker(rd, dev, m)                                                                 \
    for_each_linked (rd, dev)                                                                      \
        for_each_member (dev, m)                                                                   \
            if (rotation_takes_part(dev, m) && is_first_of(rd, dev, m))

/* Each job that takes turns, once. */
#define for_each_party(rd, dev, m)                                                                 \
    for_each_taker (rd, dev, m)                                                                    \
        if (!m->company.floats)

static bool is_boosted(const struct policy_device *dev, const struct member *m)
{
    return dev->boost.job == m->job && account_may_lead(dev, m);
}

/* 0: a normal job that works, or shares a device with one that does, so that idle peers are probed
 * in their order; or, with a floor kept, a job of the class that is owed. 1: others. */
static uint32_t rank(const struct round *rd, struct policy_device *own, const struct member *m)
{
    if (rd->by_class)
        return m->class != rd->owed;
    if (m->class != CLASS_NORMAL)
        return 1;
    for_each_device_of (rd->mc, own, m, dev) {
        if (dev->rotation.batch_waits)
            return 0;
    }
    return 1;
}

static uint32_t level(const struct round *rd, struct policy_device *own, const struct member *m)
{
    return 2 * rank(rd, own, m) + !is_boosted(own, m);
}

/* Whether the job has had a turn in this round; an idle job is probed once per round. */
static bool had_turn(const struct policy_device *own, const struct member *m)
{
    return m->ended_ns > own->rotation.round_ns;
}

static bool outranks(const struct round *rd, struct policy_device *a_on, const struct member *a,
                     struct policy_device *b_on, const struct member *b)
{
    if (had_turn(a_on, a))
        return false;
    if (rd->by_class)
        return is_boosted(a_on, a) && !is_boosted(b_on, b) && a->class == b->class;
    return level(rd, a_on, a) < level(rd, b_on, b);
}

/* Whether all its devices are free, or have current jobs that it outranks. */
static bool round_fits(const struct round *rd, struct policy_device *own, const struct member *m)
{
    for_each_device_of (rd->mc, own, m, dev) {
        uint32_t current = dev->rotation.current;
        if (dev->rotation.blocked ||
            (current != SLOT_NONE && !outranks(rd, own, m, dev, &dev->members[current])))
            return false;
    }
    return true;
}

static uint64_t devices_of(const struct round *rd, struct policy_device *own,
                           const struct member *m)
{
    uint64_t map = 0;
    for_each_device_of (rd->mc, own, m, dev)
        map |= 1ULL << dev->rotation.bit;
    return map;
}

static bool blocked(const struct round *rd, struct policy_device *own, const struct member *m)
{
    return rd->blocked && devices_of(rd, own, m) & rd->blocked;
}

static bool has_turns(const struct round *rd, struct policy_device *own, const struct member *m)
{
    for_each_device_of (rd->mc, own, m, dev) {
        if (dev->rotation.current != m->job)
            return false;
    }
    return true;
}

static void end_turn(const struct round *rd, struct policy_device *own)
{
    uint32_t job = own->rotation.current;
    if (job == SLOT_NONE) {
        rotation_end(rd->mc->params, own, rd->mc->now_ns);
        return;
    }
    for_each_device_of (rd->mc, own, &own->members[job], dev) {
        if (dev->rotation.current == job)
            rotation_end(rd->mc->params, dev, rd->mc->now_ns);
    }
}

/* ---- which jobs get the devices that are free ---- */

#define PROBED_SELDOM 10.0         /* divisor of the fair part of jobs that are idle or float */
#define LAG_TURNS     8            /* the most turns that a job may be behind */
#define PAID_TURNS    2            /* the lead, in turns, that a job keeps */
#define FORGET_NS     20000000000U /* time constant in which a larger lead is forgotten */
#define NOTHING       1e-6         /* part of the time that counts as none */
#define TIER_1        0.1          /* factor of values of tier 1 */
#define LAST          1e-8         /* factor of values of jobs that come last */

/* The jobs that may have a turn, as sets of devices for packing. With a floor kept each class has a
 * separate lineup. */
struct lineup {
    struct packing *packing;
    enum job_class class; /* CLASS_COUNT: all together */
    struct packing_set sets[PACKING_SETS];
    uint32_t n;
    double weight[PACKING_SETS], vtime[PACKING_SETS]; /* of working jobs: sum, weighted sum */
    double pace[PACKING_SETS], value[PACKING_SETS];
    double clock; /* vtime of a job that has had exactly its fair part */
    struct member *best[PACKING_SETS];
    struct policy_device *best_on[PACKING_SETS];
};

/* If there are too many sets, the last one is of all devices, whose jobs wait longer for turns. */
static uint32_t find_set(struct lineup *l, uint64_t devices, uint32_t tier)
{
    uint32_t i = 0;
    while (i < l->n && (l->sets[i].devices != devices || l->sets[i].tier != tier))
        i++;
    if (i >= PACKING_SETS - 1) {
        i = PACKING_SETS - 1;
        devices = 0;
        for (uint32_t k = 0; k < i; k++)
            devices |= l->sets[k].devices;
    }
    if (i >= l->n) {
        l->n = i + 1;
        l->sets[i] = (struct packing_set){.devices = devices, .tier = tier};
    }
    return i;
}

static void line_up(const struct round *rd, struct lineup *l)
{
    for_each_taker (rd, own, m) {
        uint64_t devices = devices_of(rd, own, m);
        bool floats = m->company.floats;
        m->set = SLOT_NONE;
        if (devices & rd->blocked || (l->class != CLASS_COUNT && m->class != l->class))
            continue;
        m->set = find_set(l, devices, rd->by_class ? 0 : floats ? 1 : rank(rd, own, m));
        l->sets[m->set].rate += m->share / (m->idle || floats ? PROBED_SELDOM
                                            : m->gang         ? m->gang
                                                              : 1);
        if (m->idle || m->fresh || floats)
            continue;
        l->weight[m->set] += m->share;
        l->vtime[m->set] += m->share * (double)m->vtime;
    }
}

/* Sets the pace of each set, and the clock. Sets that get nothing because of higher ones do not
 * count. */
static void set_clock(const struct round *rd, struct lineup *l)
{
    double least = INFINITY, weight = 0, vtime = 0;
    packing_update(l->packing, l->sets, l->n);
    for (uint32_t i = 0; i < l->n; i++) {
        const struct packing_set *s = &l->packing->sets[i];
        l->pace[i] = s->part > NOTHING ? s->part / s->rate : INFINITY;
        least = fmin(least, l->pace[i]);
    }
    for (uint32_t i = 0; i < l->n; i++) {
        bool counts = isfinite(l->pace[i]);
        l->pace[i] = counts ? l->pace[i] / least : 1;
        weight += counts ? l->pace[i] * l->weight[i] : 0;
        vtime += counts ? l->pace[i] * l->vtime[i] : 0;
    }
    uint64_t floor = rd->mc->devices[rd->first].rotation.vtime_floor;
    l->clock = weight > 0 ? vtime / weight : (double)floor;
}

/* The charge of a whole turn, in vtime: see rotation_end(). */
static double charge_of(const struct round *rd, const struct member *m)
{
    double turns = m->idle ? PROBED_SELDOM : m->gang ? m->gang : 1;
    return (double)rd->length_ns * turns * WEIGHT_DEFAULT / m->turn_weight / m->pace;
}

/* The vtime with which a new job starts; it includes the debt of its account's jobs that left. */
static double start_of(const struct round *rd, const struct lineup *l, struct policy_device *own,
                       const struct member *m)
{
    double debt = 0;
    for_each_device_of (rd->mc, own, m, dev) {
        debt += dev->turns[m->account].debt;
        dev->turns[m->account].debt = 0;
    }
    return l->clock + debt / (m->turn_weight * m->pace);
}

/* The job's vtime. The jobs that run together with a gang, and so the charge of its turns, may
 * differ between its devices. */
static double vtime_of(const struct round *rd, struct policy_device *own, const struct member *m)
{
    double sum = 0;
    for_each_device_of (rd->mc, own, m, dev)
        sum += (double)dev->members[m->job].vtime;
    return sum / (m->gang ? m->gang : 1);
}

/* Keeps a job near the clock. One that was away has neither credit nor debt. One that uses devices
 * which no other job can use gets ahead, and should not have to wait, when that changes, until the
 * others have caught up. */
static void follow(const struct round *rd, const struct lineup *l, struct policy_device *own,
                   struct member *m, bool starts)
{
    m->pace = l->pace[m->set] * m->share / m->turn_weight;
    double charge = charge_of(rd, m);
    double vtime = m->fresh ? start_of(rd, l, own, m) : vtime_of(rd, own, m);
    double lead = vtime - l->clock - PAID_TURNS * charge;
    vtime = fmax(vtime, l->clock - LAG_TURNS * charge);
    if (starts && lead > 0)
        vtime -= lead * fmin((double)rd->length_ns / FORGET_NS, 1);
    for_each_device_of (rd->mc, own, m, dev) {
        struct member *x = &dev->members[m->job];
        x->vtime = vtime > 0 ? (uint64_t)vtime : 0;
        x->pace = m->pace;
        x->fresh = false;
    }
}

/* The job's value for the packing: its lag in rounds, on all its devices. */
static double value_of(const struct round *rd, const struct lineup *l, struct policy_device *own,
                       const struct member *m)
{
    double lag = (l->clock - (double)m->vtime) / charge_of(rd, m);
    double value = (m->gang ? m->gang : 1) * (lag > 0 ? 1 + lag : 1 / (1 - lag));
    bool last = had_turn(own, m) || l->packing->sets[m->set].part < NOTHING;
    return value * (last ? LAST : rank(rd, own, m) ? TIER_1 : 1);
}

static void begin_turn(const struct round *rd, struct policy_device *own, struct member *m)
{
    for_each_device_of (rd->mc, own, m, dev) {
        end_turn(rd, dev);
        rotation_grant(dev, &dev->members[m->job], rd->mc->now_ns);
    }
}

/* Chooses the best packing of one tier, and takes its devices from `free`. */
static uint64_t choose_tier(const struct lineup *l, const double *value, uint32_t tier,
                            uint64_t *free)
{
    double of_tier[PACKING_SETS] = {0};
    uint64_t best;
    for (uint32_t i = 0; i < l->n; i++)
        of_tier[i] = l->sets[i].tier == tier ? value[i] : 0;
    best = packing_best(l->packing, of_tier, *free);
    for (uint64_t b = best; b; b &= b - 1)
        *free &= ~l->sets[__builtin_ctzll(b)].devices;
    return best;
}

/* The best packing of all jobs, except that none of tier 1 has a turn where one of tier 0 could
 * have it. */
static uint64_t round_choose(const struct lineup *l, uint64_t free)
{
    double value[PACKING_SETS] = {0};
    uint64_t both = packing_best(l->packing, l->value, free);
    for (uint32_t i = 0; i < l->n; i++)
        value[i] = both >> i & 1 ? l->value[i] : 0;
    uint64_t best = choose_tier(l, value, 0, &free);
    best |= choose_tier(l, l->value, 0, &free);
    best |= choose_tier(l, value, 1, &free);
    return best | choose_tier(l, l->value, 1, &free);
}

static void pack(const struct round *rd, struct lineup *l, bool starts)
{
    uint64_t free = 0;
    for_each_linked (rd, dev)
        free |= dev->rotation.current == SLOT_NONE ? 1ULL << dev->rotation.bit : 0;
    free &= ~rd->blocked;
    if (!free)
        return;
    line_up(rd, l);
    set_clock(rd, l);
    for_each_taker (rd, own, m) {
        if (m->set == SLOT_NONE)
            continue;
        follow(rd, l, own, m, starts);
        bool claims = own->rotation.current != m->job && !m->company.floats;
        double value = claims ? value_of(rd, l, own, m) : 0;
        if (value <= l->value[m->set])
            continue;
        l->value[m->set] = value;
        l->best[m->set] = m;
        l->best_on[m->set] = own;
    }
    for_each_linked (rd, dev) {
        struct rotation *r = &dev->rotation;
        uint64_t clock = (uint64_t)l->clock;
        if (starts && clock > r->vtime_floor)
            r->vtime_floor = clock;
        for_each_member (dev, m) {
            dev->turns[m->account].all.vtime = r->account_floor;
            dev->turns[m->account].floor = r->vtime_floor;
        }
    }
    for (uint64_t best = round_choose(l, free); best; best &= best - 1) {
        int i = __builtin_ctzll(best);
        begin_turn(rd, l->best_on[i], l->best[i]);
    }
}

/* The next job that is boosted, or outranks its devices' current jobs: by level, then vtime. */
static struct member *next_claim(const struct round *rd, struct policy_device **own)
{
    struct member *best = NULL;
    uint32_t best_level = 0;
    for_each_party (rd, dev, m) {
        bool in_the_way = false;
        if (dev->rotation.current == m->job || had_turn(dev, m) || !round_fits(rd, dev, m))
            continue;
        for_each_device_of (rd->mc, dev, m, x)
            in_the_way |= x->rotation.current != SLOT_NONE;
        uint32_t order = level(rd, dev, m);
        if ((!in_the_way && !is_boosted(dev, m)) ||
            (best && (order > best_level || (order == best_level && m->vtime >= best->vtime))))
            continue;
        best = m;
        best_level = order;
        *own = dev;
    }
    return best;
}

static void fill(const struct round *rd, bool starts)
{
    struct policy_device *own = NULL;
    struct packing *packings = rd->mc->devices[rd->first].packings;
    for (struct member *m; (m = next_claim(rd, &own));)
        begin_turn(rd, own, m);
    if (!rd->by_class) {
        pack(rd, &(struct lineup){.packing = packings, .class = CLASS_COUNT}, starts);
        return;
    }
    enum job_class other = rd->owed == CLASS_NORMAL ? CLASS_BATCH : CLASS_NORMAL;
    pack(rd, &(struct lineup){.packing = &packings[0], .class = rd->owed}, starts);
    pack(rd, &(struct lineup){.packing = &packings[1], .class = other}, starts);
}

/* With a floor, turns go by class first, as on a device that is not linked. */
static void open_classes(struct round *rd, double floor)
{
    uint32_t busy[CLASS_COUNT] = {0};
    uint64_t had[CLASS_COUNT] = {0};
    if (floor == 0.0)
        return;
    for_each_party (rd, dev, m)
        busy[m->class] += !m->idle;
    rd->by_class = busy[CLASS_NORMAL] && busy[CLASS_BATCH];
    for_each_linked (rd, dev) {
        struct rotation *r = &dev->rotation;
        if (!rd->by_class && !dev->window_beside)
            r->class_vtime[CLASS_NORMAL] = r->class_vtime[CLASS_BATCH] = 0;
        had[CLASS_NORMAL] += r->class_vtime[CLASS_NORMAL];
        had[CLASS_BATCH] += r->class_vtime[CLASS_BATCH];
    }
    rd->owed = rotation_owed_class(floor, had[CLASS_NORMAL], had[CLASS_BATCH]);
}

static void open_round(struct round *rd)
{
    const struct sched_params *p = rd->mc->params;
    rd->length_ns = rotation_length_ns(p, p->rotation_us);
    uint32_t bit = 0;
    double floor = 0;
    for_each_linked (rd, dev)
        floor = fmax(floor, rotation_floor(p, dev));
    for_each_linked (rd, dev) {
        dev->rotation.bit = bit < 63 ? bit++ : bit;
        dev->rotation.batch_waits = false;
        dev->rotation.blocked |= dev->boost.promoted && p->floor == 0.0;
        rd->blocked |= dev->rotation.blocked ? 1ULL << dev->rotation.bit : 0;
        for_each_member (dev, m) {
            dev->rotation.batch_waits |=
                rotation_takes_part(dev, m) && !m->idle && m->class == CLASS_NORMAL && floor == 0.0;
        }
    }
    for_each_taker (rd, dev, m) {
        company_float(rd->mc, dev, m);
        rd->floats |= m->company.floats;
    }
    for_each_party (rd, dev, m)
        rd->busy += !m->idle;
    open_classes(rd, floor);
}

/* Marks the devices for which jobs wait. Returns whether a job waits for a turn, or a context of a
 * job for that of another one to end. */
static bool find_waiting(const struct round *rd)
{
    bool any = rd->floats;
    for_each_linked (rd, dev) {
        dev->rotation.wanted = false;
        for_each_member (dev, m)
            any |= rotation_takes_part(dev, m) && member_width(m) > 1;
    }
    for_each_party (rd, own, m) {
        if (has_turns(rd, own, m) || blocked(rd, own, m))
            continue;
        any = true;
        for_each_device_of (rd->mc, own, m, dev)
            dev->rotation.wanted = true;
    }
    return any;
}

/* When the turn of this device's job ends before the round does; TIME_NEVER: it does not. */
static uint64_t probe_end(const struct round *rd, struct policy_device *own)
{
    const struct member *m = &own->members[own->rotation.current];
    bool wanted = false;
    if (!m->idle || !rd->busy)
        return TIME_NEVER;
    for_each_device_of (rd->mc, own, m, dev)
        wanted |= dev->rotation.wanted;
    return wanted ? own->rotation.turn_ns + rotation_turn_ns(rd->mc->params, m, rd->busy)
                  : TIME_NEVER;
}

static void end_turns(const struct round *rd, bool all)
{
    for_each_linked (rd, dev) {
        const struct rotation *r = &dev->rotation;
        const struct member *m = r->current == SLOT_NONE ? NULL : &dev->members[r->current];
        if (!m && !all)
            continue;
        if (all || m->company.floats || !rotation_takes_part(dev, m) || !has_turns(rd, dev, m) ||
            blocked(rd, dev, m) || rd->mc->now_ns >= probe_end(rd, dev))
            end_turn(rd, dev);
    }
}

static bool anybody_has_turn(const struct round *rd)
{
    bool any = false;
    for_each_linked (rd, dev)
        any |= dev->rotation.current != SLOT_NONE;
    return any;
}

static void restart(const struct round *rd)
{
    for_each_linked (rd, dev)
        dev->rotation.round_ns = rd->mc->now_ns;
}

static void set_wake(const struct round *rd, bool waiting)
{
    uint64_t now = rd->mc->now_ns;
    for_each_linked (rd, dev) {
        struct rotation *r = &dev->rotation;
        if (waiting)
            policy_wake(dev, r->round_ns + rd->length_ns);
        uint64_t probed = r->current == SLOT_NONE ? TIME_NEVER : probe_end(rd, dev);
        policy_wake(dev, probed > now ? probed : now + 1);
        rotation_look_again(dev, now);
    }
}

void round_decide(const struct machine *mc, uint32_t first)
{
    struct round rd = {.mc = mc, .first = first};
    const struct rotation *r = &mc->devices[first].rotation;
    open_round(&rd);
    bool over = find_waiting(&rd) && mc->now_ns >= r->round_ns + rd.length_ns;
    end_turns(&rd, over);
    bool starts = over || !(anybody_has_turn(&rd) || rd.floats);
    if (starts)
        restart(&rd);
    fill(&rd, starts);
    bool waiting = find_waiting(&rd);
    if (waiting && mc->now_ns >= r->round_ns + rd.length_ns)
        restart(&rd); /* a job that lost its turn waits, and none did before */
    set_wake(&rd, waiting);
}
