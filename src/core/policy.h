/* Inside the core: what a policy sees and fills in. A policy is one file in policy/: one function
 * over one device, deterministic, without state of its own (state lives in the members and in the
 * device, so that changing policy at run time loses nothing). */
#ifndef CEDE_CORE_POLICY_H
#define CEDE_CORE_POLICY_H

#include "core/core.h"

/* A job on a device. */
struct member {
    uint32_t job;
    uint32_t ngroups;
    enum job_class class;
    uint32_t weight;
    bool paused;
    bool idle; /* not seen working lately */

    /* decision */
    bool runnable;
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

    /* rotation: who has the turn, and since when; CORE_NONE: nobody */
    uint32_t holder;
    uint64_t turn_start_ns;
    uint64_t vtime_floor; /* vtime a newcomer starts with */
    uint64_t class_vtime[CLASS_COUNT];

    uint64_t wake_ns; /* out */
};

struct policy {
    const char *name;
    const char *summary;
    /* Fills runnable, timeslice_us of every member that is not paused, and dev->wake_ns. */
    void (*decide)(const struct core_params *p, struct policy_device *dev, uint64_t now_ns);
};

extern const struct policy policy_priority, policy_shares, policy_static;

#define for_each_member(dev, m)                                                                    \
    for (struct member *m = (dev)->first == CORE_NONE ? NULL : &(dev)->members[(dev)->first]; m;   \
         m = m->next == CORE_NONE ? NULL : &(dev)->members[m->next])

/* Makes the members that `pick` selects runnable, with timeslices in proportion to their weights:
 * base_us for the lightest. */
void policy_share_slices(const struct core_params *p, struct policy_device *dev, uint32_t base_us,
                         bool (*pick)(const struct member *m, enum job_class class),
                         enum job_class class);

#endif
