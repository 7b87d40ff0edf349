/* Floors and ceilings (plan/limits.h), on the mock GPU: what everybody has in all, and what those
 * with limits have in each of their frames. */
#include "../sanitized.h"
#include "base/util.h"
#include "mock_gpu.h"
#include "plan/limits.h"

#include <math.h>

/* clang-format off */
static const struct mock_scenario table[] = {
    {"a ceiling alone", "priority", .seconds = 10, .jobs = {
        {.class = N, .need = 1, .max = 0.5, .lo = 0.495, .hi = 0.505}}},
    {"what is above a ceiling others get", "priority", .seconds = 10, .saturated = true, .jobs = {
        {.class = N, .need = 1, .max = 0.2, .lo = 0.195, .hi = 0.205},
        {.class = N, .need = 1, .lo = 0.79, .hi = 0.81}}},
    {"a ceiling above one's part changes nothing", "priority", .seconds = 10, .saturated = true, .jobs = {
        {.class = N, .need = 1, .max = 0.9, .lo = 0.48, .hi = 0.52},
        {.class = N, .need = 1, .lo = 0.48, .hi = 0.52}}},
    {"and lets in what the other leaves", "priority", .seconds = 10, .jobs = {
        {.class = N, .need = 1, .max = 0.9, .lo = 0.76, .hi = 0.9},
        {.class = N, .need = 0.1, .lo = 0.099, .hi = 0.101}}},
    {"two ceilings", "priority", .seconds = 10, .jobs = {
        {.class = N, .need = 1, .max = 0.3, .lo = 0.295, .hi = 0.305},
        {.class = B, .need = 1, .max = 0.4, .lo = 0.395, .hi = 0.405}}},
    {"eight ceilings", "priority", .seconds = 20, .jobs = {
        {.class = B, .need = 1, .max = 0.12, .lo = 0.115, .hi = 0.125, .times = 8}}},
    {"a floor above one's part", "priority", .seconds = 10, .saturated = true, .jobs = {
        {.class = N, .need = 1, .min = 0.6, .lo = 0.59, .hi = 0.62},
        {.class = N, .need = 1, .lo = 0.19, .hi = 0.21, .times = 2}}},
    {"a floor below one's part changes nothing", "priority", .seconds = 10, .saturated = true, .jobs = {
        {.class = N, .need = 1, .min = 0.3, .lo = 0.48, .hi = 0.52},
        {.class = N, .need = 1, .lo = 0.48, .hi = 0.52}}},
    {"a floor that is not used others get", "priority", .seconds = 30, .jobs = {
        {.class = N, .need = 0.1, .min = 0.6, .lo = 0.099, .hi = 0.101},
        {.class = N, .need = 1, .lo = 0.88, .hi = 0.901}}},
    {"a floor below a class that saturates", "priority", .seconds = 10, .saturated = true, .jobs = {
        {.class = N, .need = 1, .lo = 0.69, .hi = 0.71},
        {.class = B, .need = 1, .min = 0.3, .lo = 0.29, .hi = 0.31},
        {.class = B, .need = 1, .lo = 0, .hi = 0.01}}},
    {"ceilings beside a latency job", "priority", .seconds = 20, .jobs = {LIGHT,
        {.class = B, .need = 1, .max = 0.3, .lo = 0.26, .hi = 0.3},
        {.class = B, .need = 1, .lo = 0.6, .hi = 0.65}}},
    {"a latency job's ceiling", "priority", .seconds = 10, .saturated = true, .jobs = {
        {.class = L, .need = 1, .max = 0.5, .lo = 0.49, .hi = 0.51},
        {.class = B, .need = 1, .lo = 0.49, .hi = 0.51}}},
    {"small ceilings are kept over some frames", "priority", .seconds = 30, .jobs = {
        {.class = N, .need = 1, .max = 0.01, .lo = 0.008, .hi = 0.011},
        {.class = N, .need = 1, .max = 0.02, .lo = 0.017, .hi = 0.021},
        {.class = N, .need = 1, .lo = 0.96, .hi = 0.98}}},
    {"an account's ceiling holds for its jobs together", "priority", .seconds = 10, .account = {[1] = {.max = 0.3}}, .jobs = {
        {.class = N, .need = 1, .account = 1, .lo = 0.145, .hi = 0.155, .times = 2},
        {.class = N, .need = 1, .account = 2, .lo = 0.69, .hi = 0.71}}},
    {"an account's floor", "priority", .seconds = 10, .account = {[1] = {.min = 0.8}}, .saturated = true, .jobs = {
        {.class = N, .need = 1, .account = 1, .lo = 0.39, .hi = 0.41, .times = 2},
        {.class = N, .need = 1, .account = 2, .lo = 0.19, .hi = 0.21}}},
    {"an account's floor is for all its classes together", "priority", .floor = 0.2, .seconds = 10, .account = {[1] = {.min = 0.5}}, .jobs = {
        {.class = N, .need = 1, .account = 1, .lo = 0.49, .hi = 0.52},
        {.class = B, .need = 1, .account = 1, .lo = 0.08, .hi = 0.12},
        {.class = N, .need = 1, .account = 2, .lo = 0.36, .hi = 0.41}}},
    {"floors of more than all are cut in proportion", "priority", .seconds = 10, .jobs = {
        {.class = N, .need = 1, .min = 0.9, .lo = 0.59, .hi = 0.61},
        {.class = N, .need = 1, .min = 0.6, .lo = 0.39, .hi = 0.41}}},
    {"the gaps of a window are everybody's", "priority", .seconds = 10, .jobs = {
        {.class = N, .need = 0.05, .min = 0.2, .lo = 0.049, .hi = 0.051},
        {.class = B, .need = 1, .max = 0.4, .lo = 0.36, .hi = 0.4},
        {.class = B, .need = 1, .lo = 0.53, .hi = 0.6}}},
    {"what is kept for lower classes is for those with a ceiling, too", "priority", .floor = 0.2, .seconds = 20, .jobs = {
        {.class = L, .need = 0.01, .lo = 0.009, .hi = 0.011},
        {.class = N, .need = 1, .lo = 0.7, .hi = 0.85},
        {.class = B, .need = 1, .max = 0.4, .lo = 0.12, .hi = 0.4}}},
    {"and without a latency job", "priority", .floor = 0.2, .seconds = 20, .jobs = {
        {.class = N, .need = 1, .lo = 0.7, .hi = 0.85},
        {.class = B, .need = 1, .max = 0.4, .lo = 0.12, .hi = 0.4}}},
    {"classes do not count in shares, limits do", "shares", .seconds = 10, .saturated = true, .jobs = {
        {.class = B, .need = 1, .max = 0.2, .lo = 0.195, .hi = 0.205},
        {.class = N, .need = 1, .lo = 0.79, .hi = 0.81}}},
    {"limited jobs that do nothing cost others nothing", "priority", .seconds = 20, .measure_from_s = 10, .usage = true, .jobs = {
        {.class = N, .need = 1, .lo = 0.99, .hi = 1},
        {.class = N, .need = 1, .max = 0.5, .works_from_s = 99, .lo = 0, .hi = 0},
        {.class = N, .need = 1, .min = 0.5, .works_from_s = 99, .lo = 0, .hi = 0},
        {.class = N, .need = 1, .max = 0.5, .works_from_s = 99, .lo = 0, .hi = 0}}},
    {"and beside a latency job little", "priority", .seconds = 20, .measure_from_s = 10, .usage = true, .jobs = {LIGHT,
        {.class = B, .need = 1, .lo = 0.84, .hi = 0.9},
        {.class = B, .need = 1, .max = 0.5, .works_from_s = 99, .lo = 0, .hi = 0, .times = 2}}},
    {"a latency job with a ceiling is not held for doing nothing", "priority", .seconds = 20, .measure_from_s = 12, .usage = true, .jobs = {
        {.class = L, .need = 1, .max = 0.5, .works_from_s = 12, .lo = 0.48, .hi = 0.51},
        {.class = B, .need = 1, .lo = 0.48, .hi = 0.52}}},
    {"nor does it wait for the windows of others", "priority", .seconds = 10, .jobs = {
        {.class = L, .need = 0.1, .max = 0.9, .lo = 0.099, .hi = 0.101},
        {.class = N, .need = 1, .min = 0.6, .lo = 0.5, .hi = 0.62},
        {.class = B, .need = 1, .min = 0.4, .lo = 0.3, .hi = 0.41}}},
    {"floors of a lower class do not take those of a higher", "priority", .floor = 0.2, .seconds = 10, .jobs = {
        {.class = N, .need = 1, .min = 0.2, .lo = 0.13, .hi = 0.2},
        {.class = B, .need = 1, .min = 0.9, .lo = 0.6, .hi = 0.7},
        {.class = B, .need = 1, .min = 0.2, .lo = 0.13, .hi = 0.2}}},
    {"nor what is kept for those of their class without one", "priority", .floor = 0.2, .seconds = 20, .jobs = {
        {.class = N, .need = 1, .lo = 0.3, .hi = 0.34},
        {.class = B, .need = 1, .min = 0.6, .lo = 0.59, .hi = 0.66},
        {.class = B, .need = 1, .lo = 0.03, .hi = 0.09}}},
    {"nor that beside a latency job", "priority", .floor = 0.2, .seconds = 20, .jobs = {
        {.class = L, .need = 0.005, .lo = 0.004, .hi = 0.006},
        {.class = N, .need = 1, .lo = 0.25, .hi = 0.34},
        {.class = B, .need = 1, .min = 0.6, .lo = 0.59, .hi = 0.61},
        {.class = B, .need = 1, .lo = 0.05, .hi = 0.1}}},
    {"a floor that is hardly used costs batch jobs little", "priority", .seconds = 20, .jobs = {
        {.class = N, .need = 0.02, .min = 0.2, .lo = 0.019, .hi = 0.021},
        {.class = N, .need = 0.02, .lo = 0.018, .hi = 0.021},
        {.class = B, .need = 1, .lo = 0.7, .hi = 0.97}}},
    {"a job that begins to work beside windows that fill the frame", "priority", .seconds = 20, .measure_from_s = 14, .usage = true, .jobs = {
        {.class = L, .need = 0.02, .lo = 0.019, .hi = 0.021},
        {.class = B, .need = 0.2, .min = 0.2, .works_from_s = 10, .lo = 0.16, .hi = 0.21},
        {.class = B, .need = 1, .min = 0.2, .lo = 0.3, .hi = 0.8},
        {.class = B, .need = 0.2, .works_from_s = 10, .lo = 0.1, .hi = 0.21}}},
    {"nothing is left of limits that are no more", "priority", .floor = 0.2, .seconds = 20, .measure_from_s = 6, .jobs = {
        {.class = L, .need = 0.01, .max = 0.9, .limits_to_s = 5.03, .lo = 0.009, .hi = 0.011},
        {.class = N, .need = 0.01, .max = 0.9, .limits_to_s = 5.03, .lo = 0.009, .hi = 0.011},
        {.class = B, .need = 1, .max = 0.9, .limits_to_s = 5.03, .lo = 0.05, .hi = 0.5, .times = 2}}},
    {"a job that begins is found below its ceiling too", "priority", .seconds = 20, .measure_from_s = 12, .usage = true, .jobs = {
        {.class = N, .need = 1, .max = 0.4, .works_from_s = 10, .lo = 0.39, .hi = 0.41},
        {.class = N, .need = 1, .max = 0.5, .lo = 0.49, .hi = 0.51}}},
    {"below an account's ceiling lower classes have what is kept for them", "priority", .floor = 0.2, .seconds = 20, .account = {[1] = {.max = 0.5}}, .jobs = {
        {.class = N, .need = 1, .account = 1, .lo = 0.38, .hi = 0.4},
        {.class = B, .need = 1, .account = 1, .lo = 0.1, .hi = 0.12},
        {.class = B, .need = 1, .lo = 0.48, .hi = 0.51}}},
    {"where classes do not count a floor does not take an account's ceiling", "shares", .seconds = 20, .account = {[1] = {.max = 0.2}}, .jobs = {
        {.class = N, .need = 1, .account = 1, .min = 0.3, .lo = 0.17, .hi = 0.2},
        {.class = N, .need = 1, .account = 1, .lo = 0.004, .hi = 0.03},
        {.class = B, .need = 1, .lo = 0.79, .hi = 0.81}}},
};
/* clang-format on */

