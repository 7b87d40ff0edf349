/* What a session of the bench is to run, as `cede bench cells` is told it: one line of JSON, in
 * which every expression has been worked out. Reading and checking only. */
#ifndef CEDE_BENCH_RUNNER_PLAN_H
#define CEDE_BENCH_RUNNER_PLAN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"

#define PLAN_ROLES    6
#define PLAN_PHASES   8
#define PLAN_TEXT     2048 /* of a text, its end included */
#define PLAN_PROGRAMS 64   /* of a role, and at once */

/* Texts belong to the JSON; what it does not have is "". Lists of lines are separated by newlines.
 * {"base", "gpus", "settle", "seconds", "conf", "start", "stop", "run", "wrap",
 *  "roles": [{"name", "load" or "program", "count", "ready", "later", "terms", "options", "env"}],
 *  "phases": [{"name", "steps", "seconds"}]} */
struct session {
    const char *base; /* the scheduler in charge: "mps", "cede", or any other: the driver's */
    const char *conf; /* of the daemon, from [policy] on */
    const char *start, *stop, *run, *wrap;
    double gpus; /* that a software machine has */
    double settle, seconds;

    struct role {
        const char *name, *load, *program;
        const char *terms;   /* what `cede set` gets */
        const char *options; /* what `cede run` gets too; NULL: not started by it */
        const char *env;     /* lines NAME=VALUE */
        double count;
        double ready; /* seconds it may take until it works */
        bool later;   /* a step starts it */
    } roles[PLAN_ROLES];
    size_t nroles;

    /* With phases the programs live on while these steps are taken one after the other. */
    struct phase {
        const char *name, *steps;
        double seconds;
    } phases[PLAN_PHASES];
    size_t nphases;
};

/* -EINVAL: what is wrong with it. */
int plan_read(const json_t *o, struct session *x, struct error *err);

const struct role *plan_role(const struct session *x, const char *name);

/* One line of a list after the other into buf: start with previous NULL, go on with what was
 * returned, until NULL. */
const char *plan_line(const char *list, const char *previous, char *buf, size_t size);

#endif
