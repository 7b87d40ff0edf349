/* The speed of each batch job of an MPS server relative to its speed alone, from the GPU's counters
 * (plan/speeds.h), where the driver has them (GPU_CAP_COUNTERS). A job's *profile*, what it does
 * alone, is measured when it joins: the server's other jobs are held (SIGSTOP, on record, so that
 * they are continued whichever process is killed) for two seconds at most, and for a twentieth of
 * the time in all. Where jobs take turns, each turn shows it. While jobs outside the server take
 * turns on the GPU there are no speeds. What latency jobs do meanwhile is measured with all jobs
 * held, and subtracted. plan/space_sharing.h decides whether jobs run together or take turns. */
#ifndef CEDE_CORE_OBSERVE_SPEEDS_H
#define CEDE_CORE_OBSERVE_SPEEDS_H

#include "core/observe/experience.h"
#include "plan/space_sharing.h"

/* The one unit on a GPU whose jobs are measured, first with all jobs held and then, for each job in
 * turn, with all others held. */
struct speeds_gpu {
    uint32_t jobs[SPEED_JOBS]; /* slots */
    uint64_t numbers[SPEED_JOBS];
    uint32_t n;
    uint64_t key; /* of these programs, for experience.h */
    bool profiling;
    uint64_t began; /* when profiling began */
    bool settled;   /* no job has begun or ceased to run in this window */
    uint32_t next;  /* the profile being measured: that of jobs[next - 1]; 0: all jobs are held */
    double beside[GPU_PARTS]; /* what latency jobs do */
    double sum[GPU_PARTS];    /* counters times ns in this window */
    uint64_t sum_ns;
    uint32_t windows;    /* since these jobs share the GPU, SHORT_MAX at most */
    uint64_t at;         /* the next look; TIME_NEVER: nothing to do */
    uint64_t profile_at; /* the earliest time of the next profiles */
    uint32_t blind;      /* windows in a row in which the counters failed */
    uint32_t misfits;    /* windows in a row that the profiles do not explain */
    struct space space;  /* whether they run together or in turns */
    uint32_t held;       /* jobs held by its last decision: bit mask */
};

struct speeds {
    struct speeds_gpu gpu[DEVICE_GPUS_MAX];
    struct experience experience;
};

/* Looks at what is due; returns when the next is. */
uint64_t speeds_due(struct speeds *s, struct model *m);

/* What this job and the batch jobs of its user on a GPU, or of these only clients of MPS servers,
 * do together, in thousandths of one of them alone, as far as experience.h has it; else 0. */
uint32_t speeds_together(const struct speeds *s, const struct model *m, uint32_t slot, unsigned d,
                         bool clients);

/* Whether this job and those of its user that share a GPU in space now did less together the last
 * time than they would have in turns. */
bool speeds_lose(const struct speeds *s, const struct model *m, uint32_t slot);

#endif