TEST(behaviours)
{
    mock_table(table, ARRAY_SIZE(table), 5e-3);
}

static double one_of(uint64_t *seed, const double *v, uint32_t n)
{
    return v[rng(seed) % n];
}

/* Whatever floors and ceilings there are: who has work gets some of the GPU every few seconds,
 * where floors leave something, and batch jobs have something kept for them. */
TEST(nobody_starves)
{
    static const double needs[] = {0.005, 0.02, 0.17, 0.5, 1}, times[] = {0, 0, 0, 1, 3, 5};
    static const double floors[] = {0, 0, 0.1, 0.15}, ceilings[] = {0, 0, 0.2, 0.4, 0.9};
    static const double classes[] = {L, N, N, N, B, B, B, B}, accounts[] = {0, 1, 2};
    static const char *const policies[] = {"priority", "laxity", "shares"};
    uint64_t seed = 7;
    for (int run = 0; run < (SANITIZED ? 200 : 800); run++) {
        struct mock_scenario s = {.name = "random",
                                  .policy = policies[run % 3],
                                  .floor = run % 3 == 2 ? 0 : 0.2,
                                  .seconds = 12,
                                  .usage = true};
        struct mock_result r;
        unsigned n = 2 + (unsigned)run % 5;
        for (unsigned a = 1; a < 3; a++) {
            s.account[a].min = one_of(&seed, floors, 4);
            s.account[a].max = one_of(&seed, ceilings, 5);
        }
        for (unsigned j = 0; j < n; j++) {
            s.jobs[j] = (struct mock_job){.class = (enum job_class)one_of(&seed, classes, 8),
                                          .account = (uint32_t)one_of(&seed, accounts, 3),
                                          .need = one_of(&seed, needs, 5),
                                          .min = one_of(&seed, floors, 4),
                                          .max = one_of(&seed, ceilings, 5),
                                          .works_from_s = one_of(&seed, times, 6)};
            if (s.jobs[j].class == L && s.jobs[j].need > 0.5)
                s.jobs[j].need = 0.5;
        }
        mock_run(&s, &r);
        for (unsigned j = 0; j < n; j++) {
            if (r.wait_s[j] > 3.5)
                fail_msg("run %d: job %u, %s, waited for %.1f s", run, j,
                         job_class_name(s.jobs[j].class), r.wait_s[j]);
        }
    }
}

