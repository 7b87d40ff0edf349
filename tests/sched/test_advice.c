/* What a trial's windows say (plan/advice.h): the work of each job alone, its speed in an
 * arrangement, and which arrangement serves an aim best. */
#include "../test.h"
#include "plan/advice.h"

#include <math.h>
#include <string.h>

#define NEAR(a, b) (fabs((a) - (b)) < 0.01)

/* ---- alone ---- */

static const struct {
    const char *name;
    double background, windows[4]; /* of FP32; -1: no more */
    double mean, varies;
    bool idle;
} alone[] = {
    {"one window", 0, {0.5, -1}, 0.5, 0, false},
    {"the background is no job's work", 0.1, {0.5, -1}, 0.4, 0, false},
    {"nor is less than that", 0.4, {0.3, -1}, 0, 0, true},
    {"the mean of windows", 0, {0.4, 0.6, -1}, 0.5, 0.5, false},
    {"of three", 0, {0.3, 0.6, 0.6, -1}, 0.5, 1, false},
    {"the largest difference, not the last", 0, {0.4, 0.8, 0.6, -1}, 0.6, 1, false},
    {"less in the second", 0.1, {0.5, 0.3, -1}, 0.3, 0.5, false},
    {"nothing at first", 0, {0, 0.4, -1}, 0.2, 0, false},
    {"hardly anything", 0.1, {0.102, -1}, 0.002, 0, true},
    {"little", 0.1, {0.104, -1}, 0.004, 0, false},
};

TEST(what_a_job_does_alone)
{
    int bad = 0;
    for (size_t k = 0; k < sizeof(alone) / sizeof(alone[0]); k++) {
        const struct advice_window background = {
            .parts = {[PART_FP32] = alone[k].background, [PART_DRAM] = 0.2}};
        struct advice_alone a = {.windows = 0};
        for (const double *w = alone[k].windows; *w >= 0; w++) {
            /* The others' DRAM traffic is less by chance: that is no work below 0. */
            const struct advice_window window = {.parts = {[PART_FP32] = *w, [PART_DRAM] = 0.15}};
            advice_add_alone(&a, &window, 0, &background);
        }
        const bool ok = fabs(a.parts[PART_FP32] - alone[k].mean) < 1e-6 &&
                        a.parts[PART_DRAM] == 0 && fabs(a.varies - alone[k].varies) < 1e-6 &&
                        advice_idle(&a) == alone[k].idle;
        if (!ok)
            print_error("%s: %g, varies %g, %s\n", alone[k].name, a.parts[PART_FP32], a.varies,
                        advice_idle(&a) ? "idle" : "works");
        bad += !ok;
    }
    assert_int_equal(bad, 0);
}

/* ---- speeds ---- */

static const struct {
    const char *name;
    enum arrangement is;
    bool alike;    /* both jobs do the same, else one FP32 and the other FP64 */
    double did[2]; /* parts of what each does alone that show in the window */
    double had[2]; /* the engine, of the time */
    double want[2], sum;
    bool known; /* each one's speed */
} speeds[] = {
    {"in turns", ARRANGE_AS_IS, false, {0.5, 0.5}, {0.5, 0.5}, {0.5, 0.5}, 1, true},
    {"told by what they do, not by the engine",
     ARRANGE_AS_IS,
     false,
     {0.7, 0.2},
     {0.5, 0.5},
     {0.7, 0.2},
     0.9,
     true},
    {"alike, in time", ARRANGE_AS_IS, true, {0.7, 0.2}, {0.6, 0.2}, {0.675, 0.225}, 0.9, true},
    {"alike, one first", ARRANGE_FIRST, true, {0.8, 0.1}, {0.9, 0.0}, {0.9, 0}, 0.9, true},
    {"alike, and nobody had the engine",
     ARRANGE_AS_IS,
     true,
     {0.5, 0.4},
     {0, 0},
     {0.45, 0.45},
     0.9,
     false},
    {"alike, in space", ARRANGE_TOGETHER, true, {0.8, 0.4}, {0.9, 0.1}, {0.6, 0.6}, 1.2, false},
    {"alike, on parts", ARRANGE_PARTS, true, {0.6, 0.4}, {0.9, 0.1}, {0.5, 0.5}, 1, false},
    {"in space", ARRANGE_TOGETHER, false, {0.8, 0.6}, {1, 0}, {0.8, 0.6}, 1.4, true},
    {"the first one got less",
     ARRANGE_TOGETHER,
     false,
     {0.3, 0.8},
     {0.5, 0.5},
     {0.3, 0.8},
     1.1,
     true},
    {"one got nothing", ARRANGE_TOGETHER, false, {1, 0}, {1, 0}, {1, 0}, 1, true},
};

