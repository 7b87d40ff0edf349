/* The data that policies read and fill in, private to the scheduler. A policy is one file in
 * policy/: one deterministic function over one device, without state: that is in the members and in
 * the device, so that a change of policy loses nothing. Deadlines and turns, which span devices,
 * are decided before and after the policy: see sched_decide(). */
#ifndef CEDE_PLAN_POLICY_H
#define CEDE_PLAN_POLICY_H

#include "base/util.h"
#include "plan/account_shares.h"
#include "plan/boost.h"
#include "plan/budget.h"
#include "plan/latency_order.h"
#include "plan/light_jobs.h"
#include "plan/sched.h"
#include "plan/speed_floor.h"
#include "plan/switch_record.h"
#include "plan/turns.h"

/* A job on a device. Fields that each decision reads of all members are in the first 64 bytes. */
struct member {
    uint32_t job;
    uint32_t prev, next; /* list of the device's members, in order of appearance */
    union {
        struct sched_terms; /* its job's, but the class is the present one: see dispatch_admit() */
        struct sched_terms terms;
    };
    uint32_t account;
    enum job_class own_class; /* its job's */
    uint32_t ngroups;
    uint32_t ncompute; /* number of groups that run kernels, and so compete with each other */
    uint32_t gang;     /* number of devices on which it computes together; 0: not a gang */
    bool used;
    bool present;   /* not paused, nor suspended by a limit; dispatch.c sets this and class */
    bool idle_here; /* not seen working on this device lately */
    bool idle;      /* nor, if it belongs to a gang, on any other */
    bool stray;     /* idle here, but its job works on another device */
    bool watched;   /* idle, but not suspended, so that it is seen at once when it begins to work */

    /* decision */
    bool runnable;
    bool serialize_contexts; /* only one of its computing groups runs at a time */
    uint32_t timeslice_us;
    uint32_t compute_us; /* timeslice of groups that compute; 0: timeslice_us */

    /* Turns that it had, in ns divided by weight (times WEIGHT_DEFAULT), and when the last one
     * ended: see turns.h. A gang's vtime is the same on all its devices. */
    uint64_t vtime, ended_ns;

    struct member_limits limit;
    struct member_due due;
    struct member_slack slack;
    struct member_company company;
    uint32_t gang_first; /* the first device of the gang */
    uint32_t turn_group; /* the computing group that runs; SLOT_NONE: the one after last_group */
    uint32_t last_group;

    double share, turn_weight; /* see account_shares.h */

    /* Turns on linked devices: see gang_turns.c. */
    uint32_t set;
    double pace;
    bool fresh; /* it is new, or works again, so that its vtime does not count */
};

/* Facts about all members of a device, by which why.c explains. */
struct crowd {
    uint32_t present[CLASS_COUNT];     /* number of members that are present */
    uint32_t works[CLASS_COUNT];       /* a job that works, or SLOT_NONE */
    uint32_t busy, width;              /* jobs that want a turn; contexts that take turns */
    const struct company_entry *queue; /* jobs that wait for their turn, in order */
    uint32_t queued;
};

/* A device: its members, and the state of each mechanism beside its functions. */
struct policy_device {
    struct member *members; /* by job; a list: first, member.next */
    uint32_t first, last;
    struct account *accounts;    /* the same for all devices */
    struct account_turns *turns; /* of each account here */
    uint32_t gangs;              /* number of members that belong to a gang */
    uint32_t island;             /* the first of the devices that gangs tie to this one */
    bool several;                /* several accounts have jobs on the island */
    uint32_t nlimited;           /* number of members with limits */
    uint32_t window;             /* the job that has a window (limits.h); SLOT_NONE: none */
    uint32_t probed;             /* the idle job that is probed in this frame */
    bool window_beside;          /* a latency job is on one of the window's devices */
    uint64_t turns_from_ns;      /* turns that began before this time are over: limits.c */
    bool gated;

