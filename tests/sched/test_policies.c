/* What the policies do to jobs of known behaviour: a table, run on the mock GPU. */
#include "mock_gpu.h"

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
        {.class = L, .need = 1, .lo = 0.38, .hi = 0.42, .times = 2},
        {.class = B, .need = 1, .lo = 0.18, .hi = 0.22}}},
    {"floor costs nothing when latency leaves enough", "priority", .floor = 0.1, .seconds = 4, .saturated = true, .jobs = {
        {.class = L, .need = 0.3, .lo = 0.299, .hi = 0.301},
        {.class = B, .need = 1, .lo = 0.699, .hi = 0.701}}},
    {"three batch jobs take turns beside latency", "priority", .seconds = 24, .saturated = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .lo = 0.295, .hi = 0.305, .times = 3}}},
    {"turns by weight 3:1", "priority", .seconds = 40, .saturated = true, .jobs = {LIGHT,
        {.class = B, .weight = 300, .need = 1, .lo = 0.66, .hi = 0.69},
        {.class = B, .weight = 100, .need = 1, .lo = 0.21, .hi = 0.24}}},
    {"a newcomer gets no credit for its absence", "priority", .seconds = 30, .measure_from_s = 20, .saturated = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .lo = 0.43, .hi = 0.47},
        {.class = B, .need = 1, .from_s = 20, .lo = 0.43, .hi = 0.47}}},
    {"a resumed job gets no credit for its pause", "priority", .seconds = 40, .measure_from_s = 30, .saturated = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .lo = 0.28, .hi = 0.32, .times = 2},
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
        {.class = N, .need = 0.3, .lo = 0.299, .hi = 0.301, .times = 2},
        {.class = B, .need = 1, .lo = 0.19, .hi = 0.21, .times = 2}}},
    {"idle normal job does not keep batch waiting", "priority", .seconds = 40, .measure_from_s = 5, .usage = true, .jobs = {
        {.class = L, .need = 0.2, .lo = 0.199, .hi = 0.201},
        {.class = N, .need = 1, .works_from_s = 99, .lo = 0, .hi = 0},
        {.class = B, .need = 1, .lo = 0.78, .hi = 0.801}}},
    {"a normal job that starts working is found", "priority", .seconds = 40, .measure_from_s = 25, .usage = true, .jobs = {
        {.class = L, .need = 0.2, .lo = 0.199, .hi = 0.201},
        {.class = N, .need = 1, .works_from_s = 20, .lo = 0.79, .hi = 0.801},
        {.class = B, .need = 1, .lo = 0, .hi = 0.01}}},
    {"an idle batch job costs the others 2 % at most", "priority", .seconds = 60, .measure_from_s = 10, .usage = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .lo = 0.43, .hi = 0.45, .times = 2},
        {.class = B, .need = 1, .works_to_s = 0.001, .lo = 0, .hi = 0}}},
    {"nor do idle jobs cost many turns", "priority", .seconds = 60, .usage = true, .turns_most = 2 * 6 * 60, .jobs = {LIGHT,
        {.class = B, .need = 1, .works_to_s = 0.001, .lo = 0, .hi = 0.001, .times = 4}}},
    /* A turn costs about 1 ms of control calls: under 1 % of the time, or 10 turns a second. */
    {"turns are few", "priority", .seconds = 20, .saturated = true, .turns_least = 21, .turns_most = 2 * 200, .jobs = {LIGHT,
        {.class = B, .need = 1, .lo = 0.44, .hi = 0.46, .times = 2}}},
    {"nothing to rotate: no timer, a handful of decisions", "priority", .seconds = 20, .saturated = true, .decisions_most = 4, .jobs = {LIGHT,
        {.class = B, .need = 1, .lo = 0.899, .hi = 0.901}}},
    {"who waited for normal jobs has no credit against who came later", "priority", .seconds = 80, .measure_from_s = 41, .saturated = true, .jobs = {LIGHT,
        {.class = N, .need = 1, .to_s = 40, .lo = 0, .hi = 0, .times = 2},
        {.class = B, .need = 1, .lo = 0.43, .hi = 0.47},
        {.class = B, .need = 1, .from_s = 35, .lo = 0.43, .hi = 0.47}}},
    {"nor against normal jobs that rested for a while", "priority", .seconds = 240, .usage = true, .jobs = {LIGHT,
        {.class = N, .need = 1, .work_s = 50, .every_s = 117, .lo = 0.42, .hi = 0.45, .times = 2},
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
        {.class = B, .need = 1, .lo = 0.49, .hi = 0.51, .times = 2}}},
    {"shares 75:25, whatever the classes", "shares", .seconds = 4, .saturated = true, .jobs = {
        {.class = B, .weight = 300, .need = 1, .lo = 0.749, .hi = 0.751},
        {.class = L, .weight = 100, .need = 1, .lo = 0.249, .hi = 0.251}}},
    {"shares: what one leaves the others get", "shares", .seconds = 4, .saturated = true, .jobs = {
        {.class = N, .weight = 300, .need = 0.2, .lo = 0.199, .hi = 0.201},
        {.class = N, .weight = 100, .need = 1, .lo = 0.399, .hi = 0.401, .times = 2}}},
    {"shares hold at 100:1", "shares", .seconds = 4, .saturated = true, .jobs = {
        {.class = N, .weight = 10000, .need = 1, .lo = 0.989, .hi = 0.991},
        {.class = N, .weight = 100, .need = 1, .lo = 0.009, .hi = 0.011}}},
    {"shares: pause", "shares", .seconds = 4, .measure_from_s = 1, .saturated = true, .jobs = {
        {.class = N, .need = 1, .pause_s = 1, .resume_s = 3, .lo = 0.16, .hi = 0.18},
        {.class = N, .need = 1, .lo = 0.82, .hi = 0.84}}},
};
/* clang-format on */

TEST(behaviours)
{
    mock_table(scenarios, ARRAY_SIZE(scenarios), 1e-6);
}

/* Where nobody tells a deadline, those that heed them do the same, turn by turn. */
TEST(no_deadlines)
{
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