TEST(speeds_of_a_row)
{
    static const struct advice_window background = {.parts = {[PART_FP32] = 0.1}};
    int bad = 0;
    for (size_t k = 0; k < sizeof(speeds) / sizeof(speeds[0]); k++) {
        const enum gpu_part second = speeds[k].alike ? PART_FP32 : PART_FP64;
        struct advice_alone jobs[2] = {{.parts = {[PART_FP32] = 0.5}, .busy = 1, .windows = 1},
                                       {.busy = 1, .windows = 1}};
        struct advice_row row = {
            .is = speeds[k].is,
            .window = {.parts = {[PART_FP32] = 0.1}, .had = {speeds[k].had[0], speeds[k].had[1]}}};
        jobs[1].parts[second] = 0.5;
        row.window.parts[PART_FP32] += 0.5 * speeds[k].did[0];
        row.window.parts[second] += 0.5 * speeds[k].did[1];
        advice_speeds(&row, jobs, 2, &background);
        bool ok = NEAR(row.sum.value, speeds[k].sum) && row.sum.error < SPEED_ERROR_MAX &&
                  advice_all_known(&row, 2) == speeds[k].known &&
                  (!speeds[k].known || NEAR(row.least, fmin(speeds[k].want[0], speeds[k].want[1])));
        for (int i = 0; i < 2; i++)
            ok &= NEAR(row.speed[i].value, speeds[k].want[i]) &&
                  (row.speed[i].error <= SPEED_ERROR_MAX) == speeds[k].known;
        if (!ok)
            print_error("%s: %.3f +- %.3f, %.3f +- %.3f, sum %.3f +- %.3f, least %.3f\n",
                        speeds[k].name, row.speed[0].value, row.speed[0].error, row.speed[1].value,
                        row.speed[1].error, row.sum.value, row.sum.error, row.least);
        bad += !ok;
    }
    assert_int_equal(bad, 0);
}

#define TRAIN                                                                                      \
    {                                                                                              \
        [PART_TENSOR_FP16] = 0.6, [PART_DRAM] = 0.3                                                \
    }
#define FP(share)                                                                                  \
    {                                                                                              \
        [PART_FP32] = (share)                                                                      \
    }

/* In time; what the window shows is what they did. did: relative to alone. */
static const struct {
    const char *name;
    double alone[2][GPU_PARTS], busy[2]; /* alone */
    double did[2], had[2];
    double want[2];
} in_time[] = {
    {"one is busy for 70 % of the time",
     {TRAIN, {[PART_DRAM] = 0.03}},
     {1, 0.7},
     {0.6, 0.7},
     {0.6, 0.49},
     {0.6, 0.7}},
    {"its work is alike", {FP(0.5), FP(0.3)}, {1, 0.6}, {0.6, 0.9}, {0.6, 0.54}, {0.6, 0.9}},
    {"both are busy, with different loads",
     {FP(0.8), FP(0.4)},
     {1, 1},
     {0.7, 0.3},
     {0.7, 0.3},
     {0.7, 0.3}},
    {"more than their GPU time says: between both",
     {FP(0.5), FP(0.5)},
     {1, 1},
     {0.9, 0.6},
     {0.6, 0.4},
     {0.85, 0.57}},
    {"by the counters, where they tell",
     {FP(0.5), {[PART_FP64] = 0.5}},
     {1, 0.1},
     {0.7, 0.3},
     {0.5, 0.1},
     {0.7, 0.3}},
};

