/* Jobs that run beside others (light_jobs.h) and the floor of latency jobs (speed_floor.h), in
 * virtual time: what a review found. Every figure is a share or a time of one simulated run, or a
 * ratio to a run of the same programs without a scheduler. */
#include "scenario.h"

#define RARE .class = L, .kernel_ns = 100 * US, .period_ns = 10 * MS, .open_loop = true
#define LAUNCH_BOUND                                                                               \
    .class = L, .kernel_ns = 20 * US, .step_kernels = 200, .launch_ns = 50 * US, .host_ns = 100 * US
#define CLOSED_LOOP(c, kernel, host)                                                               \
    .class = (c), .kernel_ns = (kernel), .step_kernels = 1, .launch_ns = 1, .host_ns = (host)
#define SATURATING(c) .class = (c), .kernel_ns = 2 * MS

static struct sim_result simulate(struct sim_scenario s)
{
    s.policy = "laxity";
    s.demand = true;
    return simulate_for(s, 120 * SEC, 60 * SEC);
}

static struct sim_result unscheduled(struct sim_scenario s)
{
    s.duration_ns = 20 * SEC;
    s.settle_ns = 5 * SEC;
    return simulate_for(s, 0, 0);
}

/* Programs that wait for their hosts are known as such whatever their steps take. */
TEST(long_steps)
{
    static const unsigned host_ms[] = {5, 10, 20, 50};
    unsigned bad = 0;
    for (size_t i = 0; i < ARRAY_SIZE(host_ms); i++) {
        for (unsigned ranks = 2; ranks <= 8; ranks *= 2) {
            struct sim_scenario s = {.jobs = {{RARE},
                                              {.class = B,
                                               .kernel_ns = host_ms[i] * MS / 100,
                                               .step_kernels = 10,
                                               .launch_ns = US,
                                               .host_ns = host_ms[i] * MS,
                                               .ranks = ranks,
                                               .lockstep = true}}};
            double kept = simulate(s).job[1].done / unscheduled(s).job[1].done;
            printf("%u ranks in lockstep, %u ms host work: %.3f of the default\n", ranks,
                   host_ms[i], kept);
            bad += kept < 0.8;
        }
    }
    assert_int_equal(bad, 0);
}

/* The floor of a latency job holds beside light jobs too. */
TEST(floor_beside_light)
{
    unsigned bad = 0;
    for (unsigned n = 2; n <= 4; n += 2) {
        struct sim_scenario s = {.jobs = {{CLOSED_LOOP(L, 500 * US, 300 * US)}}};
        double alone = unscheduled(s).job[0].done;
        for (unsigned i = 1; i <= n; i++)
            s.jobs[i] = (struct sim_job){CLOSED_LOOP(B, 600 * US, (3 + i) * MS)};
        struct sim_result r = simulate(s);
        printf("beside %u light jobs: %.3f of its speed alone, p99 %.0f us\n", n,
               r.job[0].done / alone, r.job[0].p99_us);
        bad += r.job[0].done < 0.8 * alone; /* the floor is 0.9 */
    }
    assert_int_equal(bad, 0);
}

/* A job of requests with pauses of 0.7 ms is not launch-bound because light jobs run beside it. */
TEST(pauses_beside_light)
{
    struct sim_scenario s = {.jobs = {{CLOSED_LOOP(L, 500 * US, 700 * US)}, {SATURATING(B)}}};
    struct sim_result without = simulate(s);
    s.jobs[2] = (struct sim_job){CLOSED_LOOP(B, 500 * US, 2 * MS)};
    s.jobs[3] = (struct sim_job){CLOSED_LOOP(B, 500 * US, 2 * MS)};
    struct sim_result with = simulate(s);
    double batch = with.job[1].done + with.job[2].done + with.job[3].done;
    printf("p99 %.0f us, batch %.3f; with light jobs %.0f us, %.3f, slice %u us\n",
           without.job[0].p99_us, without.job[1].done, with.job[0].p99_us, batch,
           with.job[1].timeslice_us);
    assert_true(with.job[1].timeslice_us == 1);
    assert_true(batch > 0.8 * without.job[1].done);
}

/* Jobs that were idle and begin at once do not all run beside a latency job. */
TEST(idle_begin_together)
{
    struct sim_scenario s = {
        .duration_ns = 61 * SEC, .settle_ns = 59 * SEC, .jobs = {{RARE}, {SATURATING(B)}}};
    s.jobs[0].period_ns = 1700 * US;
    for (unsigned i = 2; i < 42; i++) {
        s.jobs[i] = (struct sim_job){SATURATING(B)};
        s.jobs[i].idle_ns = SEC;
        s.jobs[i].busy_ns = 60 * SEC;
    }
    double longest = simulate(s).job[0].max_us;
    printf("longest request %.0f us\n", longest);
    assert_true(longest < 5000); /* default: 80 ms */
}

