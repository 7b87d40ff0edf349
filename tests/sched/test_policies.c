/* What the policies do to jobs of known behaviour: a table, run on the mock GPU. */
#include "mock_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define L CLASS_LATENCY
#define N CLASS_NORMAL
#define B CLASS_BATCH

/* clang-format off */
static const struct mock_scenario scenarios[] = {
    {"one batch job alone has everything", "priority", .seconds = 2, .saturated = true, .jobs = {
        {.class = B, .need = 1, .lo = 0.999, .hi = 1}}},
    {"batch takes what latency leaves", "priority", .seconds = 4, .saturated = true, .jobs = {
        {.class = L, .need = 0.3, .lo = 0.299, .hi = 0.301},
        {.class = B, .need = 1, .lo = 0.699, .hi = 0.701}}},
    {"saturating latency job: batch starves, on purpose", "priority", .seconds = 4, .saturated = true, .jobs = {
        {.class = L, .need = 1, .lo = 0.999, .hi = 1},
        {.class = B, .need = 1, .lo = 0, .hi = 0.001}}},
    {"floor keeps a share for batch", "priority", .floor = 0.1, .seconds = 4, .saturated = true, .jobs = {
        {.class = L, .need = 1, .lo = 0.89, .hi = 0.91},
        {.class = B, .need = 1, .lo = 0.09, .hi = 0.11}}},
    {"floor under two latency jobs", "priority", .floor = 0.2, .seconds = 4, .saturated = true, .jobs = {
        {.class = L, .need = 1, .lo = 0.38, .hi = 0.42},
        {.class = L, .need = 1, .lo = 0.38, .hi = 0.42},
        {.class = B, .need = 1, .lo = 0.18, .hi = 0.22}}},
    {"floor costs nothing when latency leaves enough", "priority", .floor = 0.1, .seconds = 4, .saturated = true, .jobs = {
        {.class = L, .need = 0.3, .lo = 0.299, .hi = 0.301},
        {.class = B, .need = 1, .lo = 0.699, .hi = 0.701}}},
    {"three batch jobs take turns beside latency", "priority", .seconds = 24, .saturated = true, .jobs = {
        {.class = L, .need = 0.1, .lo = 0.099, .hi = 0.101},
        {.class = B, .need = 1, .lo = 0.295, .hi = 0.305},
        {.class = B, .need = 1, .lo = 0.295, .hi = 0.305},
        {.class = B, .need = 1, .lo = 0.295, .hi = 0.305}}},
    {"turns by weight 3:1", "priority", .seconds = 40, .saturated = true, .jobs = {
        {.class = L, .need = 0.1, .lo = 0.099, .hi = 0.101},
        {.class = B, .weight = 300, .need = 1, .lo = 0.66, .hi = 0.69},
        {.class = B, .weight = 100, .need = 1, .lo = 0.21, .hi = 0.24}}},
    {"a newcomer gets no credit for its absence", "priority", .seconds = 30, .measure_from_s = 20, .saturated = true, .jobs = {
        {.class = L, .need = 0.1, .lo = 0.099, .hi = 0.101},
        {.class = B, .need = 1, .lo = 0.43, .hi = 0.47},
        {.class = B, .need = 1, .from_s = 20, .lo = 0.43, .hi = 0.47}}},
    {"a resumed job gets no credit for its pause", "priority", .seconds = 40, .measure_from_s = 30, .saturated = true, .jobs = {
        {.class = L, .need = 0.1, .lo = 0.099, .hi = 0.101},
        {.class = B, .need = 1, .lo = 0.28, .hi = 0.32},
        {.class = B, .need = 1, .lo = 0.28, .hi = 0.32},
        {.class = B, .need = 1, .pause_s = 1, .resume_s = 30, .lo = 0.28, .hi = 0.32}}},
    {"latency over normal over batch", "priority", .seconds = 10, .saturated = true, .jobs = {
        {.class = L, .need = 0.2, .lo = 0.199, .hi = 0.201},
        {.class = N, .need = 1, .lo = 0.799, .hi = 0.801},
        {.class = B, .need = 1, .lo = 0, .hi = 0}}},
    {"floor between normal and batch under latency", "priority", .floor = 0.25, .seconds = 60, .saturated = true, .jobs = {
        {.class = L, .need = 0.2, .lo = 0.199, .hi = 0.201},
        {.class = N, .need = 1, .lo = 0.58, .hi = 0.62},
        {.class = B, .need = 1, .lo = 0.18, .hi = 0.22}}},
    {"normal over batch without latency", "priority", .seconds = 4, .saturated = true, .jobs = {
        {.class = N, .need = 0.5, .lo = 0.499, .hi = 0.501},
        {.class = B, .need = 1, .lo = 0.499, .hi = 0.501}}},
    {"two normal jobs over two batch jobs", "priority", .seconds = 20, .saturated = true, .jobs = {
        {.class = N, .need = 0.3, .lo = 0.299, .hi = 0.301},
        {.class = N, .need = 0.3, .lo = 0.299, .hi = 0.301},
        {.class = B, .need = 1, .lo = 0.19, .hi = 0.21},
        {.class = B, .need = 1, .lo = 0.19, .hi = 0.21}}},
    {"idle normal job does not keep batch waiting", "priority", .seconds = 40, .measure_from_s = 5, .usage = true, .jobs = {
        {.class = L, .need = 0.2, .lo = 0.199, .hi = 0.201},
        {.class = N, .need = 1, .works_from_s = 99, .lo = 0, .hi = 0},
        {.class = B, .need = 1, .lo = 0.78, .hi = 0.801}}},
    {"a normal job that starts working is found", "priority", .seconds = 40, .measure_from_s = 25, .usage = true, .jobs = {
        {.class = L, .need = 0.2, .lo = 0.199, .hi = 0.201},
        {.class = N, .need = 1, .works_from_s = 20, .lo = 0.79, .hi = 0.801},
        {.class = B, .need = 1, .lo = 0, .hi = 0.01}}},
    {"an idle batch job costs the others 2 % at most", "priority", .seconds = 60, .measure_from_s = 10, .usage = true, .jobs = {
        {.class = L, .need = 0.1, .lo = 0.099, .hi = 0.101},
        {.class = B, .need = 1, .lo = 0.43, .hi = 0.45},
        {.class = B, .need = 1, .lo = 0.43, .hi = 0.45},
        {.class = B, .need = 1, .works_to_s = 0.001, .lo = 0, .hi = 0}}},
    {"who waited for normal jobs has no credit against who came later", "priority", .seconds = 80, .measure_from_s = 41, .saturated = true, .jobs = {
        {.class = L, .need = 0.1, .lo = 0.099, .hi = 0.101},
        {.class = N, .need = 1, .to_s = 40, .lo = 0, .hi = 0},
        {.class = N, .need = 1, .to_s = 40, .lo = 0, .hi = 0},
        {.class = B, .need = 1, .lo = 0.43, .hi = 0.47},
        {.class = B, .need = 1, .from_s = 35, .lo = 0.43, .hi = 0.47}}},
    {"nor against normal jobs that rested for a while", "priority", .seconds = 240, .usage = true, .jobs = {
        {.class = L, .need = 0.1, .lo = 0.099, .hi = 0.101},
        {.class = N, .need = 1, .work_s = 50, .every_s = 117, .lo = 0.42, .hi = 0.45},
        {.class = N, .need = 1, .work_s = 50, .every_s = 117, .lo = 0.42, .hi = 0.45},
        {.class = B, .need = 1, .lo = 0.01, .hi = 0.06}}},
    {"several latency jobs share by weight", "priority", .seconds = 4, .saturated = true, .jobs = {
        {.class = L, .weight = 200, .need = 1, .lo = 0.66, .hi = 0.67},
        {.class = L, .weight = 100, .need = 1, .lo = 0.33, .hi = 0.34},
        {.class = B, .need = 1, .lo = 0, .hi = 0.001}}},
    {"batch jobs share when the latency job leaves", "priority", .seconds = 10, .measure_from_s = 5, .saturated = true, .jobs = {
        {.class = L, .need = 0.5, .to_s = 5, .lo = 0, .hi = 0},
        {.class = B, .weight = 300, .need = 1, .lo = 0.74, .hi = 0.76},
        {.class = B, .weight = 100, .need = 1, .lo = 0.24, .hi = 0.26}}},
    {"a paused latency job counts for nothing", "priority", .seconds = 10, .measure_from_s = 1, .saturated = true, .jobs = {
        {.class = L, .need = 0.5, .pause_s = 1, .resume_s = 99, .lo = 0, .hi = 0},
        {.class = B, .need = 1, .lo = 0.49, .hi = 0.51},
        {.class = B, .need = 1, .lo = 0.49, .hi = 0.51}}},
    {"shares 75:25, whatever the classes", "shares", .seconds = 4, .saturated = true, .jobs = {
        {.class = B, .weight = 300, .need = 1, .lo = 0.749, .hi = 0.751},
        {.class = L, .weight = 100, .need = 1, .lo = 0.249, .hi = 0.251}}},
    {"shares: what one leaves the others get", "shares", .seconds = 4, .saturated = true, .jobs = {
        {.class = N, .weight = 300, .need = 0.2, .lo = 0.199, .hi = 0.201},
        {.class = N, .weight = 100, .need = 1, .lo = 0.399, .hi = 0.401},
        {.class = N, .weight = 100, .need = 1, .lo = 0.399, .hi = 0.401}}},
    {"shares hold at 100:1", "shares", .seconds = 4, .saturated = true, .jobs = {
        {.class = N, .weight = 10000, .need = 1, .lo = 0.989, .hi = 0.991},
        {.class = N, .weight = 100, .need = 1, .lo = 0.009, .hi = 0.011}}},
    {"shares: pause", "shares", .seconds = 4, .measure_from_s = 1, .saturated = true, .jobs = {
        {.class = N, .need = 1, .pause_s = 1, .resume_s = 3, .lo = 0.16, .hi = 0.18},
        {.class = N, .need = 1, .lo = 0.82, .hi = 0.84}}},
    {"static: a lone batch job yields", "static", .seconds = 4, .saturated = true, .jobs = {
        {.class = L, .need = 0.5, .lo = 0.499, .hi = 0.501},
        {.class = B, .need = 1, .lo = 0.499, .hi = 0.501}}},
    {"static: several batch jobs all keep running", "static", .seconds = 4, .saturated = true, .jobs = {
        {.class = L, .need = 0.4, .lo = 0.39, .hi = 0.401},
        {.class = B, .need = 1, .lo = 0.29, .hi = 0.31},
        {.class = B, .need = 1, .lo = 0.29, .hi = 0.31}}},
};
/* clang-format on */

