/* Policy "priority", and "laxity" (the default) and "edf", which are the same but for jobs with
 * deadlines (hurry.c): strict order latency > normal > batch.
 *
 * The highest class present (the top) gets long timeslices and always runs. Of the classes below
 * exactly one job is runnable at a time, at the smallest timeslice, so that work of the top class
 * gets the GPU after one switch; the others are suspended and take turns. When only one class is
 * present its jobs share by weight through timeslices, which costs less than turns.
 *
 * Turns are fair by weight: each job's vtime grows by the time of its turns over its weight, and
 * the smallest vtime is next (start-time fair queueing). A job that was not seen working gets short
 * turns, and is charged a long one for each, so that probing it costs the others about 1 %.
 *
 * Below the top the order is strict too: batch jobs get turns only while no normal job wants the
 * GPU. `floor` > 0 keeps a share for lower classes: between two classes that take turns by class
 * vtime, and against a top class that saturates the GPU by timeslices (floor_us for the lower job,
 * floor_us * (1 - floor) / floor for the top), which lets a request of the top class wait for up to
 * floor_us longer.
 *
 * A latency job with a budget lets the slice below it grow (budget.h), as far as the smallest
 * budget of the latency jobs goes; one without a budget keeps it small.
 *
 * Where latency jobs leave next to nothing, in gaps so short that switching back costs them more
 * than `top_loss`, the jobs below run only part of the time.
 *
 * Not good for several latency jobs that saturate the GPU together: they share by weight and no
 * deadline of theirs is looked at. */
#include "sched/budget.h"
#include "sched/policy.h"

#define PROBE_CHARGE 10U /* in turns: an idle job is looked at every PROBE_CHARGE turns or so */

static bool of_class(const struct member *m, enum job_class class)
{
    return !m->paused && m->class == class;
}

/* May have the turn: see the strict order above. last: lowest class that takes part. */
static bool takes_turns(const struct member *m, enum job_class top, enum job_class last)
{
    return !m->paused && !m->watched && m->class > top && m->class <= last;
}

/* Who goes before all others of its class; NULL: nobody. */
static struct member *hurried(struct policy_device *dev, enum job_class top, enum job_class last)
{
    struct member *m = dev->hurried == SLOT_NONE ? NULL : &dev->members[dev->hurried];
    return m && takes_turns(m, top, last) ? m : NULL;
}

/* A job that does not work is only looked at, unless none of them works: then there is no hurry.
 * With a floor a turn has at least one of the job's slices in it, however busy the top is. */
static uint64_t turn_ns(const struct sched_params *p, const struct member *m, uint32_t busy)
{
    uint32_t us = m->idle && busy ? p->probe_us : p->rotation_us;
    double cycle_us = p->floor > 0.0 ? p->timeslice_floor_us / p->floor : 0;
    return (us < cycle_us ? (uint64_t)cycle_us : us) * 1000ULL;
}

static void end_turn(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    if (dev->holder == SLOT_NONE)
        return;
    struct member *m = &dev->members[dev->holder];
    dev->holder = SLOT_NONE;
    /* What it had beyond its turn nobody else wanted: not charged. */
    uint64_t turn = turn_ns(p, m, 0);
    uint64_t ns = now_ns > dev->turn_start_ns ? now_ns - dev->turn_start_ns : 0;
    ns = ns < turn ? ns : turn;
    dev->class_vtime[m->class] += ns;
    m->vtime += (m->idle && !m->attends ? turn * PROBE_CHARGE : ns) * WEIGHT_DEFAULT / m->weight;
}

/* The class that is owed turns most when a floor is kept: vtime over the class's share. */
static enum job_class owed_class(const struct sched_params *p, const struct policy_device *dev,
                                 enum job_class upper, enum job_class lower)
{
    double u = (double)dev->class_vtime[upper] / (1.0 - p->floor);
    double l = (double)dev->class_vtime[lower] / p->floor;
    return l < u ? lower : upper;
}

