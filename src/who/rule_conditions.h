/* Conditions of rules, and the facts about a process that they are compared with. Pure.
 *
 * Facts have three sources that are trusted differently: the kernel; root's agents and container
 * runtimes, which describe the process's control group; and the program itself (arguments,
 * environment), whose facts are only as good as its user. */
#ifndef CEDE_WHO_RULE_CONDITIONS_H
#define CEDE_WHO_RULE_CONDITIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/pairs.h"
#include "who/identify.h"
#include "who/workload.h"

#define RULE_PATTERN_MAX    192
#define RULE_KEY_MAX        96
#define RULE_CONDITIONS_MAX 12

enum condition_kind {
    COND_UID,
    COND_GROUP,
    COND_EXE,       /* the whole path, or its last part if the pattern has no slash */
    COND_ARGUMENTS, /* joined by blanks */
    COND_ENVIRONMENT,
    COND_CGROUP,    /* whole path */
    COND_CONTAINER, /* start of an id, or fnmatch of one part of the path */
    COND_UNIT,
    COND_CONTAINER_NAME,
    COND_IMAGE,
    COND_POD, /* name or uid */
    COND_NAMESPACE,
    COND_PRIORITY_CLASS,
    COND_LABEL,
    COND_SLURM_JOB,
    COND_PARTITION,
    COND_QOS,
    CONDITIONS
};

struct condition {
    uint32_t kind;                  /* enum condition_kind */
    uint32_t id;                    /* of a user or group */
    bool nobody;                    /* no user or group has the name */
    char key[RULE_KEY_MAX];         /* of a variable or a label */
    char pattern[RULE_PATTERN_MAX]; /* for fnmatch(3); a user or group as it was written */
};

struct rule_facts {
    uid_t uid;
    const char *exe, *cgroup; /* "": not known, which no pattern matches */
    const gid_t *groups;
    size_t ngroups;
    const struct workload *workload; /* NULL: none is known */
    struct pairs told;               /* by an agent, under the names of condition_name() */
    struct pairs read;               /* by cede-identify, under the names of identify.h */
    struct identify_origin origin;   /* where its environment's words for cede come from */
    bool pending;                    /* cede-identify has not answered yet */
};

enum verdict { VERDICT_NO, VERDICT_YES, VERDICT_PENDING };
enum verdict condition_holds(const struct condition *c, const struct rule_facts *f);

/* The fact that it is compared with, as text for a person; "" if it is not known. */
#define CONDITION_SEEN 512
const char *condition_seen(const struct condition *c, const struct rule_facts *f,
                           char buf[static CONDITION_SEEN]);

/* Its name in cede.conf, such as "label". */
const char *condition_name(enum condition_kind k);

/* The fact that cede-identify has to read for it, by its name in identify.h; "": none. */
const char *condition_wants(const struct condition *c, char buf[static RULE_KEY_MAX + 16]);

/* Whether `wide` holds for every process for which `narrow` does. False also where that cannot be
 * decided. */
bool condition_covers(const struct condition *wide, const struct condition *narrow);
/* Whether no process can meet both. False also where that cannot be decided. */
bool condition_excludes(const struct condition *a, const struct condition *b);
/* Why no process can meet it; NULL: some may. */
const char *condition_impossible(const struct condition *c);

/* A container is named by at least this many hexadecimal digits of its id. */
#define RULE_CONTAINER_DIGITS 8
/* Whether it is the start of an id, only hexadecimal digits, and not a pattern. */
bool rule_is_container_id(const char *s);

#endif
