/* The scheduler and the software GPU's engine together in virtual time: what a policy does to jobs
 * of known behaviour on one GPU or several, with the time that switches and control calls take.
 * Plans are applied as the daemon does it: suspend, set timeslices, resume, one call after the
 * other. Pure: no clock, no system call. */
#ifndef CEDE_SOFTGPU_SIM_SIM_H
#define CEDE_SOFTGPU_SIM_SIM_H

#include "plan/sched.h"
#include "softgpu/engine.h"

#define SIM_JOBS_MAX 64
#define SIM_GPUS_MAX 8
#define SIM_ACCOUNTS 8

struct sim_job {
    enum job_class class;
    uint32_t weight; /* 0: default */
    uint32_t account;
    uint32_t budget_us; /* of a latency job */
    double min_speed;
    double gpu_min, gpu_max; /* floor and ceiling; 0: none */
    uint64_t kernel_ns;      /* 0: no job here, and none behind */
    uint64_t period_ns;      /* a request every (closed loop); 0: kernels back to back */
    bool open_loop;          /* requests come when they are due, whatever still waits */
    /* Of a job that is launch-bound, or has bursts, without a period: so many kernels, launched one
     * every launch_ns by a host that does not wait for them, then a wait for the last and host_ns
     * of host work. Each such step counts as a request. 0: no such steps. */
    uint32_t step_kernels;
    uint64_t launch_ns, host_ns;
    /* The host is faster or slower by up to this part, at random anew about every WANDER_NS: what
     * real ones do, by themselves or since others use them. */
    double wander;
    /* Requests come at random, so far apart on average, and each is there for so many steps: a
     * step serves all that are there, and without any there is none. 0: always steps. */
    uint64_t request_ns;
    uint32_t request_steps;
    uint32_t ranks;     /* so many processes do that, each with a context of its own; 0: one */
    bool lockstep;      /* and meet after each step */
    uint64_t change_ns; /* from then on a step is so many kernels and so much host work; 0: never */
    uint32_t then_kernels;
    uint64_t then_host_ns;
    uint64_t seed;    /* of an open loop: they come at random (Poisson), period_ns apart on average;
                         0: regularly */
    uint64_t slow_ns; /* from then on a request every 100 periods; 0: never */
    uint64_t pause_ns, resume_ns; /* paused between them; pause_ns 0: never */
    uint64_t leave_ns;            /* 0: stays */
    uint64_t come_ns;             /* 0: is there from the beginning */
    uint64_t idle_ns, busy_ns; /* kernels back to back, but none between them; idle_ns 0: always */
    /* Of a job with a period: when a request is due after it was issued, which the scheduler is
     * told of the oldest, with the GPU time that it still needs (of a latency job, with what it
     * needs in all). 0: nobody says so. */
    uint64_t due_ns;
    bool may_promote;
    /* A gang: on which GPUs it has a rank (bit map; 0: on the first one, and no gang), each of
     * which runs kernels of kernel_ns; after each of them all meet in a collective for sync_ns. */
    uint32_t gpus;
    uint64_t sync_ns;
    uint32_t strays; /* on these it has a context too, but no work */
};

struct sim_scenario {
    const char *policy; /* NULL: nobody schedules, the driver's default */
    double floor;
    bool blind;         /* nobody tells the scheduler who got the GPU how often */
    bool lossy;         /* each time some of the switches that it is told of are lost */
    uint64_t deaf_ns;   /* from then on it is told of no switch; 0: never */
    bool demand;        /* it is told which jobs work, */
    double unseen;      /* without this part of it, as where looks do not see what switches take */
    uint64_t report_ns; /* it is told what is due so often; 0: at once */
    uint32_t gpus;      /* 0: one */
    bool apart;         /* each GPU is decided by itself, as if there were no others */
    uint64_t duration_ns, settle_ns; /* what happens before settle_ns is not counted */
    struct sim_job jobs[SIM_JOBS_MAX];
};

struct sim_result {
    struct {
        double p50_us, p99_us; /* of requests submitted after settle_ns */
        double max_us;
        uint32_t requests;
        uint32_t late; /* of them */
        /* The most by which a request waited longer than for a slice and a switch of each other
         * context that might run meanwhile, and one more switch. Not of an open loop. */
        double beyond_us;
        uint32_t timeslice_us; /* at the end; 0: the driver's default */
        uint32_t slices;       /* so often was it set on the first of its GPUs */
        double share;          /* of the time, what its kernels ran or spun, on all its GPUs */
        double done;           /* the same, without what it spun: back to back, 1 is all there is */
        double paused_share;
    } job[SIM_JOBS_MAX];
    double gpu_busy[SIM_GPUS_MAX]; /* share of the time in which kernels ran or spun */
    /* Share of the time in which a GPU did nothing although a job had work there, which was not
     * paused but suspended, and no control call was under way that might change this. */
    double gpu_wasted[SIM_GPUS_MAX];
    uint64_t skew_ns; /* longest time from the first resumed rank of a gang to its last one */
    uint64_t calls;   /* control calls made, one for each group */
    /* After settle_ns: controls as the daemon makes them, which suspend or resume several groups of
     * a GPU, these groups, timeslices that were set, and decisions. */
    uint64_t lists, listed, slices, decisions;
};

/* 0, -ENOMEM, -EINVAL (no job, unknown policy, too many GPUs). */
int sim_run(const struct softgpu_params *engine, const struct sim_scenario *s,
            struct sim_result *out);

#endif
