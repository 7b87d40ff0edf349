/* Jobs that run beside others (company.h) and the floor of latency jobs (speed_floor.h), in virtual
 * time: what a review found. Every figure is a share or a time of one simulated run, or a ratio to
 * a run of the same programs without a scheduler. */
#include "sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define US  1000ULL
#define MS  1000000ULL
#define SEC 1000000000ULL

#define RARE                                                                                       \
    {                                                                                              \
        .class = CLASS_LATENCY, .kernel_ns = 100 * US, .period_ns = 10 * MS, .open_loop = true     \
    }
#define LAUNCH_BOUND                                                                               \
    {                                                                                              \
        .class = CLASS_LATENCY, .kernel_ns = 20 * US, .step_kernels = 200, .launch_ns = 50 * US,   \
        .host_ns = 100 * US                                                                        \
    }
#define CLOSED_LOOP(c, kernel, host)                                                               \
    {                                                                                              \
        .class = (c), .kernel_ns = (kernel), .step_kernels = 1, .launch_ns = 1, .host_ns = (host)  \
    }
#define SATURATING(c)                                                                              \
    {                                                                                              \
        .class = (c), .kernel_ns = 2 * MS                                                          \
    }

static struct sim_result simulate(struct sim_scenario s)
{
    struct softgpu_params p;
    struct sim_result r;
    softgpu_params_h200(&p);
    s.policy = "laxity";
    s.demand = true;
    s.duration_ns = s.duration_ns ? s.duration_ns : 120 * SEC;
    s.settle_ns = s.settle_ns ? s.settle_ns : 60 * SEC;
    assert_int_equal(sim_run(&p, &s, &r), 0);
    return r;
}

static struct sim_result unscheduled(struct sim_scenario s)
{
    struct softgpu_params p;
    struct sim_result r;
    softgpu_params_h200(&p);
    s.duration_ns = 20 * SEC;
    s.settle_ns = 5 * SEC;
    assert_int_equal(sim_run(&p, &s, &r), 0);
    return r;
}

