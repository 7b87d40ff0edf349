/* What an administrator allows, as the arguments in plugstack.conf say it, and what a user asked
 * for. Pure: no I/O. */
#ifndef CEDE_SLURM_LIMITS_H
#define CEDE_SLURM_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/terms.h"
#include "lib/util.h"

#define LIMITS_MAX      64 /* arguments about partitions and QOSes */
#define LIMIT_NAME_MAX  64
#define LIMIT_CLASS_NOT CLASS_COUNT /* no class: the job is left alone */

/* In this order; the last that says something counts. */
enum limit_of { LIMIT_ALL, LIMIT_PARTITION, LIMIT_QOS };

/* One argument: of one of these three. */
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
    bool required;    /* what is not scheduled does not run */
    const char *dir;  /* of ceded's socket; NULL: the usual one. The argument's memory */
    const char *cede; /* the executable, for pools */
};

/* What a job's options say. */
struct wish {
    bool has_class, pool;
    enum job_class class;
    uint32_t weight; /* 0: nothing said */
};

/* One argument. -EINVAL, -ENOSPC. */
int limits_read(struct limits *l, const char *argument, struct error *err);

/* Whether what is allowed depends on where a job runs. */
bool limits_differ(const struct limits *l);

/* What a job becomes: class (LIMIT_CLASS_NOT: no job of cede's) and weight. partition NULL: it is
 * not known yet, and neither is the QOS; then only what is allowed nowhere is refused. -EPERM,
 * -EINVAL: refused, and why. */
int limits_apply(const struct limits *l, const struct wish *w, const char *partition,
                 const char *qos, enum job_class *class, uint32_t *weight, struct error *err);

#endif
