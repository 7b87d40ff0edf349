/* One cell of a scenario: programs started together under one configuration, watched for a window
 * of time in which all of them work, and ended. Knows nothing of repeats, statistics over them,
 * targets or files. Each runs in a separate test bed (testbed.h), so a cell leaves nothing
 * behind, and a cell that fails takes no other with it. */
#ifndef CEDE_BENCH_RUNNER_CELL_H
#define CEDE_BENCH_RUNNER_CELL_H

#include <jansson.h>

#include "bench/runner/plan.h"
#include "doctor/testbed.h"

/* What sessions run on. bench_init() fills the first part, the calls below the second. */
struct bench {
    const char *device; /* of the load generator: "nvidia", "soft" or "opencl" */
    const char *driver; /* of the daemon */
    bool soft;
    bool gated;    /* programs hold themselves, so they are started by `cede run`, never adopted */
    char exe[256]; /* this program */
    const char *programs; /* directory of "@/..." */

    uint64_t memory_mib;       /* what a point may ask for; 0: not known */
    char gpu[64], version[64]; /* its name, and of its driver */
    char rate_option[48];      /* --iterations-per-us=..., or "" */
    struct testbed bed;
    int signal;            /* that asked us to end; 0: none */
    bool daemon_on_demand; /* of phases: it starts before the first step that is for it */
    bool verified;         /* every result of every program of the last session was right */
    /* Called when a phase begins, and while programs are measured; the cells that are done. */
    void (*watch)(void *watcher, const struct bench *b, const json_t *cells);
    void *watcher;
};

/* Runs it and appends to cells: {"status": "ok|failed", "error", "stderr", "window_s",
 * "roles": {ROLE: {metrics}}}, one for each phase. Returns -EINTR when a signal asks us to end (no
 * cell then), -ENOMEM; every other failure is a cell. */
int session_run(struct bench *b, const struct session *x, json_t *cells, struct error *err);

int bench_init(struct bench *b, const char *device, const char *programs);
/* Which GPU it is. Every cell has its own software GPU; the description is of one more. */
int bench_describe(struct bench *b, struct error *err);
/* Speed of the GPU for --iterations-per-us; nothing to do on the software GPU. */
int bench_calibrate(struct bench *b, struct error *err);

/* A metric of a cell, with or without its unit; NULL. */
const json_t *cell_metric(const json_t *cell, const char *role, const char *name);

#endif
