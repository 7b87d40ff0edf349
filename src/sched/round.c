/* Rounds: turns on devices that are linked by gangs (rotation.h). All of them switch together,
 * every params.rotation_us. At a switch the jobs get their turns in order of least vtime, each one
 * whose devices are all free: the job that is behind most is first whatever its size, so that small
 * jobs do not starve a large gang; and what it leaves is filled, so that no GPU is idle while a job
 * could use it. A device that becomes free in mid-round is filled in the same way until the round
 * ends.
 *
 * Above vtime stand classes (a normal job that works before batch jobs) and boosts: such a job does
 * not wait for the round's end where only lesser ones are in its way. */
#include "sched/policy.h"

#define WAITS_NS 1000000000U

struct round {
    const struct machine *mc;
    uint32_t first;      /* of the linked devices */
    uint32_t busy;       /* jobs that work */
    uint64_t length_ns;  /* of a round */
    bool by_class;       /* a floor is kept, and both classes work: */
    enum job_class owed; /* this one has had less than its share */
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

/* Each job that takes turns, once. */
#define for_each_party(rd, dev, m)                                                                 \
    for_each_linked (rd, dev)                                                                      \
        for_each_member (dev, m)                                                                   \
            if (rotation_takes_part(dev, m) && is_first_of(rd, dev, m))

static bool is_boosted(const struct policy_device *dev, const struct member *m)
{
    return dev->boost.job == m->job;
}

/* 0: a normal job that works, or shares a device with one that does; its idle peers are probed in
 * their order. Or, with a floor kept, a job of the class that is owed. 1: others. */
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

/* Has had a turn in this round: an idle job that was probed is not probed again. */
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

/* All its devices are free, or held by jobs that have to give way. */
static bool round_fits(const struct round *rd, struct policy_device *own, const struct member *m)
{
    for_each_device_of (rd->mc, own, m, dev) {
        uint32_t holder = dev->rotation.holder;
        if (dev->rotation.blocked ||
            (holder != SLOT_NONE && !outranks(rd, own, m, dev, &dev->members[holder])))
            return false;
    }
    return true;
}

static bool blocked(const struct round *rd, struct policy_device *own, const struct member *m)
{
    for_each_device_of (rd->mc, own, m, dev) {
        if (dev->rotation.blocked)
            return true;
    }
    return false;
}

static bool holds(const struct round *rd, struct policy_device *own, const struct member *m)
{
    for_each_device_of (rd->mc, own, m, dev) {
        if (dev->rotation.holder != m->job)
            return false;
    }
    return true;
}

static void end_turn(const struct round *rd, struct policy_device *own)
{
    uint32_t job = own->rotation.holder;
    if (job == SLOT_NONE)
        return;
    for_each_device_of (rd->mc, own, &own->members[job], dev) {
        if (dev->rotation.holder == job)
            rotation_end(rd->mc->params, dev, rd->mc->now_ns);
    }
}

#define LAG_NS    1000000000U  /* GPU time: of more than that behind its peers nothing is kept */
#define FORGET_NS 20000000000U /* in so long a lead that was had by filling is forgotten */

/* starts: at a round's start, when jobs come in the order of their vtime: then it is the floor for
 * those that come later to these devices. A gang may be behind the floor of one of them for long,
 * because it has to wait for another. */
static void round_begin_turn(const struct round *rd, struct policy_device *own, struct member *m,
                             bool starts)
{
    uint64_t floor = gang_floor(rd->mc, own, m), vtime = m->vtime, round = own->rotation.round_ns;
    uint64_t lag = (uint64_t)LAG_NS * WEIGHT_DEFAULT / m->weight;
    vtime = vtime + lag < floor ? floor - lag : vtime;
    for_each_device_of (rd->mc, own, m, dev) {
        struct rotation *r = &dev->rotation;
        end_turn(rd, dev);
        rotation_begin(dev, &dev->members[m->job], false, rd->mc->now_ns);
        dev->members[m->job].vtime = vtime;
        r->round_ns = round;
        if (starts && !m->idle && !is_boosted(own, m) && vtime > r->vtime_floor)
            r->vtime_floor = vtime;
    }
}

/* A job that fills what nobody else can use gets far ahead of the others, and should not have to
 * wait until they have caught up when that changes. Slowly, so that it keeps its place among those
 * that are far ahead too; two turns are a lead that has to be paid back. */
static void forget_leads(const struct round *rd)
{
    uint64_t least = TIME_NEVER, rounds = FORGET_NS / rd->length_ns;
    for_each_party (rd, dev, m)
        least = m->vtime < least ? m->vtime : least;
    for_each_party (rd, own, m) {
        uint64_t turn = rd->length_ns * (m->gang ? m->gang : 1) * WEIGHT_DEFAULT / m->weight;
        uint64_t lead = m->vtime - least, paid = 2 * turn;
        uint64_t forgotten = lead > paid ? (lead - paid) / (rounds ? rounds : 1) : 0;
        for_each_device_of (rd->mc, own, m, dev)
            dev->members[m->job].vtime -= forgotten;
    }
}

/* What a floor means here: normal and batch jobs have turns by class first, as on one device. */
static void open_classes(struct round *rd)
{
    const struct sched_params *p = rd->mc->params;
    uint32_t busy[CLASS_COUNT] = {0};
    uint64_t had[CLASS_COUNT] = {0};
    if (p->floor == 0.0)
        return;
    for_each_party (rd, dev, m)
        busy[m->class] += !m->idle;
    rd->by_class = busy[CLASS_NORMAL] && busy[CLASS_BATCH];
    for_each_linked (rd, dev) {
        struct rotation *r = &dev->rotation;
        if (!rd->by_class)
            r->class_vtime[CLASS_NORMAL] = r->class_vtime[CLASS_BATCH] = 0;
        had[CLASS_NORMAL] += r->class_vtime[CLASS_NORMAL];
        had[CLASS_BATCH] += r->class_vtime[CLASS_BATCH];
    }
    rd->owed = rotation_owed_class(p, had[CLASS_NORMAL], had[CLASS_BATCH]);
}

static void open_round(struct round *rd)
{
    const struct sched_params *p = rd->mc->params;
    double cycle_us = p->floor > 0.0 ? p->timeslice_floor_us / p->floor : 0;
    rd->length_ns = (p->rotation_us < cycle_us ? (uint64_t)cycle_us : p->rotation_us) * 1000ULL;
    for_each_linked (rd, dev) {
        dev->rotation.batch_waits = false;
        dev->rotation.blocked |= dev->boost.promoted && p->floor == 0.0;
        for_each_member (dev, m) {
            m->tried = false;
            dev->rotation.batch_waits |= rotation_takes_part(dev, m) && !m->idle &&
                                         m->class == CLASS_NORMAL && p->floor == 0.0;
        }
    }
    for_each_party (rd, dev, m)
        rd->busy += !m->idle;
    open_classes(rd);
}

/* Which devices a job waits for that has no turn. Whether anybody waits: for its turn, or for the
 * next context of a job to have one. */
static bool find_waiting(const struct round *rd)
{
    bool any = false;
    for_each_linked (rd, dev) {
        dev->rotation.wanted = false;
        for_each_member (dev, m)
            any |= rotation_takes_part(dev, m) && member_width(m) > 1;
    }
    for_each_party (rd, own, m) {
        if (holds(rd, own, m) || blocked(rd, own, m))
            continue;
        any = true;
        for_each_device_of (rd->mc, own, m, dev)
            dev->rotation.wanted = true;
    }
    return any;
}

/* When the turn of this device's holder is over although the round is not; TIME_NEVER: it lasts. */
static uint64_t probe_end(const struct round *rd, struct policy_device *own)
{
    const struct member *m = &own->members[own->rotation.holder];
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
        if (r->holder == SLOT_NONE)
            continue;
        const struct member *m = &dev->members[r->holder];
        if (all || !rotation_takes_part(dev, m) || !holds(rd, dev, m) || blocked(rd, dev, m) ||
            rd->mc->now_ns >= probe_end(rd, dev))
            end_turn(rd, dev);
    }
}

