/* Inside the bench: what one command is to do. The scenarios that were named, read and checked, and
 * their sessions in the order in which they are run; measures nothing. */
#ifndef CEDE_BENCH_JOB_H
#define CEDE_BENCH_JOB_H

#include "bench/bench.h"
#include "bench/cell.h"
#include "bench/result.h"
#include "testbed/machine.h"

struct item {
    struct scenario *s;
    json_t *text; /* of the scenario's file; NULL: not known */
    json_t *kept; /* the result of an earlier run, which has all of it; NULL: none */
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
    char gpu[64], driver[64];
    double start, planned, done; /* seconds: planned work, and how much of it is over */
    size_t session, sessions, missing;
    bool terminal;
};

/* Called for every session of an item in the order they are to be run. */
typedef int (*session_fn)(struct job *j, struct item *it, const struct session *x, size_t repeat,
                          size_t slot, struct error *err);

int job_init(struct job *j, const struct bench_options *o);
/* Reads the scenarios. -ENOENT: no such one; -EINVAL: a mistake in one. */
int job_load(struct job *j, struct error *err);
void job_free(struct job *j);

bool job_wants(const struct job *j, const char *config);
size_t job_repeats(const struct job *j, const struct item *it);
int job_each_session(struct job *j, struct item *it, session_fn f, struct error *err);

/* A session_fn: counts it, and what it takes. */
int job_plan(struct job *j, struct item *it, const struct session *x, size_t repeat, size_t slot,
             struct error *err);
/* How long a session takes, in seconds. */
double job_estimate(const struct job *j, const struct session *x);
/* The first point at which the session would be the very same. */
size_t job_same_point(const struct session *x);

/* What the device is not that a scenario needs, or NULL. */
const char *job_other_device(const struct job *j, const struct scenario *s);

/* Whether a list of words has this one. */
bool job_has_word(const char *list, const char *word);

#endif