/* Two contexts of a job with 2 ms in each frame: each has a window by turns, or both fit into one.
 * The third group copies: where windows change timeslices it has the driver's. */
TEST(several_contexts)
{
    for (int class = CLASS_LATENCY; class < CLASS_COUNT; class ++) {
        struct sched *c = scheduler(1, 4, 4);
        struct sched_plan plan;
        unsigned ran = 0, steps = 0, window = 0;
        bool latency = class == CLASS_LATENCY;
        EVENT(c, JOB_ADD, .class = (enum job_class) class, .gpu_max = latency ? 0.02 : 0.004,
              .weight = WEIGHT_DEFAULT);
        EVENT(c, JOB_ADD, .job = 1, .class = CLASS_NORMAL, .weight = WEIGHT_DEFAULT);
        for (uint32_t g = 0; g < 4; g++)
            EVENT(c, GROUP_ADD, .group = g, .job = g / 2, .computes = g < 3);
        for (uint64_t now = 0; now < 6 * SEC; now += 500000) {
            unsigned runnable = 0, longest_us = 0;
            sched_decide(c, now, &plan);
            for (size_t i = 0; i < plan.n; i++) {
                const struct sched_setting *s = &plan.settings[i];
                assert_true(s->group < 3 || (s->timeslice_us > 0) == latency);
                if (s->group > 1 || !s->runnable)
                    continue;
                runnable++;
                ran |= 1U << s->group;
                longest_us = s->timeslice_us > longest_us ? s->timeslice_us : longest_us;
            }
            if (runnable == 2 && longest_us > 1000)
                fail_msg("class %d: two contexts have timeslices of %u us", class, longest_us);
            steps = runnable ? steps + 1 : 0;
            window = steps > window ? steps : window;
        }
        assert_int_equal(ran, 3);
        assert_true(!latency || window >= 9); /* shorter ones are saved up */
        sched_free(c);
    }
}

