/* Profiles of programs: from tables of Nsight Compute in both of its forms, and kept in files. */
#include "profile/profile.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define FIXED                                                                                      \
    "\"ID\",\"Process ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\","

static const char raw[] =
    "==PROF== Connected to process 4242\n"
    "what the program prints, \"quoted\"\n" FIXED
    "\"device__attribute_l2_cache_size\",\"device__attribute_multiprocessor_count\","
    "\"dram__bytes.sum.per_second\",\"dram__throughput.avg.pct_of_peak_sustained_elapsed\","
    "\"gpu__time_duration.sum\",\"l1tex__t_sector_hit_rate.pct\",\"launch__block_size\","
    "\"launch__grid_size\",\"launch__registers_per_thread\",\"launch__shared_mem_per_block\","
    "\"lts__t_bytes.sum.per_second\",\"lts__t_sector_hit_rate.pct\","
    "\"smsp__issue_active.avg.pct_of_peak_sustained_active\","
    "\"sm__inst_issued.avg.per_cycle_active\"\n"
    "\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"Tbyte/second\",\"%\",\"us\",\"%\",\"\",\"\","
    "\"register/thread\",\"Kbyte/block\",\"Tbyte/second\",\"%\",\"%\",\"inst/cycle\"\n"
    "\"0\",\"4242\",\"copy(float *, int)\",\"(1024, 1, 1)\",\"(132, 1, 1)\",\"0\",\"9.0\","
    "\"52,428,800\",\"132\",\"2\",\"50.0\",\"1,200\",\"0\",\"1,024\",\"132\",\"32\",\"1.02\","
    "\"3\",\"25\",\"15\",\"0.6\"\n"
    "\"1\",\"4242\",\"mul<(int)4>(\"\"x\"\")\",\"(256, 1, 1)\",\"(132, 1, 1)\",\"0\",\"9.0\","
    "\"52,428,800\",\"132\",\"0\",\"n/a\",\"600.5\",\"0\",\"256\",\"132\",\"40\",\"0\",\"0\",\"0\","
    "\"90\",\"4\"\n"
    "\"2\",\"4242\",\"copy(float *, int)\",\"(1024, 1, 1)\",\"(132, 1, 1)\",\"0\",\"9.0\","
    "\"52,428,800\",\"132\",\"2\",\"60.0\",\"1,400\",\"0\",\"1,024\",\"132\",\"32\",\"1.02\","
    "\"3\",\"25\",\"15\",\"0.6\"\n";

#define DETAIL(id, name, unit, value)                                                              \
    "\"" id "\",\"7\",\"gemm\",\"(128, 1, 1)\",\"(128, 1, 1)\",\"0\",\"9.0\",\"Section\",\"" name  \
    "\",\"" unit "\",\"" value "\"\n"
static const char details[] =
    FIXED "\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\r\n" DETAIL(
        "0", "gpu__time_duration.sum", "msecond", "1.5") DETAIL("0", "launch__grid_size", "", "128")
        DETAIL("0", "launch__block_size", "", "128") DETAIL("0", "somebody_elses_metric", "%", "99")
            DETAIL("0", "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active", "%", "60")
                DETAIL("0", "device__attribute_multiprocessor_count", "", "132")
                    DETAIL("1", "gpu__time_duration.sum", "nsecond", "500,000")
                        DETAIL("1", "launch__grid_size", "", "128")
                            DETAIL("1", "launch__block_size", "", "128") DETAIL(
                                "1", "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
                                "%", "20");

static int read_text(const char *text, struct profile *p, struct error *err)
{
    FILE *f = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    int r = profile_from_ncu(f, "table.csv", p, err);
    fclose(f);
    return r;
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-6 * fmax(1, fabs(b));
}

static void test_raw(void **state)
{
    (void)state;
    struct profile p;
    struct error err = {""};
    assert_int_equal(read_text(raw, &p, &err), 0);
    assert_int_equal(p.n, 2);
    assert_int_equal(p.gpu.sms, 132);
    assert_int_equal(p.gpu.l2_bytes, 52428800);
    assert_int_equal(p.gpu.sm_threads, 2048); /* by compute capability 9.0 */
    assert_int_equal(p.gpu.sm_l1_bytes, 262144);
    const struct kernel_profile *copy = &p.uses[0], *mul = &p.uses[1];
    assert_string_equal(p.kernels[0].name, "copy(float *, int)");
    assert_string_equal(p.kernels[1].name, "mul<(int)4>(\"x\")");
    assert_int_equal(p.kernels[0].calls, 2);
    assert_true(near(copy->us, 1300) && near(mul->us, 600.5));
    assert_true(near(copy->share, 2600 / 3200.5) && near(mul->share, 600.5 / 3200.5));
    assert_int_equal(copy->blocks, 132);
    assert_int_equal(copy->threads, 1024);
    assert_int_equal(copy->registers, 32);
    assert_int_equal(copy->shared_bytes, 1020);
    assert_true(near(copy->use[RESOURCE_DRAM], 0.55) && near(copy->use[RESOURCE_L2], 0.825));
    assert_true(near(copy->use[RESOURCE_ISSUE], 0.15) && near(copy->l2_hit, 0.25));
    assert_true(near(mul->use[RESOURCE_ISSUE], 1)); /* the larger of two figures for it */
    assert_true(near(mul->use[RESOURCE_DRAM], 0));  /* is no number */
    profile_free(&p);
}

