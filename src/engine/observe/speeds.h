/* How fast each batch job of an MPS server goes, relative to alone, told from the GPU's counters
 * (sched/speeds.h), where the driver has them (GPU_CAP_COUNTERS). What a job does alone, its
 * *profile*, is measured when it joins: the server's other jobs are held (SIGSTOP, on record, so
 * that whoever is killed they go on) for two seconds at most, and for a twentieth of the time in
 * all; where they take turns, each turn shows it. While other jobs take turns on the GPU nothing is
 * told; what latency jobs do beside is measured with all held, and subtracted. Whether they run
 * together or take turns sched/space.h decides; who has no turn is held. */
#ifndef CEDE_ENGINE_OBSERVE_SPEEDS_H
#define CEDE_ENGINE_OBSERVE_SPEEDS_H

#include "engine/observe/experience.h"
#include "sched/space.h"

/* Of the one unit here: its profiles, measured while everybody is held and then, one by one, all
 * others; and who runs. */
struct speeds_gpu {
    uint32_t jobs[SPEED_JOBS]; /* slots */
    uint64_t numbers[SPEED_JOBS];
    uint32_t n;
    uint64_t key; /* of these programs: experience.h */
    bool profiling;
    uint64_t began; /* profiling */
    bool settled;   /* nobody has begun or ceased to run in this window */
    uint32_t next;  /* whose profile is measured: 0: nobody's, k: that of jobs[k - 1] */
    double beside[GPU_PARTS];
    double sum[GPU_PARTS]; /* of this window: counters times ns */
    uint64_t sum_ns;
    uint32_t windows;    /* since these jobs share the GPU; up to some */
    uint64_t at;         /* the next look; TIME_NEVER: nothing to do */
    uint64_t profile_at; /* not again before */
    uint32_t blind;      /* windows in a row that the counters told nothing of */
    uint32_t misfits;    /* windows in a row that the profiles do not explain */
    struct space space;  /* together, or in turns */
    uint32_t held;       /* by its last decision */
};

struct speeds {
    struct speeds_gpu gpu[DEVICE_GPUS_MAX];
    struct experience experience;
};

/* Looks at what is due; returns when the next is. */
uint64_t speeds_due(struct speeds *s, struct model *m);

/* Whether this job, together with those of its user that share a GPU in space now, did less the
 * last time than they would in turns. */
bool speeds_lose(const struct speeds *s, const struct model *m, uint32_t slot);

#endif