/* A job that does nothing can begin in its gaps: the slices of one that works are not the longest
 * then, and the shortest where gaps are too short to show what it does. */
static void idle_in_gaps(double gpu_max, uint32_t longest_us, unsigned least, unsigned most)
{
    struct sched *c = scheduler(1, 4, 4);
    struct sched_plan plan;
    unsigned steps = 0;
    for (uint32_t job = 0; job < 2; job++) {
        EVENT(c, JOB_ADD, .job = job, .class = B, .gpu_max = job ? 0 : gpu_max,
              .weight = WEIGHT_DEFAULT);
        EVENT(c, GROUP_ADD, .group = job, .job = job, .computes = true);
    }
    for (uint64_t now = 0; now < 6 * SEC; now += 500000) {
        uint32_t us[2] = {0};
        if (now == SEC)
            EVENT(c, DEMAND, .job = 0);
        sched_decide(c, now, &plan);
        for (size_t i = 0; i < plan.n; i++)
            us[plan.settings[i].group] =
                plan.settings[i].runnable ? plan.settings[i].timeslice_us : 0;
        if (now < 2 * SEC || !us[0])
            continue;
        steps++;
        assert_in_range(us[1], 1, longest_us);
    }
    assert_in_range(steps, least, most); /* of half a millisecond, in four seconds */
    sched_free(c);
}

