/* How long each GPU stood idle while a job waited for it: whether the machine is used. For people
 * who look, and for metrics.
 *
 * A job waits while it has work, as far as is known, and may not run, unless its own ceiling is
 * what holds it. Between two reports of GPU time, at least (time in which a job waited) - (time in
 * which the GPU worked) was idle while it waited: that is what is counted. */
#ifndef CEDE_ENGINE_IDLE_H
#define CEDE_ENGINE_IDLE_H

#include "engine/observe/demand.h"

struct idle {
    uint64_t counted_ns; /* of demand: its last window */
    struct gpu_idle {
        bool waits;         /* a job does, since: */
        uint64_t since;     /* ns */
        uint64_t waited_ns; /* in this window */
        uint64_t idle_ns;
        bool known; /* the driver told GPU time at least once */
    } on[DEVICE_GPUS_MAX];
};

/* After each commit, when counts_update() is done. */
void idle_decided(struct idle *x, const struct model *m);
/* After demand was asked. */
void idle_observed(struct idle *x, const struct model *m, const struct demand *demand);

#endif
