/* A record of switches for the mock driver, of a latency job that leaves only short gaps. */
#ifndef CEDE_TESTS_ENGINE_GAPS_H
#define CEDE_TESTS_ENGINE_GAPS_H

#include "fixture.h"

#define SAVED_US  100 /* of a lower job's run, after its slice */
#define SWITCH_US 60  /* of a latency job's run, before its work */

/* What the record shows of a latency job that is launch-bound, while the batch job runs in its
 * gaps: after each slice it has the engine for the work that its host launched meanwhile, a share
 * of the time, or for a piece of work that does not get longer. */
struct gaps {
    pid_t latency, batch;
    double share;
    uint32_t piece_us;
    bool lost;
    uint64_t at;
};

HELPER void put(struct fixture *f, uint64_t ns, pid_t pid)
{
    switch_list_push(&f->d.record, &(struct gpu_switch){.ns = ns, .pid = pid});
}

HELPER void record_until(struct fixture *f, struct gaps *g, uint64_t until)
{
    const struct mock_group *batch = on(f, g->batch);
    g->at = max_u64(g->at, f->now);
    if (g->lost)
        put(f, f->now, GPU_UNKNOWN);
    while (g->at < until && !g->lost && !batch->suspended) {
        uint64_t run_us = batch->timeslice_us + SAVED_US;
        double work_us = g->piece_us + g->share / (1 - g->share) * (double)(run_us + SWITCH_US);
        put(f, g->at, g->batch);
        g->at += run_us * 1000;
        put(f, g->at, g->latency);
        g->at += SWITCH_US * 1000 + (uint64_t)(work_us * 1e3);
    }
}

#endif
