/* Inside a cell: what measuring (cell.c) and steering (steer.c) share. */
#ifndef CEDE_BENCH_RUNNER_CELL_IMPL_H
#define CEDE_BENCH_RUNNER_CELL_IMPL_H

#include "bench/runner/cell.h"

struct instance {
    const struct role *role;
    struct child *child;
    double cpu; /* seconds of CPU time: when the window began, then what was taken in it */
};

struct run {
    struct bench *b;
    const struct session *x;
    bool mps, cede; /* in charge */
    struct instance v[PLAN_PROGRAMS];
    size_t n;
    struct child *helper; /* MPS control, or what a configuration keeps running */
    char pipe_dir[96];    /* of MPS */
    json_t *verbs;        /* what the verbs of this phase took */
    json_t *cells;        /* done */
};

/* Runs a program to its end; -ECHILD with its last words if its status is not 0. us may be NULL. */
int steer_helper(struct run *run, const char *name, const char *const *argv, const char *const *env,
                 uint64_t limit_ns, double *us, struct error *err);
int steer_shell(struct run *run, const char *name, const char *command, struct error *err);
int steer_start_mps(struct run *run, struct error *err);
void steer_stop_mps(struct run *run);

/* Starts a role's programs and waits until all of them work. */
int steer_start(struct run *run, const struct role *role, struct error *err);
/* Ends a role's programs, or all (NULL). -EBADMSG: a result was wrong. */
int steer_stop(struct run *run, const struct role *role, struct error *err);
/* `cede set` for every program that it did not start. */
int steer_adopt(struct run *run, struct error *err);
/* One line of a phase. */
int steer_step(struct run *run, const char *line, struct error *err);

int steer_daemon(struct run *run, struct error *err);

/* Whether a role's programs are started by `cede run`, and not adopted. */
bool steer_by_run(const struct run *run, const struct role *role);

#endif
