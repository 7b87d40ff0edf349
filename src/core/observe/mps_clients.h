/* Batch jobs in an MPS server that also has a latency job. To the scheduler the whole server is one
 * latency job, which is never suspended, because that would suspend the latency job. So jobs
 * outside the server would get only what its batch jobs leave, although their class is no lower.
 * Therefore those batch jobs take turns by weight with the jobs outside, and do not run while a job
 * of a higher class works there: they are held (SIGSTOP, on record), and the latency job runs on.
 * Jobs on several GPUs are not held, since kernels of a collective would wait for their peers. */
#ifndef CEDE_CORE_OBSERVE_MPS_CLIENTS_H
#define CEDE_CORE_OBSERVE_MPS_CLIENTS_H

#include "core/model.h"

struct clients {
    bool contend; /* both kinds of jobs exist, so it matters which of them work */
    struct clients_turn {
        bool outside;      /* it is the turn of the jobs outside */
        bool better;       /* it lasts as long as one of a higher class works */
        uint32_t job;      /* one of the jobs outside */
        uint64_t until_ns; /* when the turn ends; TIME_NEVER: at no fixed time */
    } turns[DEVICE_GPUS_MAX];
};

/* Decides which jobs are held; returns when to look again. */
uint64_t clients_due(struct clients *c, struct model *m);

/* Why a job that is held does not run on that GPU. */
struct sched_reason clients_explain(const struct clients *c, unsigned d);

#endif