static void pick_next(const struct sched_params *p, struct policy_device *dev, enum job_class top,
                      enum job_class last, uint64_t now_ns)
{
    enum job_class above = top; /* classes at or above it do not take part */
    if (p->floor > 0.0 && top == CLASS_LATENCY) {
        uint32_t busy[CLASS_COUNT] = {0};
        for_each_member (dev, m)
            busy[m->class] += !m->paused && !m->idle;
        if (busy[CLASS_NORMAL] && busy[CLASS_BATCH]) {
            last = owed_class(p, dev, CLASS_NORMAL, CLASS_BATCH);
            above = (enum job_class)(last - 1);
        } else {
            /* Nobody saves up turns while the other class is away. */
            dev->class_vtime[CLASS_NORMAL] = dev->class_vtime[CLASS_BATCH] = 0;
        }
    }
    struct member *best = NULL;
    for_each_member (dev, m) {
        if (takes_turns(m, above, last) && (!best || m->vtime < best->vtime))
            best = m;
    }
    const struct member *first = hurried(dev, above, last);
    best = first ? &dev->members[first->job] : best;
    if (!best)
        return;
    best->turn_group = SLOT_NONE; /* of several contexts the next */
    policy_begin_turn(dev, best, !best->idle && !first, now_ns);
}

/* Who of the lower classes runs now. last: see takes_turns(). */
static void rotate(const struct sched_params *p, struct policy_device *dev, enum job_class top,
                   enum job_class last, uint64_t now_ns)
{
    uint32_t n = 0, busy = 0;
    for_each_member (dev, m) {
        n += takes_turns(m, top, last) ? member_width(m) : 0;
        busy += takes_turns(m, top, last) && !m->idle;
    }
    const struct member *h = dev->holder == SLOT_NONE ? NULL : &dev->members[dev->holder];
    const struct member *first = hurried(dev, top, last);
    if (h && (!takes_turns(h, top, last) || (first && first != h && first->class == h->class) ||
              (n > 1 && now_ns >= dev->turn_start_ns + turn_ns(p, h, busy))))
        end_turn(p, dev, now_ns);
    if (dev->holder == SLOT_NONE)
        pick_next(p, dev, top, last, now_ns);
    if (n > 1 && dev->holder != SLOT_NONE) {
        uint64_t end = dev->turn_start_ns + turn_ns(p, &dev->members[dev->holder], busy);
        dev->wake_ns = end < dev->wake_ns ? end : dev->wake_ns;
    }
}

/* Enough was seen at the present slice to judge it. */
static bool seen_enough(const struct policy_device *dev)
{
    return dev->seen_s >= 0.2 && (dev->seen_returns >= 8 || dev->seen_s >= 0.4);
}

/* A fifth more or less than what it is, or it stays: a change is a control call, and what was seen
 * is forgotten with it. Down it goes only when that would not make it grow again at once. */
static uint32_t budget_slice(const struct sched_params *p, struct policy_device *dev)
{
    uint32_t budget = policy_budget(dev);
    if (!budget) {
        dev->budget_slice_us = 0;
        return p->timeslice_min_us;
    }
    /* Nothing seen yet: as long as the budget allows. */
    uint32_t most = budget_slice_us(p, budget, NULL), now = dev->budget_slice_us;
    uint32_t next = now >= p->timeslice_min_us && now <= most ? now : most;
    if (next == now && seen_enough(dev)) {
        struct budget_seen seen = {.returns_hz = dev->seen_returns / dev->seen_s,
                                   .busy = dev->seen_busy_s / dev->seen_s,
                                   .slice_us = now};
        struct sched_params strict = *p;
        strict.switch_loss *= 0.8;
        uint32_t up = budget_slice_us(p, budget, &seen),
                 down = budget_slice_us(&strict, budget, &seen);
        if (up > now + now / 5 || down < now - now / 5)
            next = up > now ? up : down;
    }
    if (next != now)
        dev->seen_s = dev->seen_returns = dev->seen_busy_s = 0;
    return dev->budget_slice_us = next;
}

/* Shares of the GPU. Part of its switches counts as a short request's own time, so that many of
 * them seem to leave nothing: measured on H200, a request of 0.1 ms has 0.163 ms of the engine and
 * costs the batch side 0.45, the rest being OUTSIDE switches. */
#define MOST_OF_IT      0.6
#define NEXT_TO_NOTHING 0.05
#define OUTSIDE         1.6
#define LOOKED_NS       1000000000U
#define REST_NS         5000000000U
#define LATE_S          0.15 /* what is told first after a rest is of the rest */

/* Whether the lower jobs are to wait, because what they get is not worth what it costs: each gap of
 * the top in which they run makes it wait for a switch, and a training job that feeds the GPU
 * kernel by kernel has a hundred a second. They run while that is measured, and rest for so much
 * longer that the top loses top_loss on the whole. */
