/* The check of drivers when ceded starts. A driver that was never run on such a GPU
 * (doctor/known.h) is checked before any program is steered: the process cede-check starts two
 * small programs and measures whether timeslices and suspension have their effect on them.
 * Meanwhile the engine is quiesced. Controls that had no effect are withheld from the engine, and
 * the finding is kept for later starts (findings.h). A check without a result withholds all
 * controls, and is repeated.
 *
 * cede-check is killed, with its programs, when its time is over. */
#ifndef CEDE_DAEMON_DRIVER_CHECK_H
#define CEDE_DAEMON_DRIVER_CHECK_H

#include <sys/types.h>
#include <uv.h>

#include "daemon/config.h"
#include "daemon/daemonize.h"
#include "gpu/ops.h"

#define CHECK_ANSWER_MAX 2048

struct check {
    struct engine *engine; /* NULL: check_begin() was not called */
    uv_loop_t *loop;
    uint32_t due, failed; /* GPUs, bit masks: to be checked; checked without a result */
    unsigned repeats;
    unsigned gpu; /* the GPU that is being checked */
    struct gpu_info info[DEVICE_GPUS_MAX];
    char device[16], state[160]; /* the GPU's driver; the directory of findings, or "" */
    const char *soft;
    pid_t pid;             /* of cede-check; 0: none runs */
    struct children *left; /* gets a process that was killed and has not ended */
    int out;               /* its answer; -1: none */
    uv_poll_t *poll;
    uv_timer_t timer; /* data NULL: not initialized, as no GPU has to be checked */
    unsigned stage;   /* signals sent to a late process: SIGTERM, SIGKILL, given up */
    char answer[CHECK_ANSWER_MAX];
    size_t n;
    void (*changed)(void *arg);
    void *arg;
};

struct check_options {
    enum driver_check mode;
    const char *soft;           /* the software GPU's socket; NULL: the default */
    const char *dir;            /* ceded's --dir, for cede_state_dir(); or NULL */
    struct children *left;      /* gets processes that were killed and have not ended */
    void (*changed)(void *arg); /* called when the engine has something to do */
    void *arg;
};

/* Called before the engine's first tick. */
void check_begin(struct check *c, uv_loop_t *loop, struct engine *e, const struct check_options *o);
/* Ends a running check; its handles are closed with the loop's others. */
void check_stop(struct check *c);

#endif
