/* The scheduler's tables, private to src/plan. */
#ifndef CEDE_PLAN_SCHED_IMPL_H
#define CEDE_PLAN_SCHED_IMPL_H

#include "plan/policy.h"

struct job {
    bool used, paused;
    uint32_t account;
    struct sched_terms terms;
    struct limits limits;
    struct member_due due;
};

struct group {
    uint32_t job, device; /* SLOT_NONE: slot free */
    uint32_t prev, next;  /* among the groups of its member */
    bool computes;
    uint32_t process;   /* the same number for all groups of one process */
    bool runs;          /* by the last plan */
    uint32_t slice_us;  /* by the last plan, since sliced_ns */
    uint32_t before_us; /* before that; the record of switches lags behind */
    uint64_t sliced_ns;
    bool light; /* light_jobs.h */
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
    uint32_t ngroups; /* number of slots in use */
    struct account *accounts;
    uint32_t accounts_used; /* number of accounts with jobs */
    bool had_several;
    uint32_t nlimited; /* number of jobs and accounts with limits */
    struct frames frames;
    struct account_turns *turns; /* [device * limits.accounts + account] */
    uint32_t *first_group;       /* [device * limits.jobs + job] */
    struct policy_device *devices;
    struct member *members;      /* [device * limits.jobs + job] */
    struct packing *packings;    /* two for each device */
    struct company_entry *order; /* scratch, as long as members */
    uint32_t explained;          /* bit map of devices whose crowd, with its order, is up to date */
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

/* dispatch.c: decides by job, deadline and limits whether the member is present, and its class. */
void dispatch_admit(const struct sched *c, struct member *m);

#endif
