/* Demand and usage of jobs: the driver's usage(), activity() and demand() as facts of the model.
 * demand.c describes how these sources are combined. Decides nothing. */
#ifndef CEDE_CORE_OBSERVE_DEMAND_H
#define CEDE_CORE_OBSERVE_DEMAND_H

#include "core/model.h"

#define ACTIVITY_NS (100 * NSEC_PER_MSEC) /* between two looks at who got the engine */

struct demand {
    uint64_t usage_at, watched_until;
    uint64_t activity_at, activity_ns;      /* activity_ns: seen up to here; 0: not asked */
    uint64_t counted_ns;                    /* engine time is counted up to here */
    uint64_t exact_ns[DEVICE_GPUS_MAX];     /* time since counted_ns that activity() covered */
    uint64_t until_ns[DEVICE_GPUS_MAX];     /* jobs' engine time is complete up to here; 0: never */
    uint64_t had_ns[DEVICE_GPUS_MAX];       /* part of exact_ns in which a process had the engine */
    double all_busy[DEVICE_GPUS_MAX];       /* of all processes, 0..1, by usage(); < 0: unknown */
    double unmanaged_busy[DEVICE_GPUS_MAX]; /* of processes in no job, by usage() */
    bool has_window;                        /* these cover the time between two calls */
    uint64_t used_ns[DEVICE_GPUS_MAX];      /* how long each was busy so far, by usage() */
    bool fresh;                             /* the last demand_due() has seen activity */
};

/* Reads what programs on gated devices report, as facts of their processes. */
void demand_read(struct model *m);
/* Passes that to the scheduler as demand of their jobs, after scans have found their groups. */
void demand_gated(const struct demand *x, struct model *m);
/* Makes the next demand_due() ask usage(). */
void demand_ask(struct demand *x);
/* Asks the driver what is due; returns when the next is. turns: jobs take turns, or have
 * deadlines, so that it matters which of them work. */
uint64_t demand_due(struct demand *x, struct model *m, bool turns);
/* Notes after each decision which jobs may run now. */
void demand_decided(struct model *m);
/* A person resumed the job: it counts as working until it is seen idle. */
void demand_resumed(const struct demand *x, struct model *m, uint32_t job);
/* Whether usage() is due; asks it. */
bool demand_stale(const struct demand *x, const struct model *m);
void demand_refresh(struct demand *x, struct model *m);
/* A job ends: its share of time since the last usage() is assumed to be as before. */
void demand_ended(const struct demand *x, struct model *m, uint32_t job);
/* Keeps busy and memory_bytes of jobs up to date for some seconds, as a person looks at them. */
void demand_watch(struct demand *x, const struct model *m);

#endif
