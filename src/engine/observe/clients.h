/* Clients of an MPS server in which there is a latency job. To the scheduler all of them are one
 * job of the latency class, which is never suspended, or the latency job would be. So jobs outside
 * would have only what the server's batch jobs leave, though these are no better than they are.
 * Therefore those clients take turns with the jobs outside, by weight, and do not run while one of
 * a better class works: they are held (SIGSTOP, on record), and the latency job runs on. Jobs on
 * several GPUs are not held, since kernels of a collective would wait for their peers. */
#ifndef CEDE_ENGINE_OBSERVE_CLIENTS_H
#define CEDE_ENGINE_OBSERVE_CLIENTS_H

#include "model/model.h"

struct clients {
    bool contend; /* there are such clients, and jobs outside: which of them work is to be known */
    struct clients_turn {
        bool outside;      /* it is that of the jobs outside, */
        bool better;       /* as long as one works that is of a better class; */
        uint32_t job;      /* one of them */
        uint64_t until_ns; /* TIME_NEVER: not by time */
    } turns[DEVICE_GPUS_MAX];
};

/* Decides who is held; returns when to look again. */
uint64_t clients_due(struct clients *c, struct model *m);

/* Why a job that is held does not run on that GPU. */
struct sched_reason clients_explain(const struct clients *c, unsigned d);

#endif