TEST(speeds_by_gpu_time)
{
    static const struct advice_window background = {.idle = 0};
    int bad = 0;
    for (size_t k = 0; k < sizeof(in_time) / sizeof(in_time[0]); k++) {
        struct advice_alone jobs[2] = {{.windows = 0}};
        struct advice_row row = {.is = ARRANGE_AS_IS};
        for (uint32_t i = 0; i < 2; i++) {
            struct advice_window w = {.idle = 0};
            w.busy[i] = in_time[k].busy[i];
            memcpy(w.parts, in_time[k].alone[i], sizeof(w.parts));
            advice_add_alone(&jobs[i], &w, i, &background);
            row.window.had[i] = in_time[k].had[i];
            for (unsigned p = 0; p < GPU_PARTS; p++)
                row.window.parts[p] += w.parts[p] * in_time[k].did[i];
        }
        advice_speeds(&row, jobs, 2, &background);
        const double *want = in_time[k].want;
        const bool ok = fabs(row.speed[0].value - want[0]) < 0.025 &&
                        fabs(row.speed[1].value - want[1]) < 0.025 &&
                        fabs(row.sum.value - want[0] - want[1]) < 0.05 &&
                        advice_all_known(&row, 2) && speed_known(row.sum) &&
                        NEAR(row.least, fmin(row.speed[0].value, row.speed[1].value));
        if (!ok)
            print_error("%s: %.3f +- %.3f, %.3f +- %.3f, sum %.3f +- %.3f\n", in_time[k].name,
                        row.speed[0].value, row.speed[0].error, row.speed[1].value,
                        row.speed[1].error, row.sum.value, row.sum.error);
        bad += !ok;
    }
    assert_int_equal(bad, 0);
}

/* In space, and where GPU time says nothing, neither the speed of a job that does little is known
 * nor the sum. */
TEST(speeds_not_known)
{
    static const struct {
        enum arrangement is;
        double busy;
    } cases[] = {
        {ARRANGE_TOGETHER, 0.9}, {ARRANGE_PARTS, 0.9}, {ARRANGE_TURNS, 0}, {ARRANGE_AS_IS, 0.4}};
    static const struct advice_window background = {.idle = 0};
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        const struct advice_alone jobs[2] = {
            {.parts = TRAIN, .busy = 1, .windows = 1},
            {.parts = {[PART_DRAM] = 0.006}, .busy = cases[k].busy, .windows = 1}};
        struct advice_row row = {.is = cases[k].is, .window = {.parts = TRAIN, .had = {0.9, 0.01}}};
        advice_speeds(&row, jobs, 2, &background);
        assert_true(speed_known(row.speed[0]) && NEAR(row.speed[0].value, 1));
        assert_false(speed_known(row.speed[1]) || speed_known(row.sum) ||
                     advice_all_known(&row, 2));
        assert_int_equal(advice_together(&row, 2), 0);
    }
}

/* ---- the best one ---- */

#define SUM                 .aim = {.is = AIM_SUM}
#define FAIREST             .aim = {.is = AIM_FAIR}
#define PROTECTS(job, part) .aim = {.is = AIM_PROTECT, .protect = (job), .keeps = (part)}
#define P99(us)             .aim = {.is = AIM_SUM, .p99_us = (us)}