    struct rotation rotation;
    struct boost boost;
    struct slack_order order;
    struct speed_floor speed;
    struct runs runs;
    uint32_t contexts;       /* number of contexts that run below the latency class: light_jobs.h */
    uint32_t fits_us;        /* their longest slice within the budget, where there are several */
    bool alone;              /* the budget lets only one of the current job's contexts run */
    uint32_t tried, witness; /* jobs of the present try */
    uint64_t try_until_ns, try_next_ns, try_wait_ns;
    bool tries; /* there is a try in this decision */
    struct company_gather gather;
    struct company_room room;
    bool company;      /* jobs may run together */
    uint32_t takers;   /* number of jobs that take turns */
    bool normal_heavy; /* a normal job saturates the device */
    struct budget budget;
    struct observed seen;
    struct packing *packings; /* two, for this device and those linked to it; the second for the
                                 class that is not owed the next turn, where a floor is kept */

    struct crowd crowd;
    uint64_t wake_ns; /* result: when to decide again */
};

/* All devices, in one decision. */
struct machine {
    const struct sched_params *params;
    struct policy_device *devices;
    uint32_t n;
    uint64_t now_ns;
    struct company_entry *order; /* scratch, as long as there are members */
    bool limited;                /* a job or an account has a floor or a ceiling */
    bool several, had_several;   /* several accounts have jobs; had, at the last decision */
};

struct policy {
    const char *name;
    const char *summary;
    enum deadline_use deadlines;
    bool strict; /* classes count */
    /* Fills in runnable and timeslice_us of every member that is present, wake_ns and, in rotation,
     * which members take turns; rotation_apply() sets what these get. */
    void (*decide)(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns);
};

extern const struct policy policy_laxity, policy_edf, policy_priority, policy_shares;

#define for_each_member(dev, m)                                                                    \
    for (struct member *m = (dev)->first == SLOT_NONE ? NULL : &(dev)->members[(dev)->first]; m;   \
         m = m->next == SLOT_NONE ? NULL : &(dev)->members[m->next])

/* The devices on which a member's job acts as one: those of its gang, or the member's own. */
#define for_each_device_of(mc, own, m, dev)                                                        \
    for (struct policy_device *dev = (m)->gang ? (mc)->devices : (own);                            \
         dev < ((m)->gang ? (mc)->devices + (mc)->n : (own) + 1); dev++)                           \
        if (!(m)->gang || dev->members[(m)->job].gang)

/* See policy/gated.c. */
void policy_gated(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns);
/* See policy/priority.c: "shares" is the same with all jobs in one class. */
void policy_priority_decide(const struct sched_params *p, struct policy_device *dev,
                            uint64_t now_ns);

static inline bool rotation_takes_part(const struct policy_device *dev, const struct member *m)
{
    return m->present && !m->watched && m->class >= dev->rotation.from;
}

/* The number of a member's contexts that compete for the GPU. */
static inline uint32_t member_width(const struct member *m)
{
    return m->ncompute > 1 ? m->ncompute : 1;
}

static inline void policy_wake(struct policy_device *dev, uint64_t at_ns)
{
    dev->wake_ns = at_ns < dev->wake_ns ? at_ns : dev->wake_ns;
}

/* now_ns + ns, for any ns: a double beyond an integer's range must not be converted. */
static inline uint64_t policy_after(uint64_t now_ns, double ns)
{
    return now_ns + (ns >= 1e18 ? (uint64_t)1e18 : ns > 0 ? (uint64_t)ns : 0);
}

/* The smallest budget of the latency jobs that are present; 0: one has none, or there is no job. */
static inline uint32_t policy_budget(const struct policy_device *dev)
{
    uint32_t least = UINT32_MAX;
    for_each_member (dev, m) {
        if (m->class == CLASS_LATENCY && m->present && m->budget_us < least)
            least = m->budget_us;
    }
    return least == UINT32_MAX ? 0 : least;
}

#endif
