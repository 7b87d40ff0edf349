/* What the tests of the scheduler share: the classes by their letters, and events that have to be
 * accepted. */
#ifndef CEDE_TESTS_SCHED_FIXTURE_H
#define CEDE_TESTS_SCHED_FIXTURE_H

#include "../test.h"
#include "base/util.h"
#include "plan/sched.h"

#define L   CLASS_LATENCY
#define N   CLASS_NORMAL
#define B   CLASS_BATCH
#define US  NSEC_PER_USEC
#define MS  NSEC_PER_MSEC
#define SEC NSEC_PER_SEC

/* With the parameters by default. */
static inline struct sched *scheduler(uint32_t devices, uint32_t jobs, uint32_t groups)
{
    struct sched_params p;
    struct sched *c;
    params_default(&p);
    assert_int_equal(sched_new(&(struct sched_limits){devices, jobs, groups, jobs}, &p, &c), 0);
    return c;
}

static inline void event(struct sched *c, struct sched_event e)
{
    assert_int_equal(sched_event(c, &e), 0);
}

/* EVENT(c, DEMAND, .job = 1, .on = true) */
#define EVENT(c, what, ...) event(c, (struct sched_event){.type = EV_##what, __VA_ARGS__})

/* With a group on device 0 that has its number and computes. */
static inline void add_job(struct sched *c, uint32_t job, enum job_class class)
{
    EVENT(c, JOB_ADD, .job = job, .class = class, .weight = WEIGHT_DEFAULT);
    EVENT(c, GROUP_ADD, .job = job, .group = job, .process = job, .computes = true);
}

/* The same numbers for the same seed, on every machine. */
static inline uint32_t rng(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(*seed >> 33);
}

#endif