static void test_behaviours(void **state)
{
    (void)state;
    int bad = 0;
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        const struct mock_scenario *s = &scenarios[i];
        struct mock_result r;
        mock_run(s, &r);
        bool ok = !s->saturated || r.lost < 1e-6;
        printf("%-55s", s->name);
        for (size_t j = 0; s->jobs[j].need > 0; j++) {
            ok &= r.share[j] >= s->jobs[j].lo - 1e-9 && r.share[j] <= s->jobs[j].hi + 1e-9;
            printf(" %c %.3f", job_class_name(s->jobs[j].class)[0], r.share[j]);
        }
        /* Two best-effort jobs runnable at once beside a better one would thrash each other. */
        ok &= s->policy[0] != 'p' || r.overlaps == 0;
        printf("  lost %.4f turns %lu%s\n", r.lost, (unsigned long)r.turns,
               ok ? "" : "  <-- WRONG");
        bad += !ok;
    }
    assert_int_equal(bad, 0);
}

/* Where nobody tells a deadline, those that heed them do the same, turn by turn. */
static void test_no_deadlines(void **state)
{
    (void)state;
    static const char *const same[] = {"laxity", "edf"};
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        struct mock_scenario s = scenarios[i];
        struct mock_result a, b;
        if (strcmp(s.policy, "priority") != 0)
            continue;
        mock_run(&s, &a);
        for (size_t k = 0; k < 2; k++) {
            s.policy = same[k];
            mock_run(&s, &b);
            assert_memory_equal(&a, &b, sizeof(a));
        }
    }
}

