/* What deadlines change (plan/boost.h), and what they may not, on the mock GPU. Requests that are
 * late are counted when they end, so each row also says how many have to end. */
#include "../sanitized.h"
#include "mock_gpu.h"

/* A video conference: frames of 15 ms every 40 ms; every 3 s what was said, which takes 1.1 s and
 * is due before the next; and training, which can wait. */
/* clang-format off */
#define FRAMES      {.class = L, .need = 1, .work_s = 0.015, .every_s = 0.040, .slowest_s = 0.040, .lo = 0.37, .hi = 0.38}
#define SPEECH(...) {.class = B, .need = 1, .work_s = 1.1, .every_s = 3, .due_s = 3, .hi = 0.4, __VA_ARGS__}
#define TRAINING    {.class = B, .need = 1, .hi = 0.4}
/* clang-format on */

/* clang-format off */
static const struct mock_scenario table[] = {
    /* What the driver's default does to the frames: tests/sim/test_sim.c. */
    {"video: by classes the speech is late", "priority", .seconds = 120, .saturated = true, .jobs = {FRAMES, SPEECH(.late = 99), TRAINING}},
    {"by deadlines nothing is, and who waits gets all that is left", "laxity", .seconds = 120, .saturated = true, .jobs = {
        FRAMES,
        SPEECH(.lo = 0.35),
        {.class = B, .need = 1, .lo = 0.22, .hi = 0.27}}},
    {"the same", "edf", .seconds = 120, .saturated = true, .jobs = {FRAMES, SPEECH(.lo = 0.35), TRAINING}},
    {"estimates may be a fifth too low", "laxity", .seconds = 120, .jobs = {FRAMES, SPEECH(.guess = 0.8, .lo = 0.35), TRAINING}},
    {"or too high", "laxity", .seconds = 120, .jobs = {FRAMES, SPEECH(.guess = 1.2, .lo = 0.35), TRAINING}},
    {"one that is always due holds others up to its share", "laxity", .seconds = 100, .saturated = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .work_s = 0.5, .every_s = 0.001, .due_s = 0.9, .lo = 0.68, .hi = 0.73},
        {.class = B, .need = 1, .lo = 0.17, .hi = 0.22}}},
    {"the same without a latency job", "edf", .seconds = 100, .saturated = true, .jobs = {
        {.class = B, .need = 1, .work_s = 0.5, .every_s = 0.001, .due_s = 0.9, .lo = 0.75, .hi = 0.91},
        {.class = B, .need = 1, .lo = 0.09, .hi = 0.25}}},
    {"a smaller share", "laxity", .seconds = 100, .deadline_share = 0.5, .saturated = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .work_s = 0.5, .every_s = 0.001, .due_s = 0.9, .lo = 0.40, .hi = 0.50, .late = 999},
        {.class = B, .need = 1, .lo = 0.40, .hi = 0.50}}},
    {"what cannot be met is not chased", "laxity", .seconds = 60, .saturated = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .work_s = 40, .every_s = 99, .due_s = 3, .lo = 0.40, .hi = 0.50},
        {.class = B, .need = 1, .lo = 0.40, .hi = 0.50}}},
    {"a deadline is nothing against a higher class", "laxity", .seconds = 30, .saturated = true, .jobs = {LIGHT,
        {.class = N, .need = 1, .lo = 0.899, .hi = 0.901},
        {.class = B, .need = 1, .work_s = 0.1, .every_s = 1, .due_s = 0.5, .lo = 0, .hi = 0}}},
    {"nor without a latency job", "laxity", .seconds = 30, .jobs = {
        {.class = N, .need = 1, .lo = 0.99, .hi = 1},
        {.class = B, .need = 1, .work_s = 0.1, .every_s = 1, .due_s = 0.5, .lo = 0, .hi = 0.01}}},
    {"beside a latency job that leaves little it may not rise", "laxity", .seconds = 31, .jobs = {
        {.class = L, .need = 0.8, .lo = 0.79, .hi = 0.81},
        {.class = B, .need = 1, .work_s = 0.5, .every_s = 2, .due_s = 1.5, .lo = 0.1, .hi = 0.21, .late = 99},
        {.class = B, .need = 1, .lo = 0, .hi = 0.1}}},
    {"unless its owner may say so", "laxity", .seconds = 31, .jobs = {
        {.class = L, .need = 0.8, .lo = 0.6, .hi = 0.81},
        {.class = B, .need = 1, .work_s = 0.5, .every_s = 2, .due_s = 1.5, .may_promote = true, .lo = 0.23, .hi = 0.26},
        {.class = B, .need = 1, .lo = 0, .hi = 0.1}}},
    {"edf: two that are due, the earlier first", "edf", .seconds = 61, .saturated = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .work_s = 0.3, .every_s = 1, .due_s = 1, .lo = 0.29, .hi = 0.31},
        {.class = B, .need = 1, .work_s = 1.2, .every_s = 4, .due_s = 4, .lo = 0.29, .hi = 0.31},
        {.class = B, .need = 1, .lo = 0.27, .hi = 0.33}}},
    {"and laxity, when urgent_us covers the other", "laxity", .seconds = 61, .urgent_s = 1.5, .saturated = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .work_s = 0.3, .every_s = 1, .due_s = 1, .lo = 0.29, .hi = 0.31},
        {.class = B, .need = 1, .work_s = 1.2, .every_s = 4, .due_s = 4, .lo = 0.29, .hi = 0.31},
        {.class = B, .need = 1, .lo = 0.27, .hi = 0.33}}},
    {"more than can be done: the earlier first, both are late", "edf", .seconds = 60, .deadline_share = 0.95, .saturated = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .work_s = 0.55, .every_s = 1, .due_s = 1, .lo = 0.40, .hi = 0.50, .late = 99},
        {.class = B, .need = 1, .work_s = 0.55, .every_s = 1, .due_s = 0.99, .lo = 0.40, .hi = 0.50, .late = 99}}},
    {"and the one that matters more: only the other is", "edf", .seconds = 60, .deadline_share = 0.95, .saturated = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .work_s = 0.55, .every_s = 1, .due_s = 1, .priority = 1, .lo = 0.54, .hi = 0.56},
        {.class = B, .need = 1, .work_s = 0.55, .every_s = 1, .due_s = 0.99, .lo = 0.34, .hi = 0.36, .late = 99}}},
    {"nor does priority go above a class", "edf", .seconds = 60, .deadline_share = 0.95, .saturated = true, .jobs = {LIGHT,
        {.class = N, .need = 1, .work_s = 0.55, .every_s = 1, .due_s = 1, .lo = 0.54, .hi = 0.56},
        {.class = B, .need = 1, .work_s = 0.55, .every_s = 1, .due_s = 0.99, .priority = 9, .lo = 0.34, .hi = 0.36, .late = 99}}},
    {"a paused job is not boosted", "laxity", .seconds = 20, .measure_from_s = 1, .saturated = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .work_s = 9, .every_s = 20, .due_s = 20, .pause_s = 0.5, .resume_s = 99, .lo = 0, .hi = 0},
        {.class = B, .need = 1, .lo = 0.899, .hi = 0.901}}},
};
/* clang-format on */

