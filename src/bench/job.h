/* Inside the bench: what one command is to do. The scenarios that were named, read and checked, and
 * their sessions in the order in which they are run; measures nothing. */
#ifndef CEDE_BENCH_JOB_H
#define CEDE_BENCH_JOB_H

#include "bench/bench.h"
#include "bench/cell.h"
#include "bench/result.h"
#include "testbed/machine.h"

/* A session of a scenario; run once in each repeat. */
struct planned {
    struct session x;
    size_t slot, same; /* the first point at which the session would be the very same */
    double seconds;    /* that it takes */
    char *key;
};

struct item {
    struct scenario *s;   /* one for each point */
    json_t *text;         /* of the scenario's file; NULL: not known */
    json_t *kept;         /* the result of an earlier run, which has all of it; NULL: none */
    struct planned *plan; /* in the order in which they are to be run */
    size_t nplan, nsame;  /* nsame: of those that need not be run, as another is the same */
    struct result result;
    bool begun;
    const char *skipped; /* why */
    double started, took;
    struct machine_clocks clocks; /* after the last session, while they are still what it had */
};

struct job {
    const struct bench_options *o;
    struct bench b;
    struct item items[BENCH_SCENARIOS];
    size_t n;
    double start, planned, done; /* seconds: planned work, and how much of it is over */
    size_t session, sessions;
    bool terminal;
};

/* Reads the scenarios. -ENOENT: no such one; -EINVAL: a mistake in one. */
int job_load(struct job *j, struct error *err);
void job_free(struct job *j);

bool job_wants(const struct job *j, const char *config);
size_t job_repeats(const struct job *j, const struct item *it);
/* Fills it->plan. -ENOMEM. */
int job_plan(struct job *j, struct item *it, struct error *err);

/* What the device is not that a scenario needs, or NULL. */
const char *job_other_device(const struct job *j, const struct scenario *s);

#endif