static void test_idle_jobs_cost_few_turns(void **state)
{
    (void)state;
    /* Nobody below the top works: no reason for short turns. */
    struct mock_scenario s = {"", "priority", .seconds = 60, .usage = true,
                              .jobs = {{.class = L, .need = 0.1},
                                       {.class = B, .need = 1, .works_to_s = 0.001},
                                       {.class = B, .need = 1, .works_to_s = 0.001},
                                       {.class = B, .need = 1, .works_to_s = 0.001},
                                       {.class = B, .need = 1, .works_to_s = 0.001}}};
    struct mock_result r;
    mock_run(&s, &r);
    assert_true(r.turns / 2 <= 6 * 60);
}

static void test_turns_are_few(void **state)
{
    (void)state;
    /* A turn costs about 1 ms of control calls: under 1 % of the time, or 10 turns a second. */
    struct mock_result r;
    mock_run(
        &(struct mock_scenario){
            "", "priority", .seconds = 20,
            .jobs = {{.class = L, .need = 0.1}, {.class = B, .need = 1}, {.class = B, .need = 1}}},
        &r);
    assert_true(r.turns > 20 && r.turns / 2 < 200);
    /* Nothing to rotate: no timer, a handful of decisions. */
    mock_run(&(struct mock_scenario){"", "priority", .seconds = 20,
                                     .jobs = {{.class = L, .need = 0.1}, {.class = B, .need = 1}}},
             &r);
    assert_true(r.decisions <= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_behaviours),
        cmocka_unit_test(test_no_deadlines),
        cmocka_unit_test(test_idle_jobs_cost_few_turns),
        cmocka_unit_test(test_turns_are_few),
    };
    return cmocka_run_group_tests_name("policies", tests, NULL, NULL);
}
