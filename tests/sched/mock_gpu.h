/* A fake GPU for testing policies without hardware: jobs with simple demands share it the way the
 * hardware's round-robin does, in proportion to the timeslices of those that are runnable and have
 * work. No switching costs, no kernels: for those see the software GPU's engine. */
#ifndef CEDE_TESTS_SCHED_MOCK_GPU_H
#define CEDE_TESTS_SCHED_MOCK_GPU_H

#include "fixture.h"

#define MOCK_JOBS 8

struct mock_job {
    enum job_class class;
    uint32_t times;  /* so many of them; 0: one */
    uint32_t weight; /* 0: default */
    uint32_t account;
    double min, max;                 /* floor and ceiling; 0: none */
    double limits_to_s;              /* then it has none any more; 0: to the end */
    double need;                     /* of the GPU while it is there: 1 = saturates */
    double from_s, to_s;             /* lives in [from, to); to 0: to the end */
    double works_from_s, works_to_s; /* has work only then; to 0: always */
    double pause_s, resume_s;        /* paused in [pause, resume); 0: never */
    double lo, hi;                   /* expected share of the GPU over the measured time */

    /* A request of work_s of GPU time every every_s, one at a time, late ones left out; need is
     * anything above 0. due_s: its deadline after it began, which the scheduler is told, with what
     * is left of it times guess (0: 1); 0: it has none. */
    double work_s, every_s, due_s, guess;
    bool may_promote;
    int priority;
    uint32_t late;    /* expected at most; of requests that were done, or are past their deadline */
    double slowest_s; /* of the requests at most; 0: any */
};

/* A latency job that is seldom at work. */
#define LIGHT                                                                                      \
    {                                                                                              \
        .class = L, .need = 0.1, .lo = 0.099, .hi = 0.101                                          \
    }

struct mock_scenario {
    const char *name;
    const char *policy; /* NULL: nobody schedules */
    double floor;
    double seconds;
    double measure_from_s;           /* shares are counted from here on */
    bool usage;                      /* the driver tells who works (EV_DEMAND every 0.5 s) */
    bool saturated;                  /* somebody can always run: no time may be lost */
    double urgent_s, deadline_share; /* 0: default; deadline_share < 0: 0 */
    struct {
        uint32_t weight; /* 0: default */
        double min, max;
    } account[4];
    uint64_t turns_least, turns_most, decisions_most; /* 0: any number */
    struct mock_job jobs[MOCK_JOBS];
};

struct mock_result {
    double share[MOCK_JOBS];
    double frame_least[MOCK_JOBS], frame_most[MOCK_JOBS]; /* share of 500 ms, or 100 (latency) */
    uint32_t requests[MOCK_JOBS], late[MOCK_JOBS];
    double slowest_s[MOCK_JOBS]; /* request */
    double wait_s[MOCK_JOBS];    /* longest time without any GPU time while there was work */
    double starved_s[MOCK_JOBS]; /* the same, with less than 1 % of it */
    double lost;                 /* share of time the GPU idled although some job had work */
    uint64_t overlaps;           /* ms with two jobs below the top class at work beside it */
    uint64_t turns;              /* changes of the runnable set */
    uint64_t decisions;
};

void mock_run(const struct mock_scenario *s, struct mock_result *r);
/* Runs all rows and fails if one of them is not as it says. lost: of the GPU's time at most, where
 * somebody can always run. */
void mock_table(const struct mock_scenario *rows, size_t n, double lost);

#endif