/* The next in order that was not tried yet; NULL: none. */
static struct member *next_party(const struct round *rd, struct policy_device **own)
{
    struct member *best = NULL;
    uint32_t best_order = 0;
    for_each_party (rd, dev, m) {
        if (m->tried || dev->rotation.holder == m->job)
            continue;
        uint32_t order = level(rd, dev, m) + 4 * had_turn(dev, m);
        if (best && (order > best_order || (order == best_order && m->vtime >= best->vtime)))
            continue;
        best = m;
        best_order = order;
        *own = dev;
    }
    return best;
}

static void fill(const struct round *rd, bool starts)
{
    struct policy_device *own = NULL;
    for (struct member *m; (m = next_party(rd, &own));) {
        m->tried = true;
        if (round_fits(rd, own, m))
            round_begin_turn(rd, own, m, starts);
    }
}

static bool anybody_has_turn(const struct round *rd)
{
    bool any = false;
    for_each_linked (rd, dev)
        any |= dev->rotation.holder != SLOT_NONE;
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
        uint64_t probed = r->holder == SLOT_NONE ? TIME_NEVER : probe_end(rd, dev);
        policy_wake(dev, probed > now ? probed : now + 1);
        bool batch = false;
        for_each_member (dev, m)
            batch |= !m->paused && m->class == CLASS_BATCH;
        if (r->batch_waits && batch)
            policy_wake(dev, now + WAITS_NS); /* whether the normal jobs still work */
    }
}

void round_decide(const struct machine *mc, uint32_t first)
{
    struct round rd = {.mc = mc, .first = first};
    const struct rotation *r = &mc->devices[first].rotation;
    open_round(&rd);
    bool over = find_waiting(&rd) && mc->now_ns >= r->round_ns + rd.length_ns;
    end_turns(&rd, over);
    bool starts = !anybody_has_turn(&rd);
    if (starts)
        restart(&rd);
    if (over)
        forget_leads(&rd);
    fill(&rd, starts);
    bool waiting = find_waiting(&rd);
    if (waiting && mc->now_ns >= r->round_ns + rd.length_ns)
        restart(&rd); /* a job that gave way waits, where nobody did before */
    set_wake(&rd, waiting);
}
