/* Rules classify GPU processes that nobody assigned or detached. The first that matches wins.
 * Matching is a pure function of facts; only rules_fn() looks at /proc. */
#ifndef CEDE_CONTROL_RULES_H
#define CEDE_CONTROL_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "control/proto.h"
#include "engine/engine.h"
#include "lib/account.h"
#include "sched/sched.h"

#define RULE_PATTERN_MAX 192

struct rule {
    char title[JOB_NAME_MAX]; /* [rule TITLE], or [account TITLE] */
    bool account;             /* its jobs are of that account; the request is what that gets */
    /* What must be so; all that are given. */
    bool has_uid;
    uid_t uid;
    char exe[RULE_PATTERN_MAX];       /* fnmatch: whole path, or last part if without a slash */
    char cgroup[RULE_PATTERN_MAX];    /* fnmatch: whole path */
    char container[RULE_PATTERN_MAX]; /* start of an id, or fnmatch of one part of the path */
    struct request request;           /* what it then is; without a name: the process's own */
};

struct rule_facts {
    uid_t uid;
    const char *exe, *cgroup; /* "": not known, which no pattern matches */
};

struct rule_list {
    const struct rule *rules;
    size_t n;
    struct accounts *people; /* whose uids are whose; NULL: each is its own */
    bool pool_batch;         /* batch jobs that cede starts share in space (pool.h) */
};

/* A container is named by at least this many hexadecimal digits of its id. */
#define RULE_CONTAINER_DIGITS 8
/* Only hexadecimal digits: the start of an id rather than a pattern. */
bool rule_is_container_id(const char *s);

bool rule_matches(const struct rule *r, const struct rule_facts *f);
const struct rule *rules_find(const struct rule_list *l, const struct rule_facts *f);

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
