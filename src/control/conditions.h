/* Conditions of rules, and facts about a process that they are held against. Pure.
 *
 * Facts come from three places, and differ in what they are worth: what the kernel says of the
 * process; what root's agents told of its control group, and runtimes wrote down; and what the
 * program says of itself (arguments, environment), which only its user vouches for. */
#ifndef CEDE_CONTROL_CONDITIONS_H
#define CEDE_CONTROL_CONDITIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "identify/identify.h"
#include "lib/pairs.h"
#include "lib/workload.h"

#define RULE_PATTERN_MAX    192
#define RULE_KEY_MAX        96
#define RULE_CONDITIONS_MAX 12

enum condition_kind {
    COND_UID,
    COND_GROUP,
    COND_EXE,       /* fnmatch: whole path, or last part if without a slash */
    COND_ARGUMENTS, /* with a blank between each two */
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
    bool nobody;                    /* the name is no user's, no group's */
    char key[RULE_KEY_MAX];         /* of a variable or a label */
    char pattern[RULE_PATTERN_MAX]; /* fnmatch(3); of a user or group what was written */
};

struct rule_facts {
    uid_t uid;
    const char *exe, *cgroup; /* "": not known, which no pattern matches */
    const gid_t *groups;
    size_t ngroups;
    const struct workload *workload; /* NULL: none is known */
    struct pairs told;               /* by an agent: names as condition_name() has them */
    struct pairs read;               /* by cede-identify: names of identify.h */
    struct identify_origin origin;   /* of its words */
    bool pending;                    /* that has not answered yet */
};

enum verdict { VERDICT_NO, VERDICT_YES, VERDICT_PENDING };
enum verdict condition_holds(const struct condition *c, const struct rule_facts *f);

/* What it looks at, for a person; "" if it is not known. buf may be what is returned. */
#define CONDITION_SEEN 512
const char *condition_seen(const struct condition *c, const struct rule_facts *f,
                           char buf[static CONDITION_SEEN]);

/* As in cede.conf: "label" of COND_LABEL. */
const char *condition_name(enum condition_kind k);

/* What it needs cede-identify to read, as identify.h names it; "": nothing. */
const char *condition_wants(const struct condition *c, char buf[static RULE_KEY_MAX + 16]);

/* A process for which `narrow` holds is one for which `wide` does. False: that is not so, or it
 * cannot be told. */
bool condition_covers(const struct condition *wide, const struct condition *narrow);
/* No process meets both. */
bool condition_excludes(const struct condition *a, const struct condition *b);
/* Why no process meets it; NULL: some may. */
const char *condition_impossible(const struct condition *c);

/* A container is named by at least this many hexadecimal digits of its id. */
#define RULE_CONTAINER_DIGITS 8
/* Only hexadecimal digits: the start of an id rather than a pattern. */
bool rule_is_container_id(const char *s);

#endif