static const struct {
    const char *name;
    struct advice_aim aim;
    double speed[3][2]; /* in each row; {0}: no more */
    double p99_us[3];   /* of the first job; 0: none */
    uint32_t best;
} choices[] = {
    {"the only one", SUM, {{0.5, 0.5}}, {0}, 0},
    {"the larger sum", SUM, {{0.5, 0.5}, {0.7, 0.6}, {0.6, 0.6}}, {0}, 1},
    {"the last one", SUM, {{0.5, 0.5}, {0.6, 0.6}, {0.7, 0.6}}, {0}, 2},
    {"a change is worth a gain", SUM, {{0.5, 0.5}, {0.505, 0.505}}, {0}, 0},
    {"of 0.02", SUM, {{0.5, 0.5}, {0.515, 0.515}}, {0}, 1},
    {"between two that gain alike, the earlier",
     SUM,
     {{0.5, 0.5}, {0.7, 0.6}, {0.71, 0.6}},
     {0},
     1},
    {"one has less than two thirds of its turns", SUM, {{0.5, 0.5}, {1, 0.32}}, {0}, 0},
    {"it has two thirds", SUM, {{0.5, 0.5}, {1, 0.34}}, {0}, 1},
    {"so in every row: the fairest of them", SUM, {{0.9, 0.1}, {0.8, 0.2}, {1, 0.05}}, {0}, 1},
    {"the first one is unfair, others are not", SUM, {{1.1, 0.1}, {0.4, 0.4}}, {0}, 1},
    {"fair", FAIREST, {{0.8, 0.4}, {0.9, 0.3}, {0.5, 0.45}}, {0}, 2},
    {"fair, hardly more", FAIREST, {{0.8, 0.4}, {0.45, 0.41}}, {0}, 0},
    {"the one that keeps its speed", PROTECTS(0, 0.9), {{0.6, 0.6}, {0.92, 0.1}}, {0}, 1},
    {"the other one", PROTECTS(1, 0.9), {{0.92, 0.3}, {0.3, 0.92}}, {0}, 1},
    {"of two that do, the larger sum",
     PROTECTS(0, 0.5),
     {{0.6, 0.5}, {0.92, 0.1}, {0.7, 0.6}},
     {0},
     2},
    {"none does: the nearest", PROTECTS(0, 0.9), {{0.5, 0.5}, {0.8, 0.1}, {0.6, 0.7}}, {0}, 1},
    {"p99 is kept", P99(100), {{0.5, 0.5}, {0.7, 0.6}}, {50, 100}, 1},
    {"p99 is too long", P99(100), {{0.5, 0.5}, {0.7, 0.6}}, {50, 101}, 0},
    {"too long in each: the shortest",
     P99(100),
     {{0.7, 0.6}, {0.5, 0.5}, {0.6, 0.6}},
     {900, 200, 300},
     1},
    {"no limit", SUM, {{0.5, 0.5}, {0.7, 0.6}}, {50, 1e6}, 1},
    {"a limit and no requests", P99(100), {{0.5, 0.5}, {0.7, 0.6}}, {0}, 1},
    {"a limit goes before fairness",
     {.is = AIM_FAIR, .p99_us = 100},
     {{0.5, 0.5}, {0.6, 0.6}},
     {50, 200},
     0},
};

TEST(best_of_rows)
{
    int bad = 0;
    for (size_t k = 0; k < sizeof(choices) / sizeof(choices[0]); k++) {
        struct advice_row rows[3] = {{.is = ARRANGE_AS_IS}};
        uint32_t n = 0;
        for (; n < 3 && choices[k].speed[n][0] > 0; n++) {
            const double *v = choices[k].speed[n];
            rows[n].speed[0].value = v[0];
            rows[n].speed[1].value = v[1];
            rows[n].sum.value = v[0] + v[1];
            rows[n].least = fmin(v[0], v[1]);
            rows[n].window.p99_us[0] = choices[k].p99_us[n];
        }
        const uint32_t best = advice_best(rows, n, 2, &choices[k].aim);
        if (best != choices[k].best)
            print_error("%s: row %u\n", choices[k].name, best);
        bad += best != choices[k].best;
    }
    assert_int_equal(bad, 0);
}

