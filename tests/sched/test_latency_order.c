/* What the order of latency jobs by slack (plan/latency_order.h) changes, and what it may not, on
 * the mock GPU, which takes no time to switch. tests/sim/test_latency_order.c has what it gains. */
#include "mock_gpu.h"

/* Reports one request after the other, each due in no time. */
#define LIAR(...)                                                                                  \
    {                                                                                              \
        .class = L, .need = 1, .work_s = 0.010, .every_s = 0.0001, .due_s = 0.0115, .late = 99999, \
        __VA_ARGS__                                                                                \
    }
/* The same work, with time. */
#define PATIENT(...)                                                                               \
    {                                                                                              \
        .class = L, .need = 1, .work_s = 0.050, .every_s = 0.0001, .due_s = 0.5, .late = 99999,    \
        __VA_ARGS__                                                                                \
    }
#define QUICK(...)                                                                                 \
    {                                                                                              \
        .class = L, .need = 1, .work_s = 0.010, .every_s = 0.1, .due_s = 0.014, __VA_ARGS__        \
    }

/* clang-format off */
static const struct mock_scenario table[] = {
    {"by weight one of two is late", "priority", .seconds = 60, .jobs = {
        {.class = L, .need = 1, .work_s = 0.06, .every_s = 0.1, .due_s = 0.1, .lo = 0.59, .hi = 0.61},
        QUICK(.lo = 0.09, .hi = 0.11, .late = 999)}},
    {"by slack none is", "laxity", .seconds = 60, .jobs = {
        {.class = L, .need = 1, .work_s = 0.06, .every_s = 0.1, .due_s = 0.1, .lo = 0.59, .hi = 0.61},
        QUICK(.lo = 0.09, .hi = 0.11)}},
    {"edf does the same", "edf", .seconds = 60, .jobs = {
        {.class = L, .need = 1, .work_s = 0.06, .every_s = 0.1, .due_s = 0.1, .lo = 0.59, .hi = 0.61},
        QUICK(.lo = 0.09, .hi = 0.11)}},
    {"nor does a need that is said to be half as long", "laxity", .seconds = 60, .jobs = {
        {.class = L, .need = 1, .work_s = 0.06, .every_s = 0.1, .due_s = 0.1, .guess = 0.5, .lo = 0.59, .hi = 0.61},
        QUICK(.guess = 0.5, .lo = 0.09, .hi = 0.11)}},
    {"short deadlines give no more than the weight", "laxity", .seconds = 60, .saturated = true, .jobs = {
        LIAR(.lo = 0.49, .hi = 0.51),
        PATIENT(.lo = 0.49, .hi = 0.51)}},
    {"nor for the lighter", "laxity", .seconds = 60, .jobs = {
        LIAR(.weight = 100, .lo = 0.24, .hi = 0.265),
        PATIENT(.weight = 300, .lo = 0.735, .hi = 0.76)}},
    {"nor with two jobs of one user against one of another", "laxity", .seconds = 60, .saturated = true, .jobs = {
        LIAR(.account = 1, .lo = 0.23, .hi = 0.27, .times = 2),
        PATIENT(.account = 2, .lo = 0.49, .hi = 0.51)}},
    {"a job without deadlines has its part of every frame", "laxity", .seconds = 60, .saturated = true, .jobs = {
        LIAR(.lo = 0.32, .hi = 0.35),
        PATIENT(.lo = 0.32, .hi = 0.35),
        {.class = L, .need = 1, .lo = 0.33, .hi = 0.34}}},
    {"what cannot be met does not keep others from it", "laxity", .seconds = 60, .jobs = {
        {.class = L, .need = 1, .work_s = 40, .every_s = 99, .due_s = 3, .lo = 0.66, .hi = 0.67, .late = 1},
        QUICK(.lo = 0.09, .hi = 0.11)}},
    {"more than can be done: priority decides who is late", "laxity", .seconds = 60, .saturated = true, .jobs = {
        {.class = L, .need = 1, .work_s = 0.05, .every_s = 0.1, .due_s = 0.06, .priority = 1, .lo = 0.49, .hi = 0.51},
        {.class = L, .need = 1, .work_s = 0.04, .every_s = 0.1, .due_s = 0.06, .lo = 0.39, .hi = 0.41, .late = 999},
        {.class = B, .need = 1, .lo = 0.09, .hi = 0.11}}},
    {"and without priority the longer one is", "laxity", .seconds = 60, .saturated = true, .jobs = {
        {.class = L, .need = 1, .work_s = 0.05, .every_s = 0.1, .due_s = 0.06, .lo = 0.49, .hi = 0.51, .late = 999},
        {.class = L, .need = 1, .work_s = 0.04, .every_s = 0.1, .due_s = 0.06, .lo = 0.39, .hi = 0.41},
        {.class = B, .need = 1, .lo = 0.09, .hi = 0.11}}},
    {"a ceiling holds", "laxity", .seconds = 60, .jobs = {
        LIAR(.max = 0.3, .lo = 0.18, .hi = 0.305),
        QUICK(.lo = 0.09, .hi = 0.11, .late = 999),
        {.class = B, .need = 1, .lo = 0.58, .hi = 0.72}}},
    {"switched off with deadline_share", "laxity", .seconds = 60, .deadline_share = -1, .jobs = {
        {.class = L, .need = 1, .work_s = 0.06, .every_s = 0.1, .due_s = 0.1, .lo = 0.59, .hi = 0.61},
        QUICK(.lo = 0.09, .hi = 0.11, .late = 999)}},
};
/* clang-format on */

TEST(behaviours)
{
    mock_table(table, ARRAY_SIZE(table), 1e-6);
}

/* Whatever jobs that always have work say of their requests, none waits for long, and each has what
 * it has by weight. */
TEST(nobody_starves)
{
    double longest = 0, least = 0;
    srand(5);
    for (int i = 0; i < 300; i++) {
        struct mock_scenario s = {.name = "", .policy = i % 2 ? "laxity" : "edf", .seconds = 30};
        unsigned n = 2 + (unsigned)rand() % 4;
        for (unsigned j = 0; j < n; j++) {
            s.jobs[j] = (struct mock_job){.class = L,
                                          .need = 1,
                                          .weight = 100U * (1 + (unsigned)rand() % 4),
                                          .work_s = 0.01 * (1 + rand() % 40),
                                          .every_s = 0.0001,
                                          .due_s = 0.01 * (1 + rand() % 100),
                                          .guess = 0.01 * (1 + rand() % 300)};
            if (rand() % 4 == 0)
                s.jobs[j].every_s = s.jobs[j].work_s = s.jobs[j].due_s = 0;
        }
        struct mock_result r, by_weight;
        mock_run(&s, &r);
        s.policy = "priority";
        mock_run(&s, &by_weight);
        for (unsigned j = 0; j < n; j++) {
            longest = r.starved_s[j] > longest ? r.starved_s[j] : longest;
            least =
                r.share[j] - by_weight.share[j] < least ? r.share[j] - by_weight.share[j] : least;
            if (r.starved_s[j] > 0.55 || r.share[j] < by_weight.share[j] - 0.02)
                fail_msg("mix %d, job %u waits for %.2f s, has %.3f, by weight %.3f", i, j,
                         r.starved_s[j], r.share[j], by_weight.share[j]);
        }
    }
    printf("longest wait with less than 1 %% of the GPU: %.3f s; share less than by weight: %.4f\n",
           longest, -least);
}