TEST(behaviours)
{
    mock_table(table, ARRAY_SIZE(table), 2e-3);
}

/* Programs that tell nonsense hold the others up for 5 s in a row, then for 0.8 s of each second;
 * in the rest those of them that are not the earliest have their turns too. */
TEST(liars)
{
    srand(5);
    for (int i = 0; i < 40; i++) {
        struct mock_scenario s = {
            .name = "", .policy = i % 2 ? "laxity" : "edf", .seconds = 60, .jobs = {FRAMES}};
        for (int j = 1; j < 4; j++) {
            s.jobs[j] = (struct mock_job){.class = B,
                                          .need = 1,
                                          .work_s = 0.05 * (1 + rand() % 200),
                                          .every_s = 0.01 * (1 + rand() % 500),
                                          .due_s = 0.01 * (1 + rand() % 1000),
                                          .guess = 0.01 * (1 + rand() % 1000)};
        }
        s.jobs[4] = (struct mock_job)TRAINING;
        struct mock_result r;
        mock_run(&s, &r);
        assert_int_equal(r.overlaps, 0);
        assert_true(r.slowest_s[0] < 0.040);
        if (r.wait_s[4] >= 5 + 3 * 1.0 + 0.5 || r.share[4] <= 0.02)
            fail_msg("run %d: waits for %.2f s, share %.3f", i, r.wait_s[4], r.share[4]);
    }
}

/* What any schedule can meet on one GPU, EDF meets: jobs with periods, each request due before the
 * next, below 90 % of the time together (Liu and Layland 1973). */
TEST(edf_meets)
{
    const int sets = SANITIZED ? 25 : 100;
    int requests = 0;
    srand(11);
    for (int i = 0; i < sets; i++) {
        struct mock_scenario s = {
            .name = "", .policy = "edf", .seconds = 60, .deadline_share = 0.95};
        int n = 2 + i % 4;
        double left = 0.9;
        for (int j = 0; j < n; j++) {
            double load = j == n - 1 ? left : left * (0.2 + 0.01 * (rand() % 60));
            double every = 0.3 + 0.001 * (rand() % 4000);
            s.jobs[j] = (struct mock_job){
                .class = B, .need = 1, .work_s = load * every, .every_s = every, .due_s = every};
            left -= load;
        }
        s.jobs[n] = (struct mock_job)TRAINING;
        struct mock_result r;
        mock_run(&s, &r);
        for (int j = 0; j < n; j++) {
            requests += (int)r.requests[j];
            if (r.late[j])
                fail_msg("set %d: %u of %u late", i, r.late[j], r.requests[j]);
        }
        assert_true(r.share[n] > 0.05);
    }
    assert_true(requests > 100 * sets);
}