/* Programs that wait for their hosts are known as such whatever their steps take. */
static void test_long_steps(void **state)
{
    (void)state;
    static const unsigned host_ms[] = {5, 10, 20, 50};
    unsigned bad = 0;
    for (size_t i = 0; i < sizeof(host_ms) / sizeof(host_ms[0]); i++) {
        for (unsigned ranks = 2; ranks <= 8; ranks *= 2) {
            struct sim_scenario s = {.jobs = {RARE,
                                              {.class = CLASS_BATCH,
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
static void test_floor_beside_light(void **state)
{
    (void)state;
    unsigned bad = 0;
    for (unsigned n = 2; n <= 4; n += 2) {
        struct sim_scenario s = {.jobs = {CLOSED_LOOP(CLASS_LATENCY, 500 * US, 300 * US)}};
        double alone = unscheduled(s).job[0].done;
        for (unsigned i = 1; i <= n; i++)
            s.jobs[i] = (struct sim_job)CLOSED_LOOP(CLASS_BATCH, 600 * US, (3 + i) * MS);
        struct sim_result r = simulate(s);
        printf("beside %u light jobs: %.3f of its speed alone, p99 %.0f us\n", n,
               r.job[0].done / alone, r.job[0].p99_us);
        bad += r.job[0].done < 0.8 * alone; /* the floor is 0.9 */
    }
    assert_int_equal(bad, 0);
}

/* A job of requests with pauses of 0.7 ms is not launch-bound because light jobs run beside it. */
static void test_pauses_beside_light(void **state)
{
    (void)state;
    struct sim_scenario s = {
        .jobs = {CLOSED_LOOP(CLASS_LATENCY, 500 * US, 700 * US), SATURATING(CLASS_BATCH)}};
    struct sim_result without = simulate(s);
    s.jobs[2] = (struct sim_job)CLOSED_LOOP(CLASS_BATCH, 500 * US, 2 * MS);
    s.jobs[3] = (struct sim_job)CLOSED_LOOP(CLASS_BATCH, 500 * US, 2 * MS);
    struct sim_result with = simulate(s);
    double batch = with.job[1].done + with.job[2].done + with.job[3].done;
    printf("p99 %.0f us, batch %.3f; with light jobs %.0f us, %.3f, slice %u us\n",
           without.job[0].p99_us, without.job[1].done, with.job[0].p99_us, batch,
           with.job[1].timeslice_us);
    assert_true(with.job[1].timeslice_us == 1);
    assert_true(batch > 0.8 * without.job[1].done);
}

/* Normal jobs come before batch jobs, light or not. */
static void test_order(void **state)
{
    (void)state;
    struct sim_scenario s = {.duration_ns = 60 * SEC,
                             .settle_ns = 40 * SEC,
                             .jobs = {RARE, SATURATING(CLASS_NORMAL),
                                      CLOSED_LOOP(CLASS_BATCH, 700 * US, 1040 * US),
                                      SATURATING(CLASS_BATCH)}};
    s.jobs[1].come_ns = 20 * SEC;
    struct sim_result r = simulate(s);
    printf("normal %.3f, batch %.3f and %.3f\n", r.job[1].done, r.job[2].done, r.job[3].done);
    assert_true(r.job[1].done > 0.85);
}

/* A saturating job has half of what there is beside a light one that wants as much; what switching
 * to the light one costs is not taken from it alone. */
static void test_fairness(void **state)
{
    (void)state;
    struct sim_scenario s = {
        .jobs = {RARE, SATURATING(CLASS_BATCH), CLOSED_LOOP(CLASS_BATCH, 500 * US, 2 * MS)}};
    s.jobs[2].ranks = 2;
    struct sim_result a = simulate(s);
    s.jobs[2].kernel_ns = 20 * US;
    s.jobs[2].host_ns = MS;
    s.jobs[2].ranks = 4;
    struct sim_result b = simulate(s);
    printf("saturating %.3f, beside it %.3f; %.3f, %.3f\n", a.job[1].done, a.job[2].done,
           b.job[1].done, b.job[2].done);
    assert_true(a.job[1].done > 0.9 * a.job[2].done);
    assert_true(b.job[1].done > 0.38);
}

/* What a light job of little weight had beside another one, it does not pay back when it saturates
 * the GPU: it was left to it. */
static void test_light_owes_nothing(void **state)
{
    (void)state;
    struct sim_scenario s = {
        .duration_ns = 110 * SEC,
        .settle_ns = 65 * SEC,
        .jobs = {RARE, SATURATING(CLASS_BATCH), CLOSED_LOOP(CLASS_BATCH, 600 * US, MS)},
    };
    s.jobs[1].weight = 300;
    s.jobs[2].weight = 10;
    s.jobs[2].change_ns = 60 * SEC;
    s.jobs[2].then_kernels = 40;
    s.jobs[2].then_host_ns = 1;
    struct sim_result r = simulate(s);
    printf("weights 300 and 10: %.3f, %.3f\n", r.job[1].done, r.job[2].done);
    assert_true(r.job[2].done > 0.02);
}

/* Nor does one that saturated it all the time beside a light one of more weight. */
static void test_no_credit_for_being_light(void **state)
{
    (void)state;
    struct sim_scenario s = {
        .duration_ns = 110 * SEC,
        .settle_ns = 65 * SEC,
        .jobs = {RARE, CLOSED_LOOP(CLASS_BATCH, 600 * US, MS), SATURATING(CLASS_BATCH)},
    };
    s.jobs[1].weight = 300;
    s.jobs[1].change_ns = 60 * SEC;
    s.jobs[1].then_kernels = 40;
    s.jobs[1].then_host_ns = 1;
    struct sim_result r = simulate(s);
    printf("weights 300 and 100: %.3f, %.3f\n", r.job[1].done, r.job[2].done);
    assert_true(r.job[2].done > 0.2);
}

/* A budget bounds how many light contexts have slices at once. */
static void test_budget_beside_light(void **state)
{
    (void)state;
    struct sim_scenario s = {.jobs = {RARE, CLOSED_LOOP(CLASS_BATCH, 900 * US, 5 * MS),
                                      CLOSED_LOOP(CLASS_BATCH, 900 * US, 6 * MS)}};
    s.jobs[0].budget_us = 500;
    for (unsigned j = 1; j <= 2; j++) {
        s.jobs[j].ranks = 4;
        s.jobs[j].lockstep = true;
    }
    double p99 = simulate(s).job[0].p99_us;
    printf("p99 %.0f us\n", p99);
    assert_true(p99 < 100 + 500 + 2 * 200);
}

/* A latency job with a small budget comes when contexts are known to be light: those that do not
 * fit into it run one after the other, and with a longer one all do, with shorter slices. */
static void test_budget_comes_later(void **state)
{
    (void)state;
    static const struct {
        uint32_t budget_us;
        double least;
    } of[] = {{500, 0.07}, {2000, 0.2}};
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        struct sim_scenario s = {.duration_ns = 30 * SEC,
                                 .settle_ns = 15 * SEC,
                                 .jobs = {RARE, CLOSED_LOOP(CLASS_BATCH, 2 * MS, 20 * MS), RARE}};
        s.jobs[0].budget_us = 8000;
        s.jobs[1].ranks = 4;
        s.jobs[2].budget_us = of[i].budget_us;
        s.jobs[2].come_ns = 12 * SEC;
        struct sim_result r = simulate(s);
        printf("budget of %u us: p99 %.0f us, batch %.3f\n", of[i].budget_us, r.job[0].p99_us,
               r.job[1].done);
        assert_true(r.job[1].done > of[i].least);
        assert_true(r.job[0].p99_us < 100 + of[i].budget_us);
    }
}

/* Where requests come so often that a budget buys a long slice, jobs that run beside each other
 * have it together. */
static void test_budget_is_shared(void **state)
{
    (void)state;
    static const uint32_t budgets[] = {1000, 2000, 5000, 20000};
    for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
        struct sim_scenario s = {.duration_ns = 60 * SEC,
                                 .settle_ns = 30 * SEC,
                                 .jobs = {RARE, CLOSED_LOOP(CLASS_BATCH, MS, 3 * MS),
                                          CLOSED_LOOP(CLASS_BATCH, 1050 * US, 3 * MS),
                                          SATURATING(CLASS_BATCH)}};
        s.jobs[0].period_ns = 2 * MS;
        s.jobs[0].open_loop = false;
        s.jobs[0].budget_us = budgets[i];
        struct sim_result r = simulate(s);
        printf("budget of %u us: at most %.0f us, wasted %.3f\n", budgets[i], r.job[0].max_us,
               r.gpu_wasted[0]);
        assert_true(r.job[0].max_us < 100 + budgets[i]);
        assert_true(r.gpu_wasted[0] < 0.05);
    }
}

/* A light job that is left alone below a latency job goes on. */
static void test_left_alone(void **state)
{
    (void)state;
    struct sim_scenario s = {.duration_ns = 30 * SEC,
                             .settle_ns = 20 * SEC,
                             .jobs = {RARE, CLOSED_LOOP(CLASS_BATCH, 600 * US, 3 * MS),
                                      CLOSED_LOOP(CLASS_BATCH, 600 * US, 3 * MS)}};
    s.jobs[2].leave_ns = 15 * SEC;
    double done = simulate(s).job[1].done;
    printf("left alone %.3f\n", done);
    assert_true(done > 0.15);
}

/* A job that begins to work is seen also where none runs beside the one that has the turn: there a
 * floor gives the turns by class. */
static void test_idle_is_seen_by_class(void **state)
{
    (void)state;
    struct sim_scenario s = {
        .floor = 0.1,
        .duration_ns = 60 * SEC,
        .settle_ns = 40 * SEC,
        .jobs = {RARE, SATURATING(CLASS_NORMAL), SATURATING(CLASS_NORMAL), SATURATING(CLASS_BATCH)},
    };
    s.jobs[2].idle_ns = 1;
    s.jobs[2].busy_ns = 30 * SEC;
    struct sim_result r = simulate(s);
    printf("worked all the time %.3f, since then %.3f\n", r.job[1].done, r.job[2].done);
    assert_true(r.job[2].done > 0.9 * r.job[1].done);
}

/* Jobs that were idle and begin at once do not all run beside a latency job. */
static void test_idle_begin_together(void **state)
{
    (void)state;
    struct sim_scenario s = {
        .duration_ns = 61 * SEC, .settle_ns = 59 * SEC, .jobs = {RARE, SATURATING(CLASS_BATCH)}};
    s.jobs[0].period_ns = 1700 * US;
    for (unsigned i = 2; i < 42; i++) {
        s.jobs[i] = (struct sim_job)SATURATING(CLASS_BATCH);
        s.jobs[i].idle_ns = SEC;
        s.jobs[i].busy_ns = 60 * SEC;
    }
    double longest = simulate(s).job[0].max_us;
    printf("longest request %.0f us\n", longest);
    assert_true(longest < 5000); /* default: 80 ms */
}

/* Lower jobs go on soon after a latency job for which they are throttled has stopped. */
static void test_throttled_for_nobody(void **state)
{
    (void)state;
    double least = 1;
    for (unsigned stop = 20; stop < 26; stop++) {
        struct sim_scenario s = {.duration_ns = (stop + 5) * SEC,
                                 .settle_ns = stop * SEC,
                                 .jobs = {LAUNCH_BOUND, SATURATING(CLASS_BATCH)}};
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
static void test_light_gang(void **state)
{
    (void)state;
    struct sim_scenario s = {.gpus = 2,
                             .duration_ns = 30 * SEC,
                             .settle_ns = 10 * SEC,
                             .jobs = {RARE, CLOSED_LOOP(CLASS_BATCH, 500 * US, 4 * MS),
                                      SATURATING(CLASS_BATCH), SATURATING(CLASS_BATCH)}};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_steps),
        cmocka_unit_test(test_floor_beside_light),
        cmocka_unit_test(test_pauses_beside_light),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_fairness),
        cmocka_unit_test(test_light_owes_nothing),
        cmocka_unit_test(test_no_credit_for_being_light),
        cmocka_unit_test(test_budget_beside_light),
        cmocka_unit_test(test_budget_comes_later),
        cmocka_unit_test(test_budget_is_shared),
        cmocka_unit_test(test_left_alone),
        cmocka_unit_test(test_idle_is_seen_by_class),
        cmocka_unit_test(test_idle_begin_together),
        cmocka_unit_test(test_throttled_for_nobody),
        cmocka_unit_test(test_light_gang),
    };
    return cmocka_run_group_tests_name("sim/beside", tests, NULL, NULL);
}
