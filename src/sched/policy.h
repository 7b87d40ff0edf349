/* Inside the scheduler: what a policy sees and fills in. A policy is one file in policy/: one
 * function over one device, deterministic, without state of its own (state lives in the members and
 * in the device, so that changing policy at run time loses nothing). */
#ifndef CEDE_SCHED_POLICY_H
#define CEDE_SCHED_POLICY_H

#include "sched/sched.h"

/* A job on a device. */
struct member {
    uint32_t job;
    uint32_t ngroups;
    uint32_t ncompute;        /* of them run kernels, and compete with each other */
    enum job_class class;     /* now: see policy/hurry.c */
    enum job_class own_class; /* as its job has it */
    uint32_t weight;
    uint32_t budget_us;
    bool paused;
    bool idle; /* not seen working lately */

    /* of a request that is open; TIME_NEVER: none */
    uint64_t deadline_ns, left_ns;
    int priority;
    bool may_rise, attends; /* see EV_DEADLINE */
    bool in_hurry;
    bool watched; /* does nothing that is known of, but may begin to at any time: not suspended, so
                     that it is seen */
    uint64_t hurried_for, risen_for; /* deadlines; 0: none */

    /* decision */
    bool runnable;
    bool one_by_one;     /* of its computing groups only one runs, the others are suspended */
    uint32_t turn_group; /* that one; SLOT_NONE: the scheduler picks, the next after the last */
    uint32_t last_group;
    uint32_t timeslice_us;

    /* rotation: turns had so far, in ns divided by weight (times WEIGHT_DEFAULT) */
    uint64_t vtime;

    /* list of the device's members, in order of appearance */
    uint32_t prev, next;
    bool used;
};

struct policy_device {
    struct member *members; /* the pool: index with first, member.next */
    uint32_t first, last;
    uint32_t count;
    bool gated;

    /* rotation: who has the turn, and since when; SLOT_NONE: nobody */
    uint32_t holder;
    uint64_t turn_start_ns;

    /* deadlines (policy/hurry.c): whom others wait for, SLOT_NONE: nobody; as a latency job? */
    uint32_t hurried;
    bool risen, holds_up;
    bool hurry_over; /* they have waited enough for now */
    double hurry_debt;
    uint64_t hurry_seen_ns;
    double upper, upper_seen; /* share of time that latency jobs take; seen < 0: nobody told */

    uint64_t idle_since_ns; /* the holder, on a gated device; TIME_NEVER: it is not */
    uint64_t vtime_floor;   /* vtime a newcomer starts with */
    uint64_t class_vtime[CLASS_COUNT];

    /* a latency budget: the lower jobs' slice now (0: not chosen yet), and what was seen since it
     * was set, older things counting less */
    uint32_t budget_slice_us;
    double seen_s, seen_returns, seen_busy_s;

    /* lower jobs rest, because they cost the top more than they get; 0: they do not. After that so
     * much time is not looked at: what is told of it is of the rest. */
    uint64_t rest_until_ns, rested_ns;
    double unseen_s;

    /* out */
    uint64_t wake_ns;
    bool minds_gaps; /* lower jobs would rest if latency jobs had most of the GPU */
};

enum deadline_use { DEADLINES_IGNORED, DEADLINES_LAXITY, DEADLINES_FIRST };

struct policy {
    const char *name;
    const char *summary;
    enum deadline_use deadlines;
    bool strict; /* classes count, and jobs take turns */
    /* Fills runnable, timeslice_us of every member that is not paused, and dev->wake_ns. */
    void (*decide)(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns);
};

extern const struct policy policy_laxity, policy_edf, policy_priority, policy_shares, policy_static;

#define for_each_member(dev, m)                                                                    \
    for (struct member *m = (dev)->first == SLOT_NONE ? NULL : &(dev)->members[(dev)->first]; m;   \
         m = m->next == SLOT_NONE ? NULL : &(dev)->members[m->next])

/* See policy/hurry.c. Before deciding: sets class and in_hurry of every member, hurried and risen
 * of the device, and wakes in time. */
void policy_hurry(const struct sched_params *p, struct policy_device *dev, enum deadline_use use,
                  uint64_t now_ns);

/* See policy/gated.c. strict: classes count, as in "priority". */
void policy_gated(const struct sched_params *p, struct policy_device *dev, bool strict,
                  uint64_t now_ns);

/* How many compete for the GPU on a member's behalf: one for each of its contexts. */
static inline uint32_t member_width(const struct member *m)
{
    return m->ncompute > 1 ? m->ncompute : 1;
}

/* What the least patient of the latency jobs can bear; 0 where there is none. */
static inline uint32_t policy_budget(const struct policy_device *dev)
{
    uint32_t least = UINT32_MAX;
    for_each_member (dev, m) {
        if (m->class == CLASS_LATENCY && !m->paused && m->budget_us < least)
            least = m->budget_us;
    }
    return least == UINT32_MAX ? 0 : least;
}

/* The turn is this member's. Who waited for a better class has no credit for that against its like;
 * counts: nor has who comes later against this one. */
static inline void policy_begin_turn(struct policy_device *dev, struct member *m, bool counts,
                                     uint64_t now_ns)
{
    if (m->vtime < dev->vtime_floor)
        m->vtime = dev->vtime_floor;
    else if (counts)
        dev->vtime_floor = m->vtime;
    dev->holder = m->job;
    dev->turn_start_ns = now_ns;
}

/* Makes the members that `pick` selects runnable, with timeslices in proportion to their weights:
 * base_us for the lightest, divided among a member's contexts. */
void policy_share_slices(const struct sched_params *p, struct policy_device *dev, uint32_t base_us,
                         bool (*pick)(const struct member *m, enum job_class class),
                         enum job_class class);

#endif
