/* Turns: of the jobs below the latency class one at a time runs on a device, the others are
 * suspended. Which one is fair by weight: each job's vtime grows by the GPU time of its turns over
 * its weight, and the smallest vtime is next (start-time fair queueing), first among accounts and
 * then among the jobs of one (account_shares.h). A job that was not seen working gets short turns,
 * and is charged a long one for each, so that probing it costs the others about 1 %.
 *
 * A *gang* is a job that computes on more than one device. Its processes wait for each other inside
 * collectives, so it has its turn on all its devices at the same time or on none. Devices that
 * share a gang are *linked* and switch together, in rounds (gang_turns.c); a device without gangs
 * rotates alone (turns.c). */
#ifndef CEDE_PLAN_TURNS_H
#define CEDE_PLAN_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/sched.h"

struct machine;
struct member;
struct policy_device;

/* Where a turn began: in no window, in the job's window, in another's (limits.h). */
enum turn_in { WINDOW_NONE, WINDOW_OWN, WINDOW_GAPS };

/* Invariants: current is SLOT_NONE or a member that takes turns here; that of a gang has all
 * devices of the gang, and no other job does (a gang whose devices changed loses its turn at the
 * next decision, and gets the next). A gang's vtime is the same on all its devices. Linked devices
 * have the same round_ns. vtime_floor never falls, and is no account's floor less
 * (account_shares.h); of linked devices it is that of all accounts. */
struct rotation {
    uint32_t current;       /* the job that has the turn; SLOT_NONE: none */
    uint32_t left;          /* account of a current job that left; SLOT_NONE: none */
    uint64_t turn_ns;       /* begin of the turn */
    bool by_class;          /* the turn was given by class; not on linked devices */
    enum turn_in in_window; /* where the turn began */
    uint64_t round_ns;      /* on linked devices: when all last switched */
    uint64_t vtime_floor;   /* vtime that jobs have reached */
    uint64_t account_floor; /* vtime with which a new account starts */
    uint64_t account_class_floor[CLASS_COUNT]; /* the same for turns that are given by class */
    uint64_t class_vtime[CLASS_COUNT];         /* GPU time of turns; counts while a floor is kept */
    uint64_t idle_since_ns; /* on gated devices: since when `current` wants nothing; TIME_NEVER: it
                               does */

    /* Of this decision, set by the policy. */
    enum job_class from;     /* the highest class that takes turns; CLASS_COUNT: none does */
    enum job_class top;      /* the highest class present */
    uint32_t slice_us;       /* of classes below the top */
    bool batch_waits;        /* batch jobs get turns only where no normal job wants the GPU */
    bool blocked;            /* no job has a turn now */
    bool wanted;             /* a job waits for a turn here */
    uint32_t link;           /* the first of the devices that it is linked with */
    uint32_t was_link;       /* the same at the last decision */
    bool linked, was_linked; /* with another device; the same at the last decision */
    uint32_t bit;            /* its number among the linked devices, 0..63 */
};

#define ROTATION_LEAD_NS 5000000000U /* the longest lead, in GPU time, that boosted turns leave */

void rotation_init(struct rotation *r, uint32_t device);
/* The length of a turn or round of `us`, in which a floor may need more time. */
uint64_t rotation_length_ns(const struct sched_params *p, uint32_t us);
/* The length of this job's turn. busy: number of working jobs. */
uint64_t rotation_turn_ns(const struct sched_params *p, const struct member *m, uint32_t busy);
/* When the turn of the device's current job ends, if others wait for it. */
uint64_t rotation_turn_end(const struct sched_params *p, const struct policy_device *dev,
                           uint32_t busy);
/* Gives the turn to this member. A member that waited for a higher class gets no credit for that
 * against its peers; nor do peers that come later, unless this member has its turn out of order,
 * because it is boosted or idle. leads: it is boosted, and comes before other accounts too. */
void rotation_begin(struct policy_device *dev, struct member *m, bool leads, uint64_t now_ns);
/* Gives it the turn without a change of vtime. */
void rotation_grant(struct policy_device *dev, struct member *m, uint64_t now_ns);
/* Ends the turn of the device's current job, if there is one, and charges it and the jobs that run
 * together with it; on linked devices divided by their pace (gang_turns.c). */
void rotation_end(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns);
/* Charges a member for time that it had out of turn. */
void rotation_charge(struct policy_device *dev, struct member *m, uint64_t ns);
/* Called when a member works again: its account is not charged for the last probe. */
void rotation_wake(struct policy_device *dev, const struct member *m);
/* Called when a member leaves. If it has the turn, the account is charged at the next decision. */
void rotation_leave(struct policy_device *dev, const struct member *m);
void rotation_charge_left(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns);
/* Decides again in time to see that normal jobs for which batch jobs wait have ceased to work. */
void rotation_look_again(struct policy_device *dev, uint64_t now_ns);
/* Decides the turn on a device that is not linked. */
void rotation_decide(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns);
/* Sets the members' runnable, timeslice_us and serialize_contexts by the turn. */
void rotation_apply(const struct sched_params *p, struct policy_device *dev);
/* Share of the turns below the top that is kept for batch jobs while normal ones work; 0: none. */
double rotation_floor(const struct sched_params *p, const struct policy_device *dev);
/* With a floor kept: the class, of these two, that has had less than its share. */
enum job_class rotation_owed_class(double floor, uint64_t upper_ns, uint64_t lower_ns);

/* gang.c: marks the job's members as a gang, or as none. A gang is idle only if it is so on all its
 * devices. Devices on which alone it is idle do not belong to it, because a program may open a
 * context on a device that it never uses. To be called when the job's groups or demand change. */
void gang_mark(const struct machine *mc, uint32_t job);
/* gang.c: decides which classes take turns where, and which devices are linked. */
void gang_link(const struct machine *mc);
/* gang_turns.c: decides the turns on the devices that are linked to this one, the first of them. */
void round_decide(const struct machine *mc, uint32_t first);

#endif