/* Lower jobs go on soon after a latency job for which they are throttled has stopped. */
TEST(throttled_for_nobody)
{
    double least = 1;
    for (unsigned stop = 20; stop < 26; stop++) {
        struct sim_scenario s = {.duration_ns = (stop + 5) * SEC,
                                 .settle_ns = stop * SEC,
                                 .jobs = {{LAUNCH_BOUND}, {SATURATING(B)}}};
        s.jobs[0].min_speed = 1;
        s.jobs[0].idle_ns = stop * SEC;
        s.jobs[0].busy_ns = 1000 * SEC;
        double done = simulate(s).job[1].done;
        least = done < least ? done : least;
    }
    printf("at least %.3f of the next 5 s\n", least);
    assert_true(least > 0.55); /* a change of load is followed within 2 s */
}

/* A gang that waits for its host most of the time leaves its GPUs to others meanwhile, on all of
 * them or on none, as does a single job beside a gang that saturates its own. */
TEST(light_gang)
{
    struct sim_scenario s = {
        .gpus = 2,
        .duration_ns = 30 * SEC,
        .settle_ns = 10 * SEC,
        .jobs = {{RARE}, {CLOSED_LOOP(B, 500 * US, 4 * MS)}, {SATURATING(B)}, {SATURATING(B)}}};
    s.jobs[1].gpus = 3;
    s.jobs[1].lockstep = true;
    s.jobs[3].gpus = 2;
    double alone = unscheduled((struct sim_scenario){.gpus = 2, .jobs = {s.jobs[1]}}).job[0].done;
    struct sim_result r = simulate(s);
    printf("light gang %.3f of alone, beside it %.3f and %.3f, wasted %.3f and %.3f\n",
           r.job[1].done / alone, r.job[2].done, r.job[3].done, r.gpu_wasted[0], r.gpu_wasted[1]);
    assert_true(r.job[1].done > 0.7 * alone && r.job[2].done > 0.7 && r.job[3].done > 0.7);
    assert_true(r.gpu_wasted[0] < 0.03 && r.gpu_wasted[1] < 0.03);
    assert_true(r.job[0].beyond_us <= 34);
}