static void test_details(void **state)
{
    (void)state;
    struct profile p;
    struct error err = {""};
    assert_int_equal(read_text(details, &p, &err), 0);
    assert_int_equal(p.n, 1);
    assert_int_equal(p.kernels[0].calls, 2);
    assert_true(near(p.uses[0].us, 1000) && near(p.uses[0].share, 1));
    assert_true(near(p.uses[0].use[RESOURCE_FP32], 0.4));
    profile_free(&p);
}

static void expect_refused(const char *text, int code, const char *why)
{
    struct profile p;
    struct error err = {""};
    assert_int_equal(read_text(text, &p, &err), code);
    if (!strstr(err.text, why))
        fail_msg("'%s' is not about '%s'", err.text, why);
    assert_null(p.kernels);
}

static void test_refused(void **state)
{
    (void)state;
    expect_refused("nothing\n", -EINVAL, "no table");
    expect_refused("\"ID\",\"Time\"\n", -EINVAL, "no column 'Kernel Name'");
    expect_refused(FIXED "\"gpu__time_duration.sum\"\n", -EINVAL, "no kernels");
    expect_refused(FIXED
                   "\"gpu__time_duration.sum\"\n\"0\",\"1\",\"k\",\"\",\"\",\"0\",\"9.0\",\"5\"\n",
                   -EINVAL, "'k' has no gpu__time_duration.sum, launch__grid_size");
    expect_refused(DETAIL("ID", "", "", ""), -EINVAL, "no column");
    expect_refused(FIXED "\"gpu__time_duration.sum\",\"launch__grid_size\",\"launch__block_size\"\n"
                         "\"0\",\"1\",\"k\",\"\",\"\",\"0\",\"9.0\",\"5\",\"1\",\"32\"\n",
                   -ENODEV, "device__attribute_multiprocessor_count");
    expect_refused(FIXED "\"gpu__time_duration.sum\",\"launch__grid_size\",\"launch__block_size\"\n"
                         "\"0\",\"1\",\"k\",\"\",\"\",\"0\",\"9.0\",\"-5\",\"1\",\"32\"\n",
                   -EINVAL, "has no gpu__time");
}

static void test_files(void **state)
{
    (void)state;
    char dir[] = "/tmp/cede-test-XXXXXX", path[64], bad[64];
    struct profile p, q;
    struct error err = {""};
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/p.json", dir);
    snprintf(bad, sizeof(bad), "%s/none/p.json", dir);
    assert_int_equal(read_text(raw, &p, &err), 0);
    snprintf(p.name, sizeof(p.name), "train");
    assert_int_equal(profile_save(&p, bad, &err), -ENOENT);
    assert_int_equal(profile_save(&p, path, &err), 0);
    assert_int_equal(profile_load(path, &q, &err), 0);
    assert_string_equal(q.name, "train");
    assert_int_equal(q.n, p.n);
    assert_memory_equal(&q.gpu, &p.gpu, sizeof(p.gpu));
    for (uint32_t i = 0; i < p.n; i++) {
        assert_string_equal(q.kernels[i].name, p.kernels[i].name);
        assert_int_equal(q.kernels[i].calls, p.kernels[i].calls);
        assert_true(fabs(q.uses[i].us - p.uses[i].us) < 1e-3);
        assert_true(fabs(q.uses[i].share - p.uses[i].share) < 1e-4);
        for (int r = 0; r < RESOURCE_COUNT; r++)
            assert_true(fabs(q.uses[i].use[r] - p.uses[i].use[r]) < 1e-4);
    }
    profile_free(&p);
    profile_free(&q);
    assert_int_equal(profile_load(bad, &q, &err), -ENOENT);
    static const char *const damaged[] = {
        "{",
        "[]",
        "{\"gpu\": {\"sms\": 1}}",
        "{\"gpu\": {\"sms\": 1, \"sm_threads\": 1, \"sm_blocks\": 1}, \"kernels\": [{}]}",
        "{\"gpu\": {\"sms\": 1, \"sm_threads\": 1, \"sm_blocks\": 1}, \"kernels\": [{\"name\": "
        "\"k\", "
        "\"calls\": 1, \"us\": 1, \"blocks\": 1, \"threads\": -1}]}",
        "{\"gpu\": {\"sms\": -1, \"sm_threads\": 1, \"sm_blocks\": 1}, \"kernels\": []}"};
    for (size_t i = 0; i < ARRAY_SIZE(damaged); i++) {
        FILE *f = fopen(path, "w");
        fputs(damaged[i], f);
        fclose(f);
        assert_int_equal(profile_load(path, &q, &err), -EINVAL);
        assert_null(q.kernels);
    }
    unlink(path);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_raw), cmocka_unit_test(test_details),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