/* A turn is shorter among three, and the same speed is more than two thirds of it. */
TEST(turns_of_three)
{
    struct advice_row rows[2] = {{.least = 0.3, .sum = {1, 0}}, {.least = 0.23, .sum = {1.4, 0}}};
    const struct advice_aim aim = {.is = AIM_SUM};
    assert_int_equal(advice_best(rows, 2, 3, &aim), 1);
    rows[1].least = 0.21;
    assert_int_equal(advice_best(rows, 2, 3, &aim), 0);
}

/* Rows of two jobs: a speed below 0 is not known, and with `sums` false nor is a sum. A speed that
 * is not known is 0.5 in estimates. */
static const struct {
    const char *name;
    struct advice_aim aim;
    double speed[3][2];
    bool sums;
    double p99_us[3];
    uint32_t best; /* 3: none */
} unknown[] = {
    {"a sum is not known: by estimates, alike in all rows",
     SUM,
     {{0.9, 1}, {0.95, -1}, {0.8, -1}},
     false,
     {0},
     1},
    {"an estimate that gains nothing", SUM, {{0.95, 0.5}, {0.96, -1}, {0.8, -1}}, false, {0}, 0},
    {"one is known to starve", SUM, {{0.9, 0.9}, {0.2, -1}, {0.3, -1}}, false, {0}, 0},
    {"sums are known, speeds are not", SUM, {{0.4, 0.4}, {-1, -1}, {0.45, 0.4}}, true, {0}, 1},
    {"fair: a row whose speeds are known",
     FAIREST,
     {{0.2, 0.3}, {-1, 0.9}, {0.3, 0.3}},
     false,
     {0},
     2},
    {"fair: the first one is not", FAIREST, {{-1, 0.9}, {0.2, 0.2}, {0.3, -1}}, false, {0}, 1},
    {"fair: none is", FAIREST, {{-1, 0.9}, {-1, -1}, {0.3, -1}}, false, {0}, 3},
    {"the protected one is known",
     PROTECTS(0, 0.9),
     {{0.5, 0.5}, {0.95, -1}, {-1, 0.9}},
     false,
     {0},
     1},
    {"it is in no row", PROTECTS(1, 0.9), {{0.5, -1}, {0.95, -1}, {0.5, -1}}, false, {0}, 3},
    {"p99 is known", P99(100), {{-1, -1}, {-1, -1}, {-1, -1}}, false, {900, 90, 200}, 1},
    {"not known goes before late",
     {.is = AIM_FAIR, .p99_us = 100},
     {{0.5, -1}, {-1, 0.5}, {0.9, 0.9}},
     false,
     {90, 90, 200},
     3},
};

TEST(best_of_rows_not_known)
{
    int bad = 0;
    for (size_t k = 0; k < sizeof(unknown) / sizeof(unknown[0]); k++) {
        struct advice_row rows[3] = {{.is = ARRANGE_AS_IS}};
        for (uint32_t r = 0; r < 3; r++) {
            rows[r].least = INFINITY;
            rows[r].sum.error = unknown[k].sums ? 0 : 1;
            rows[r].window.p99_us[0] = unknown[k].p99_us[r];
            for (uint32_t i = 0; i < 2; i++) {
                const double v = unknown[k].speed[r][i];
                rows[r].speed[i] = (struct speed){v < 0 ? 0.5 : v, v < 0 ? 1 : 0};
                rows[r].sum.value += rows[r].speed[i].value;
                rows[r].estimate += i == 1 && !unknown[k].sums ? 0.5 : rows[r].speed[i].value;
                rows[r].least = fmin(rows[r].least, v < 0 ? INFINITY : v);
            }
        }
        const uint32_t best = advice_best(rows, 3, 2, &unknown[k].aim);
        if (best != unknown[k].best)
            print_error("%s: row %u\n", unknown[k].name, best);
        bad += best != unknown[k].best;
    }
    assert_int_equal(bad, 0);
}
