/* The limits that an administrator sets by arguments in plugstack.conf, applied to the options of a
 * user's job. Pure: no I/O. */
#ifndef CEDE_SLURM_LIMITS_H
#define CEDE_SLURM_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/job_terms.h"
#include "base/util.h"

#define LIMITS_MAX      64 /* arguments about partitions and QOSes */
#define LIMIT_NAME_MAX  64
#define LIMIT_CLASS_NOT CLASS_COUNT /* no class: cede does not schedule the job */

/* Limits are applied in this order, and later ones override earlier ones. */
enum limit_of { LIMIT_ALL, LIMIT_PARTITION, LIMIT_QOS };

/* One argument: a default class, a highest class or a largest weight. */
struct limit {
    enum limit_of of;
    char name[LIMIT_NAME_MAX];
    enum { LIMIT_DEFAULT, LIMIT_CLASS, LIMIT_WEIGHT } kind;
    enum job_class class; /* the default; the highest that is allowed */
    uint32_t weight;      /* the largest */
};

struct limits {
    struct limit v[LIMITS_MAX];
    unsigned n;
    bool required;    /* tasks that ceded does not schedule do not run */
    const char *dir;  /* of ceded's socket; NULL: the default. Points into the argument */
    const char *cede; /* the executable, for pools; points into the argument */
};

/* The options of a job. */
struct limits_options {
    bool has_class, pool;
    enum job_class class;
    uint32_t weight; /* 0: not given */
};

/* Reads one argument. -EINVAL, -ENOSPC. */
int limits_read(struct limits *l, const char *argument, struct error *err);

/* Whether limits depend on the partition or the QOS. */
bool limits_differ(const struct limits *l);

/* Gives the job's class (LIMIT_CLASS_NOT: cede does not schedule it) and weight. partition NULL:
 * partition and QOS are not known yet; then only options that no limit allows are refused. -EPERM,
 * -EINVAL: refused, and err says why. */
int limits_apply(const struct limits *l, const struct limits_options *o, const char *partition,
                 const char *qos, enum job_class *class, uint32_t *weight, struct error *err);

#endif
