/* Inside the scheduler: what a policy sees and fills in. A policy is one file in policy/: one
 * function over one device, deterministic, without state of its own (state lives in the members and
 * in the device, so that changing policy at run time loses nothing). What spans devices, deadlines
 * and turns, is asked before and after the policy for all of them: see sched_decide(). */
#ifndef CEDE_SCHED_POLICY_H
#define CEDE_SCHED_POLICY_H

#include "sched/account.h"
#include "sched/boost.h"
#include "sched/budget.h"
#include "sched/company.h"
#include "sched/rotation.h"
#include "sched/runs.h"
#include "sched/sched.h"
#include "sched/slack.h"
#include "sched/speed_floor.h"

/* A job on a device. What each decision reads of all members comes first, within 64 bytes. */
struct member {
    uint32_t job;
    uint32_t prev, next; /* list of the device's members, in order of appearance */
    uint32_t weight;
    uint32_t account;
    enum job_class class;     /* now: see boost.h */
    enum job_class own_class; /* as its job has it */
    uint32_t ngroups;
    uint32_t ncompute; /* of them run kernels, and compete with each other */
    uint32_t gang;     /* on how many devices it computes together; 0: not a gang */
    bool used;
    bool paused;
    bool idle_here; /* not seen working on this device lately */
    bool idle;      /* nor, if it belongs to a gang, on any other */
    bool stray;     /* idle here, but its job works on another device */
    bool watched; /* does nothing that is known of, but may begin to at any time: not suspended, so
                     that this is seen at once */

    /* decision */
    bool runnable;
    bool serialize_contexts; /* of its computing groups only one runs, the others are suspended */
    uint32_t timeslice_us;
    uint32_t compute_us; /* of groups that compute, if it is another; 0: it is not */

    /* turns had so far, in ns divided by weight (times WEIGHT_DEFAULT), and when the last one
     * ended: see rotation.h. A gang's vtime is the same on all its devices. */
    uint64_t vtime, ended_ns;

    struct member_limits limit;
    struct member_due due;
    struct member_slack slack;
    uint32_t budget_us;
    double min_speed; /* 0: as params.latency_speed says */
    struct member_company company;
    uint32_t gang_first; /* the first device of the gang */
    uint32_t turn_group; /* the computing group that runs; SLOT_NONE: the next after the last */
    uint32_t last_group;

    double share, turn_weight; /* see account.h */

    /* Turns on linked devices: see round.c. */
    uint32_t set;
    double pace;
    bool fresh; /* came, or works again: its vtime says nothing */
};

/* Of all members of a device, for those who ask why they run or wait: why.c. */
struct crowd {
    uint32_t present[CLASS_COUNT];     /* not paused */
    uint32_t works[CLASS_COUNT];       /* one that works, or SLOT_NONE */
    uint32_t busy, width;              /* that want a turn; contexts that take part in turns */
    const struct company_place *queue; /* those who wait for the turn, the next first */
    uint32_t queued;
};

/* A device: its members, and the state of each mechanism beside its functions. */
struct policy_device {
    struct member *members; /* the pool: index with first, member.next */
    uint32_t first, last;
    struct account *accounts;    /* the same for all devices */
    struct account_turns *turns; /* of each account here */
    uint32_t gangs;              /* of the members are part of one */
    uint32_t island;             /* the first of the devices that gangs tie to this one */
    bool several;                /* accounts have jobs on the island */
    uint32_t nlimited;           /* of the members */
    uint32_t window;             /* whose it is; SLOT_NONE: nobody's: see limits.h */
    uint32_t probed;             /* of the limited jobs that do nothing this one is looked at */
    bool window_beside;          /* a latency job is on one of its devices */
    uint64_t turns_from_ns;      /* a turn that began before is over: limited jobs may go on anew */
    bool gated;

    struct rotation rotation;
    struct boost boost;
    struct slack_order order;
    struct speed_floor speed;
    struct runs runs;
    uint32_t contexts; /* below the latency class, that run: company.h */
    uint32_t fits_us;  /* their longest slice, where there are several, for the budget's sake */
    bool alone;        /* those of the holder one after the other, for the budget's sake */
    uint32_t tried, witness; /* until then all contexts of the one run, and one of the other */
    uint64_t try_until_ns, try_next_ns, try_wait_ns;
    bool tries; /* in this decision */
    struct company_gather gather;
    struct company_room room;
    bool company;      /* jobs may run beside others */
    uint32_t takers;   /* jobs that take turns */
    bool normal_heavy; /* a normal job saturates it */
    struct budget budget;
    struct observed seen;
    struct packing *packings; /* two, for this device and those linked to it; with a floor kept the
                                 second is of the class that is not owed the next turn */

    struct crowd crowd;
    uint64_t wake_ns; /* out: of this decision */
};

/* All devices at one moment. */
struct machine {
    const struct sched_params *params;
    struct policy_device *devices;
    uint32_t n;
    uint64_t now_ns;
    struct company_place *order; /* scratch: so many as there are members */
    bool limited;                /* some job or account has a floor or a ceiling */
    bool several, had_several;   /* accounts have jobs; had at the last decision */
};

struct policy {
    const char *name;
    const char *summary;
    enum deadline_use deadlines;
    bool strict; /* classes count */
    bool turns;  /* jobs may be suspended to take turns */
    /* Fills runnable and timeslice_us of every member that is not paused, wake_ns, and in rotation
     * which of them take turns: what these get follows from the turn (rotation_apply). */
    void (*decide)(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns);
};

extern const struct policy policy_laxity, policy_edf, policy_priority, policy_shares, policy_static;

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
    return !m->paused && !m->watched && m->class >= dev->rotation.from;
}

/* How many compete for the GPU on a member's behalf: one for each of its contexts. */
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

/* Makes the members of this class runnable, with timeslices in proportion to their weights: base_us
 * for the lightest, divided among a member's contexts. */
void policy_share_slices(const struct sched_params *p, struct policy_device *dev, uint32_t base_us,
                         enum job_class class);

#endif
