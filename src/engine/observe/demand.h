/* Which jobs work, and what they have: the driver's usage(), activity() and demand() as facts of
 * the model. The sources and how they go together are described in demand.c. Decides nothing. */
#ifndef CEDE_ENGINE_OBSERVE_DEMAND_H
#define CEDE_ENGINE_OBSERVE_DEMAND_H

#include "model/model.h"

#define ACTIVITY_NS (100 * NSEC_PER_MSEC) /* between two looks at who got the engine */

struct demand {
    uint64_t usage_at, watched_until;
    uint64_t activity_at, activity_ns;      /* ns: known up to here; 0: nobody looked */
    uint64_t counted_ns;                    /* engine time is counted up to here, of which */
    uint64_t exact_ns[DEVICE_GPUS_MAX];     /* activity() knew so much */
    uint64_t until_ns[DEVICE_GPUS_MAX];     /* jobs' engine time is complete up to here; 0: never */
    uint64_t had_ns[DEVICE_GPUS_MAX];       /* in which this long somebody had the engine */
    double all_busy[DEVICE_GPUS_MAX];       /* of all processes, 0..1, by usage(); < 0: unknown */
    double unmanaged_busy[DEVICE_GPUS_MAX]; /* of processes in no job, by usage() */
    bool has_window;                        /* these are of the time between two calls */
    uint64_t used_ns[DEVICE_GPUS_MAX];      /* how long each was busy so far, by usage() */
    bool fresh;                             /* the last demand_due() has seen activity */
};

/* What programs on gated devices say themselves, as facts of their processes; */
void demand_read(struct model *m);
/* and as demand of their jobs, after scans have found what the processes have. */
void demand_gated(const struct demand *x, struct model *m);
/* Asks the driver what is due; returns when the next is. turns: jobs take turns, or have
 * deadlines, so that it matters which of them work. */
uint64_t demand_due(struct demand *x, struct model *m, bool turns);
/* After each decision about a device: which jobs may run now. */
void demand_decided(struct model *m);
/* A person let it run again: it is taken to have work until it is seen that it has none. */
void demand_resumed(const struct demand *x, struct model *m, uint32_t job);
/* Whether usage() was not asked just now; asks. */
bool demand_stale(const struct demand *x, const struct model *m);
void demand_refresh(struct demand *x, struct model *m);
/* A job ends: what it had since usage() was last asked is taken to be as before. */
void demand_ended(const struct demand *x, struct model *m, uint32_t job);
/* Somebody looks: busy and memory_bytes of jobs are kept up to date for some seconds. */
void demand_watch(struct demand *x, const struct model *m);

#endif
