/* The scheduler's own tables, shared by sched.c and events.c. */
#ifndef CEDE_SCHED_SCHED_IMPL_H
#define CEDE_SCHED_SCHED_IMPL_H

#include "sched/policy.h"

struct job {
    bool used, paused;
    enum job_class class;
    uint32_t account, weight, budget_us;
    double min_speed;
    struct limits limits;
    struct member_due due;
};

struct group {
    uint32_t job, device; /* SLOT_NONE: slot free */
    uint32_t prev, next;  /* among the groups of its member */
    bool computes;
    uint32_t process;   /* any number that those of one process have in common */
    bool runs;          /* as the last plan has it */
    uint32_t slice_us;  /* too, since sliced_ns; */
    uint32_t before_us; /* and before that: the record is of the past */
    uint64_t sliced_ns;
    bool light; /* company.h */
    uint32_t light_us;
    double duty;
    struct context_use use;
};

struct sched {
    struct sched_limits limits;
    struct sched_params params;
    const struct policy *policy;
    struct job *jobs;
    struct group *groups;
    uint32_t ngroups; /* that are not free */
    struct account *accounts;
    uint32_t accounts_used; /* have jobs */
    bool had_several;
    uint32_t nlimited; /* jobs and accounts with limits */
    struct frames frames;
    struct account_turns *turns; /* [device * limits.accounts + account] */
    uint32_t *first_group;       /* [device * limits.jobs + job] */
    struct policy_device *devices;
    struct member *members;      /* [device * limits.jobs + job] */
    struct packing *packings;    /* two for each device */
    struct company_place *order; /* scratch, as long as members */
    uint32_t explained;          /* devices whose crowd, and order, are as of now: bit map */
    struct sched_setting *settings;
};

static inline uint32_t *sched_group_head(const struct sched *c, uint32_t device, uint32_t job)
{
    return &c->first_group[(size_t)device * c->limits.jobs + job];
}

static inline struct machine sched_machine(struct sched *c, uint64_t now_ns)
{
    return (struct machine){.params = &c->params,
                            .devices = c->devices,
                            .n = c->limits.devices,
                            .now_ns = now_ns,
                            .order = c->order,
                            .several = c->accounts_used > 1,
                            .had_several = c->had_several,
                            .limited = c->nlimited > 0};
}

#endif
