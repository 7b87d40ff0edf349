/* What the tests in virtual time share. Every figure is a share, a ratio or a time of simulated
 * runs on an H200. */
#ifndef CEDE_TESTS_SIM_SCENARIO_H
#define CEDE_TESTS_SIM_SCENARIO_H

#include <math.h>

#include "../test.h"
#include "base/util.h"
#include "softgpu/sim/sim.h"

#define US  1000ULL
#define MS  1000000ULL
#define SEC 1000000000ULL
#define L   CLASS_LATENCY
#define N   CLASS_NORMAL
#define B   CLASS_BATCH

/* The times are those of a scenario that says none. */
static inline struct sim_result simulate_for(struct sim_scenario s, uint64_t duration_ns,
                                             uint64_t settle_ns)
{
    struct softgpu_params p;
    struct sim_result r;
    softgpu_params_h200(&p);
    s.duration_ns = s.duration_ns ? s.duration_ns : duration_ns;
    s.settle_ns = s.settle_ns ? s.settle_ns : settle_ns;
    assert_int_equal(sim_run(&p, &s, &r), 0);
    return r;
}

/* A run, and what has to come of it. Where a bound is 0 there is none. */
struct sim_row {
    const char *name;
    struct sim_scenario s;
    struct {
        double lo, hi; /* of the GPU, what it gets done */
        double p99_us, max_us;
        uint32_t slice_us; /* at the end */
    } job[4];
    double wasted;  /* on the first GPU, less than this part of the time, */
    uint64_t calls; /* with fewer control calls */
};

/* Fails if one of them is not as it says. Whatever the row, a job that is paused gets nothing, from
 * 1 ms after the request. */
static inline void sim_table(const struct sim_row *rows, size_t n,
                             struct sim_result (*simulate)(struct sim_scenario s))
{
    unsigned wrong = 0;
    for (const struct sim_row *row = rows; row < rows + n; row++) {
        struct sim_result r = simulate(row->s);
        bool ok = (row->wasted <= 0 || r.gpu_wasted[0] < row->wasted) &&
                  (!row->calls || r.calls < row->calls);
        printf("%s:", row->name);
        for (size_t j = 0; j < ARRAY_SIZE(row->job) && row->s.jobs[j].kernel_ns; j++) {
            double done = r.job[j].done, p99 = r.job[j].p99_us, longest = r.job[j].max_us;
            ok &= done >= row->job[j].lo && (row->job[j].hi <= 0 || done <= row->job[j].hi);
            ok &= row->job[j].p99_us <= 0 || p99 < row->job[j].p99_us;
            ok &= row->job[j].max_us <= 0 || longest < row->job[j].max_us;
            ok &= !row->job[j].slice_us || r.job[j].timeslice_us == row->job[j].slice_us;
            ok &= r.job[j].paused_share < 1e-9;
            printf(" %.3f p99 %.0f max %.0f us slice %u;", done, p99, longest,
                   r.job[j].timeslice_us);
        }
        printf(" wasted %.3f, %lu calls%s\n", r.gpu_wasted[0], (unsigned long)r.calls,
               ok ? "" : "  <-- WRONG");
        wrong += !ok;
    }
    assert_int_equal(wrong, 0);
}

#endif
