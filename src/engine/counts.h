/* Sums up how each job and each GPU spent its time, for views, metrics and accounting. Engine time
 * itself is counted where it is observed (core/observe/demand.h).
 *
 * A job waits while it has work, as far as is known, and may not run. A GPU's idle time counts
 * while a job waits for it that is not at its own ceiling: between two reports of GPU time it is at
 * least (time in which a job waited) - (time in which the GPU worked). */
#ifndef CEDE_ENGINE_COUNTS_H
#define CEDE_ENGINE_COUNTS_H

#include "core/observe/demand.h"

struct counts {
    uint64_t counted_ns; /* end of demand's last window */
    struct gpu_idle {
        bool waits;         /* a job waits for the GPU */
        uint64_t since;     /* time up to which waited_ns is counted */
        uint64_t waited_ns; /* in this window */
        uint64_t idle_ns;
        bool known; /* the driver has reported GPU time at least once */
    } on[DEVICE_GPUS_MAX];
};

/* Called after each commit. decided: it may have changed which jobs may run. */
void counts_update(struct counts *x, struct model *m, bool decided);
/* Called after demand_due(). */
void counts_observed(struct counts *x, const struct model *m, const struct demand *demand);
/* *out: the totals of a job up to now. */
void counts_now(const struct model *m, const struct job *j, struct job_totals *out);

#endif