static bool lower_rests(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    if (dev->rest_until_ns && now_ns >= dev->rest_until_ns) {
        dev->rest_until_ns = 0;
        dev->rested_ns = now_ns;
        dev->unseen_s = LATE_S;
    }
    if (!dev->rest_until_ns && seen_enough(dev)) {
        double lost = dev->seen_returns / dev->seen_s * p->switch_us * 1e-6;
        double busy = dev->seen_busy_s / dev->seen_s, got = 1.0 - busy - OUTSIDE * lost;
        if (lost > p->top_loss && busy >= MOST_OF_IT && got < NEXT_TO_NOTHING) {
            uint64_t ran = now_ns - dev->rested_ns;
            double rest = (double)(ran < LOOKED_NS ? ran : LOOKED_NS) * (lost / p->top_loss - 1.0);
            dev->rest_until_ns = now_ns + (rest < REST_NS ? (uint64_t)rest : REST_NS);
            dev->seen_s = dev->seen_returns = dev->seen_busy_s = 0;
        }
    }
    return dev->rest_until_ns;
}

#define WAITS_NS 1000000000U

static void decide(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    uint32_t n[CLASS_COUNT] = {0}, busy[CLASS_COUNT] = {0};
    for_each_member (dev, m) {
        n[m->class] += !m->paused;
        busy[m->class] += !m->paused && !m->idle;
    }
    enum job_class top = n[CLASS_LATENCY]  ? CLASS_LATENCY
                         : n[CLASS_NORMAL] ? CLASS_NORMAL
                                           : CLASS_BATCH;
    uint32_t lower = 0, width = 0;
    for_each_member (dev, m)
        width += of_class(m, top) ? member_width(m) : 0;
    for (unsigned c = top + 1U; c < CLASS_COUNT; c++)
        lower += n[c];

    policy_share_slices(p, dev,
                        top == CLASS_LATENCY ? p->timeslice_latency_us : p->timeslice_share_us,
                        of_class, top);
    uint32_t lower_us = top == CLASS_LATENCY && lower ? budget_slice(p, dev) : p->timeslice_min_us;
    if (width == 1 && (lower || top == CLASS_LATENCY)) {
        for_each_member (dev, m)
            m->timeslice_us = of_class(m, top) ? p->timeslice_alone_us : m->timeslice_us;
    } else if (n[top] == 1 && top != CLASS_LATENCY && !lower) {
        for_each_member (dev, m)
            m->timeslice_us = of_class(m, top) ? 0 : m->timeslice_us;
    }
    dev->minds_gaps = top == CLASS_LATENCY && lower && p->floor == 0.0 && !policy_budget(dev) &&
                      dev->hurried == SLOT_NONE;
    bool rests = dev->minds_gaps && lower_rests(p, dev, now_ns);
    if (!lower || rests)
        end_turn(p, dev, now_ns);
    if (!lower)
        return;
    if (p->floor > 0.0) {
        lower_us = p->timeslice_floor_us;
        double most = (double)lower_us * (1.0 - p->floor) / p->floor / width;
        for_each_member (dev, m) {
            if (of_class(m, top) && m->timeslice_us > most)
                m->timeslice_us = (uint32_t)most;
        }
    }

    /* Normal jobs beside a latency job keep batch jobs waiting, but only while one of them works:
     * that is looked at where there is a time to wake. */
    bool batch_waits = top == CLASS_LATENCY && busy[CLASS_NORMAL] && p->floor == 0.0;
    if (rests)
        dev->wake_ns = dev->rest_until_ns < dev->wake_ns ? dev->rest_until_ns : dev->wake_ns;
    else
        rotate(p, dev, top, batch_waits ? CLASS_NORMAL : CLASS_BATCH, now_ns);
    if (batch_waits && n[CLASS_BATCH] && now_ns + WAITS_NS < dev->wake_ns)
        dev->wake_ns = now_ns + WAITS_NS;
    for_each_member (dev, m) {
        if (m->paused || m->class <= top)
            continue;
        m->timeslice_us = lower_us;
        m->runnable = (m->job == dev->holder && (!dev->risen || p->floor > 0.0)) || m->watched;
        m->one_by_one = !m->watched;
    }
}

const struct policy policy_priority = {
    .name = "priority",
    .summary = "latency before normal before batch; batch jobs take turns",
    .strict = true,
    .decide = decide,
};

const struct policy policy_laxity = {
    .name = "laxity",
    .summary = "as priority, but who would miss its deadline goes before its like",
    .strict = true,
    .deadlines = DEADLINES_LAXITY,
    .decide = decide,
};

const struct policy policy_edf = {
    .name = "edf",
    .summary = "as priority, but within a class the earliest deadline goes first",
    .strict = true,
    .deadlines = DEADLINES_FIRST,
    .decide = decide,
};
