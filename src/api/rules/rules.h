/* Rules classify GPU processes that no person has assigned or detached. The first rule that matches
 * counts. Matching is a pure function of facts (rule_conditions.h, match.h). */
#ifndef CEDE_API_RULES_RULES_H
#define CEDE_API_RULES_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "api/proto.h"
#include "base/principal.h"
#include "engine/engine.h"
#include "plan/sched.h"
#include "who/rule_conditions.h"

/* Which of the programs that a rule takes are one job: those with the same of these. */
enum launch_by {
    LAUNCH_ANY,     /* launcher, see launch.c */
    LAUNCH_PROCESS, /* each with its descendants */
    LAUNCH_SESSION,
    LAUNCH_CGROUP,
    LAUNCH_CONTAINER,
    LAUNCH_STEP /* of Slurm */
};

struct rule {
    char title[JOB_NAME_MAX]; /* [rule TITLE], or [account TITLE] */
    bool account;             /* its jobs belong to that account; request: the account's terms */
    bool class_said;          /* the environment gives the class, even a higher one */
    uint32_t promised;        /* what a promise may raise: promises.h */
    uint32_t n;               /* number of conditions, all of which have to hold */
    struct condition conditions[RULE_CONDITIONS_MAX];
    struct request request; /* the terms and the name; without a name, the process's own */
    enum launch_by launch;
};

struct rule_list {
    const struct rule *rules;
    size_t n;
    struct principals *principals; /* NULL: each uid is a principal */
    bool pool_batch;               /* batch jobs that cede starts share the GPU in a pool */
    bool pool_latency;             /* latency jobs may join pools, in which each job has at most */
    uint32_t pool_latency_sm;      /* this percentage of the SMs */
    bool environment;              /* CEDE_CLASS counts if no rule matches */
    uint64_t gpu_memory_bytes;     /* of the smallest GPU; 0: not known */
    struct identities *identities; /* reports of agents; NULL: none */
    struct lookups *lookups;       /* cede-identify; NULL: programs are not read */
};

#endif
