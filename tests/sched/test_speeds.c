/* Speeds told from counters (plan/speeds.h): by arithmetic, and against what programs reported on
 * an H200, pairs and triples of them, in bench/results. */
#include "../test.h"
#include "plan/speeds.h"

#include <jansson.h>
#include <math.h>

static void add(double *sum, const double *profile, double speed)
{
    for (unsigned p = 0; p < GPU_PARTS; p++)
        sum[p] += profile[p] * speed;
}

TEST(exact)
{
    static const double profiles[4][GPU_PARTS] = {
        {[PART_TENSOR_FP16] = 0.8, [PART_DRAM] = 0.2, [PART_INTEGER] = 0.02},
        {[PART_DRAM] = 0.8, [PART_INTEGER] = 0.1},
        {[PART_FP32] = 0.5, [PART_DRAM] = 0.1, [PART_INTEGER] = 0.1},
        {[PART_FP64] = 0.3, [PART_INTEGER] = 0.2}};
    static const double speeds[4] = {0.5, 0.25, 1, 0};
    for (uint32_t n = 1; n <= 4; n++) {
        double together[GPU_PARTS] = {0}, misfit;
        struct speed got[SPEED_JOBS];
        for (uint32_t i = 0; i < n; i++)
            add(together, profiles[i], speeds[i]);
        speeds_estimate(profiles, n, together, NULL, got, NULL, &misfit);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(fabs(got[i].value - speeds[i]) < 5e-3);
            assert_true(got[i].error < 0.1);
        }
        assert_true(misfit < 1.01);
    }
}

TEST(alike)
{
    static const double profiles[2][GPU_PARTS] = {{[PART_FP32] = 0.5, [PART_DRAM] = 0.1},
                                                  {[PART_FP32] = 0.51, [PART_DRAM] = 0.101}};
    double together[GPU_PARTS] = {[PART_FP32] = 0.6, [PART_DRAM] = 0.12};
    struct speed got[2], sum;
    speeds_estimate(profiles, 2, together, NULL, got, &sum, NULL);
    assert_true(got[0].error > SPEED_ERROR_MAX && got[1].error > SPEED_ERROR_MAX);
    assert_true(sum.error < SPEED_ERROR_MAX && fabs(sum.value - 1.19) < 0.02);
    assert_true(fabs(got[0].value - got[1].value) < 0.1);
}

TEST(nothing_known)
{
    static const double profiles[2][GPU_PARTS] = {{[PART_FP32] = 0.5}, {0}};
    double together[GPU_PARTS] = {[PART_FP32] = 0.25, [PART_FP64] = 0.3}, misfit;
    struct speed got[2];
    speeds_estimate(profiles, 2, together, NULL, got, NULL, &misfit);
    assert_true(misfit > 5); /* somebody does what nobody did alone */
    assert_true(got[1].error > SPEED_ERROR_MAX);
}

/* ---- measured ---- */

static void read_parts(const json_t *list, double *out)
{
    assert_int_equal(json_array_size(list), GPU_PARTS);
    for (unsigned p = 0; p < GPU_PARTS; p++)
        out[p] = json_number_value(json_array_get(list, p));
}

TEST(test_measured)
{
    json_error_t e;
    json_t *all = json_load_file(getenv("CEDE_SPEEDS"), 0, &e), *run;
    if (!all)
        fail_msg("%s", e.text);
    size_t i, n = 0, near = 0, told = 0, told_near = 0, lists[4] = {0};
    json_array_foreach(json_object_get(all, "together"), i, run)
    {
        double profiles[SPEED_JOBS][GPU_PARTS], together[GPU_PARTS];
        const json_t *jobs = json_object_get(run, "jobs");
        uint32_t k = (uint32_t)json_array_size(jobs);
        struct speed got[SPEED_JOBS];
        assert_in_range(k, 2, 3);
        lists[k]++;
        for (uint32_t j = 0; j < k; j++) {
            const char *name = json_string_value(json_array_get(jobs, j));
            read_parts(json_object_get(json_object_get(all, "alone"), name), profiles[j]);
        }
        read_parts(json_object_get(run, "parts"), together);
        speeds_estimate(profiles, k, together, NULL, got, NULL, NULL);
        for (uint32_t j = 0; j < k; j++) {
            double truth = json_number_value(json_array_get(json_object_get(run, "speeds"), j));
            bool is_near = fabs(got[j].value - truth) <= 0.05;
            n++;
            near += is_near;
            told += got[j].error <= SPEED_ERROR_MAX ? 1 : 0;
            told_near += is_near && got[j].error <= SPEED_ERROR_MAX;
            if (!is_near)
                printf("%-28s of %u: %.3f +- %.3f, truly %.3f\n",
                       json_string_value(json_array_get(jobs, j)), k, got[j].value, got[j].error,
                       truth);
        }
    }
    json_decref(all);
    printf("%zu of %zu speeds within 0.05; of those told %zu of %zu\n", near, n, told_near, told);
    assert_true(lists[2] >= 15 && lists[3] >= 10);
    assert_true(100 * told >= 95 * n && 10 * told_near >= 9 * told);
}