static const struct sim_row table[] = {
    {"a saturating job has half beside a light one that wants as much",
     {.jobs = {{RARE}, {SATURATING(B)}, {CLOSED_LOOP(B, 500 * US, 2 * MS), .ranks = 2}}},
     .job = {[1].lo = 0.42, [2].hi = 0.46}},
    {"what switching to the light one costs is not taken from it alone",
     {.jobs = {{RARE}, {SATURATING(B)}, {CLOSED_LOOP(B, 20 * US, MS), .ranks = 4}}},
     .job[1].lo = 0.38},
    /* There a floor gives the turns by class. */
    {"a job that begins to work is seen where none runs beside the one that has the turn",
     {.floor = 0.1,
      .duration_ns = 60 * SEC,
      .settle_ns = 40 * SEC,
      .jobs = {{RARE},
               {SATURATING(N)},
               {SATURATING(N), .idle_ns = 1, .busy_ns = 30 * SEC},
               {SATURATING(B)}}},
     .job = {[1].hi = 0.45, [2].lo = 0.41}},
    {"normal jobs come before batch jobs, light or not",
     {.duration_ns = 60 * SEC,
      .settle_ns = 40 * SEC,
      .jobs = {{RARE},
               {SATURATING(N), .come_ns = 20 * SEC},
               {CLOSED_LOOP(B, 700 * US, 1040 * US)},
               {SATURATING(B)}}},
     .job[1].lo = 0.85},
    {"a light job does not pay back what was left to it when it saturates the GPU",
     {.duration_ns = 110 * SEC,
      .settle_ns = 65 * SEC,
      .jobs = {{RARE},
               {SATURATING(B), .weight = 300},
               {CLOSED_LOOP(B, 600 * US, MS), .weight = 10, .change_ns = 60 * SEC,
                .then_kernels = 40, .then_host_ns = 1}}},
     .job[2].lo = 0.02},
    {"nor does one that saturated it all the time beside a light one of more weight",
     {.duration_ns = 110 * SEC,
      .settle_ns = 65 * SEC,
      .jobs = {{RARE},
               {CLOSED_LOOP(B, 600 * US, MS), .weight = 300, .change_ns = 60 * SEC,
                .then_kernels = 40, .then_host_ns = 1},
               {SATURATING(B)}}},
     .job[2].lo = 0.2},
#define SATURATES_LATER(kernel, host)                                                              \
    .change_ns = 20 * SEC, .then_kernels = (kernel), .then_host_ns = (host)
    {"two light jobs that begin to saturate the GPU together take turns",
     {.duration_ns = 60 * SEC,
      .settle_ns = 30 * SEC,
      .jobs = {{RARE},
               {CLOSED_LOOP(B, 800 * US, 2 * MS), SATURATES_LATER(60, 1)},
               {CLOSED_LOOP(B, 800 * US, 2 * MS), SATURATES_LATER(60, 1)}}},
     .job = {[0].p99_us = 400, [1].lo = 0.4, [2].lo = 0.4}},
    {"so do three",
     {.duration_ns = 60 * SEC,
      .settle_ns = 30 * SEC,
      .jobs = {{RARE},
               {CLOSED_LOOP(B, 400 * US, 2 * MS), SATURATES_LATER(200, 1)},
               {CLOSED_LOOP(B, 400 * US, 2 * MS), SATURATES_LATER(200, 1)},
               {CLOSED_LOOP(B, 400 * US, 2 * MS), SATURATES_LATER(200, 1)}}},
     .job = {[0].p99_us = 400, [1].lo = 0.25, [2].lo = 0.25, [3].lo = 0.25}},
    {"two whose work fills their slices but for a moment",
     {.duration_ns = 90 * SEC,
      .settle_ns = 60 * SEC,
      .jobs = {{RARE},
               {CLOSED_LOOP(B, 950 * US, 2 * MS), SATURATES_LATER(1, 100 * US)},
               {CLOSED_LOOP(B, 950 * US, 2 * MS), SATURATES_LATER(1, 100 * US)}}},
     .job = {[0].p99_us = 400, [1].lo = 0.35, [2].lo = 0.35}},
    {"two that pause for a moment after much work",
     {.duration_ns = 60 * SEC,
      .settle_ns = 30 * SEC,
      .jobs = {{RARE},
               {CLOSED_LOOP(B, 800 * US, 2 * MS), SATURATES_LATER(60, 3 * MS)},
               {CLOSED_LOOP(B, 800 * US, 2 * MS), SATURATES_LATER(70, 4 * MS)}}},
     .job = {[0].p99_us = 400, [1].lo = 0.38, [2].lo = 0.38}},
    {"a budget bounds how many light contexts have slices at once",
     {.jobs = {{RARE, .budget_us = 500},
               {CLOSED_LOOP(B, 900 * US, 5 * MS), .ranks = 4, .lockstep = true},
               {CLOSED_LOOP(B, 900 * US, 6 * MS), .ranks = 4, .lockstep = true}}},
     .job[0].p99_us = 100 + 500 + 2 * 200},
#define COMES_LATER(budget)                                                                        \
    {                                                                                              \
        .duration_ns = 30 * SEC, .settle_ns = 15 * SEC, .jobs = {                                  \
            {RARE, .budget_us = 8000},                                                             \
            {CLOSED_LOOP(B, 2 * MS, 20 * MS), .ranks = 4},                                         \
            {RARE, .budget_us = (budget), .come_ns = 12 * SEC}                                     \
        }                                                                                          \
    }
    {"a small budget comes when contexts are known to be light: those that do not fit take turns",
     COMES_LATER(500), .job[1].lo = 0.07, .job[0].p99_us = 100 + 500},
    {"with a longer one all fit, with shorter slices", COMES_LATER(2000), .job[1].lo = 0.2,
     .job[0].p99_us = 100 + 2000},
/* Requests come so often that a budget buys a long slice: jobs beside each other have it together.
 */
#define SHARED(budget)                                                                             \
    {                                                                                              \
        .duration_ns = 60 * SEC, .settle_ns = 30 * SEC, .jobs = {                                  \
            {.class = L, .kernel_ns = 100 * US, .period_ns = 2 * MS, .budget_us = (budget)},       \
            {CLOSED_LOOP(B, MS, 3 * MS)},                                                          \
            {CLOSED_LOOP(B, 1050 * US, 3 * MS)},                                                   \
            {SATURATING(B)}                                                                        \
        }                                                                                          \
    }
    {"a budget of 1 ms is shared", SHARED(1000), .job[0].max_us = 1100, .wasted = 0.05},
    {"a budget of 2 ms is shared", SHARED(2000), .job[0].max_us = 2100, .wasted = 0.05},
    {"a budget of 5 ms is shared", SHARED(5000), .job[0].max_us = 5100, .wasted = 0.05},
    {"a budget of 20 ms is shared", SHARED(20000), .job[0].max_us = 20100, .wasted = 0.05},
    {"a light job that is left alone below a latency job goes on",
     {.duration_ns = 30 * SEC,
      .settle_ns = 20 * SEC,
      .jobs = {{RARE},
               {CLOSED_LOOP(B, 600 * US, 3 * MS)},
               {CLOSED_LOOP(B, 600 * US, 3 * MS), .leave_ns = 15 * SEC}}},
     .job[1].lo = 0.15},
};

TEST(behaviours)
{
    sim_table(table, ARRAY_SIZE(table), simulate);
}
