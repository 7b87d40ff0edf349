/* Rules classify GPU processes that nobody assigned or detached. The first that matches wins.
 * Matching is a pure function of facts (conditions.h, classify.h). */
#ifndef CEDE_CONTROL_RULES_H
#define CEDE_CONTROL_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "control/conditions.h"
#include "control/proto.h"
#include "engine/engine.h"
#include "lib/account.h"
#include "sched/sched.h"

/* Which programs that the same rule takes are one job: those that one thing started, whatever that
 * was, or only these. */
enum launch_by {
    LAUNCH_ANY,
    LAUNCH_PROCESS, /* each with its descendants */
    LAUNCH_SESSION,
    LAUNCH_CGROUP,
    LAUNCH_CONTAINER,
    LAUNCH_STEP /* of Slurm */
};

struct rule {
    char title[JOB_NAME_MAX]; /* [rule TITLE], or [account TITLE] */
    bool account;             /* its jobs are of that account; the request is what that gets */
    bool class_said;          /* its class is what the environment says, whatever that is */
    uint32_t n;               /* of conditions: all have to hold */
    struct condition conditions[RULE_CONDITIONS_MAX];
    struct request request; /* what it then is; without a name: the process's own */
    enum launch_by launch;
};

struct rule_list {
    const struct rule *rules;
    size_t n;
    struct accounts *people;       /* whose uids are whose; NULL: each is its own */
    bool pool_batch;               /* batch jobs that cede starts share in space (pool.h), */
    bool pool_latency;             /* in pools that latency jobs may join, where each has at most */
    uint32_t pool_latency_sm;      /* this percentage of the SMs */
    bool environment;              /* CEDE_CLASS counts, where no rule matches */
    struct identities *identities; /* what agents told; NULL: nothing */
    struct lookups *lookups;       /* NULL: nobody reads a program's own words */
};

/* Whose jobs a process's count for: the first account that matches, else its user's own. l may be
 * NULL. spec->uid is the process's. */
void rules_account(const struct rule_list *l, pid_t pid, struct job_spec *spec);

/* What a request asks for, for a job of this process. */
struct job_spec request_spec(const struct request *r, const char *comm, pid_t pid, bool admin);

/* Tells the engine of all accounts, and that there are no others. */
void rules_name_accounts(const struct rule_list *l, struct engine *e);

/* A rule_fn; arg is a struct rule_list that outlives the engine. */
int rules_fn(void *arg, pid_t pid, struct job_spec *spec);

/* comm made fit for a job's name (proto_name_ok). */
void rules_job_name(char name[static JOB_NAME_MAX], const char *comm, pid_t pid);

#endif