TEST(test_idle_in_gaps)
{
    idle_in_gaps(0.3, 20000, 1000, 4 * 2000 / 3);
    idle_in_gaps(0.02, 1, 140, 180);
}

/* Max-min fairness between bounds, by its definition: nobody who is below the ceiling has less for
 * his weight than anybody who is above his floor. */
TEST(test_fill)
{
    uint64_t seed = 1;
    for (int run = 0; run < (SANITIZED ? 2500 : 10000); run++) {
        struct claim v[6];
        double lo = 0, hi = 0, sum = 0;
        for (int i = 0; i < 6; i++) {
            double x[3];
            for (int k = 0; k < 3; k++)
                x[k] = rng(&seed) / (double)(1U << 31);
            v[i] = (struct claim){1 + 99 * x[0], x[1] * 0.2, x[1] * 0.2 + x[2] * 0.5, 0};
            lo += v[i].lo;
            hi += v[i].hi;
        }
        limits_fill(v, 6, 1);
        for (int i = 0; i < 6; i++) {
            sum += v[i].got;
            assert_true(v[i].got <= v[i].hi + 1e-9 && (lo > 1 || v[i].got >= v[i].lo - 1e-9));
            for (int k = 0; k < 6 && lo < 1; k++)
                assert_true(v[i].got >= v[i].hi - 1e-6 || v[k].got <= v[k].lo + 1e-6 ||
                            v[i].got / v[i].weight >= v[k].got / v[k].weight - 1e-6);
        }
        assert_true(fabs(sum - fmin(hi, 1)) < 1e-6);
    }
}
