/* At start ceded compares the drivers of its GPUs with what is known of them (testbed/known.h). One
 * that was not run on such a GPU is checked before any program is steered: cede-check, a process,
 * measures on two small programs of its own whether timeslices and suspension have their effect.
 * Meanwhile the engine holds. What had no effect is withheld from the engine, and what a check
 * found is kept for later starts (findings.h). A check that came to no result withholds everything,
 * and is repeated.
 *
 * Nothing waits for cede-check: it is killed, with its programs, at the end of its time. */
#ifndef CEDE_DAEMON_CHECK_H
#define CEDE_DAEMON_CHECK_H

#include <sys/types.h>
#include <uv.h>

#include "control/config.h"
#include "daemon/process.h"
#include "device/ops.h"

#define CHECK_ANSWER_MAX 2048

struct check {
    struct engine *engine; /* NULL: never begun */
    uv_loop_t *loop;
    uint32_t due, failed; /* GPUs, bit masks: to be checked; checked without a result */
    unsigned gpu;         /* the one that is being checked */
    struct gpu_info info[DEVICE_GPUS_MAX];
    char device[16], state[160]; /* of the GPU; where findings are kept, or "" */
    const char *soft;
    pid_t pid;             /* 0: none */
    struct children *left; /* where it is, when it has nothing left to do */
    int out;               /* its answer; -1: none */
    uv_poll_t *poll;
    uv_timer_t timer; /* without data: there is nothing to check */
    unsigned stage;   /* how far it has been killed */
    char answer[CHECK_ANSWER_MAX];
    size_t n;
    void (*changed)(void *arg);
    void *arg;
};

struct check_options {
    enum driver_check mode;
    const char *soft;           /* where the software GPU listens; NULL: the default */
    const char *dir;            /* that ceded was given, for cede_state_dir(); or NULL */
    struct children *left;      /* gets the processes that have nothing left to do */
    void (*changed)(void *arg); /* the engine has something to do */
    void *arg;
};

/* Before the engine's first tick. */
void check_begin(struct check *c, uv_loop_t *loop, struct engine *e, const struct check_options *o);
/* Kills what is under way; its handles are closed with the loop's others. */
void check_stop(struct check *c);

#endif
