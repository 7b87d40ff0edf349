/* cede-load on whatever OpenCL device is there (PoCL in CI); skips with status 77 without one.
 * Each run is a process of its own. Only counts, orders and results are looked at, never a time. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "child.h"
#include "lib/util.h"
#include "load/load.h"

static struct child result;

static void run(const char *line)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "cede-load %s --device opencl --iterations-per-us 1", line);
    child_start(&result, load_main, whole);
    child_end(&result);
}

/* The final object of a run that did all its work right. */
static json_t *good(const char *line)
{
    run(line);
    json_t *l = child_final(&result);
    assert_string_equal(json_string_value(json_object_get(l, "device")), "opencl");
    assert_true(json_is_true(json_object_get(l, "verified")));
    return l;
}

static void fails(const char *line, const char *text)
{
    run(line);
    if (!strstr(result.err, text))
        fail_msg("'%s' said: %s", line, result.err);
    assert_int_equal(result.status, 1);
    assert_string_equal(result.out, "");
}

static void latency(void **state)
{
    json_t *l = good("latency --requests 20 --period-us 2000 --kernel-us 50 --verify --contexts 2");
    static const char *const rising[] = {"p50_us", "p90_us", "p99_us", "p999_us", "max_us"};
    assert_int_equal(json_number(l, "requests"), 20);
    assert_true(json_number(l, rising[0]) > 0);
    for (size_t i = 1; i < ARRAY_SIZE(rising); i++)
        assert_true(json_number(l, rising[i]) >= json_number(l, rising[i - 1]));
    json_decref(l);

    l = good("latency --requests 20 --period-us 100 --kernel-us 50 --verify --open --kernels 3");
    assert_int_equal(json_number(l, "requests"), 20);
    json_decref(l);
    l = good("latency --requests 5 --period-us 100 --gap-us 10 --kernels 3 --copy-bytes 5001 "
             "--verify");
    assert_int_equal(json_number(l, "requests"), 5);
    json_decref(l);
}

static void batch(void **state)
{
    json_t *l = good("batch --requests 200 --kernel-us 20 --verify --report 1");
    assert_int_equal(json_number(l, "kernels"), 200);
    assert_true(json_number(l, "work_us") == 200 * 20);
    assert_true(json_number(l, "rate") > 0);
    json_decref(l);
    l = good("batch --seconds 0.05 --kernel-us 20 --verify --depth 3");
    assert_true(json_number(l, "kernels") > 0);
    json_decref(l);
}

/* The same kernels in any number in flight, and in another role, leave the same bits. */
static void same_bits(void **state)
{
    static const char *const lines[] = {
        "batch --requests 24 --kernel-us 30 --verify --depth 1",
        "batch --requests 24 --kernel-us 30 --verify --depth 24",
        "latency --requests 6 --kernels 4 --kernel-us 30 --period-us 10 --verify",
        "batch --requests 25 --kernel-us 30 --verify",
    };
    char first[20] = "";
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        json_t *l = good(lines[i]);
        const char *digest = json_string_value(json_object_get(l, "digest"));
        assert_non_null(digest);
        if (i == 0)
            snprintf(first, sizeof(first), "%s", digest);
        assert_int_equal(strcmp(first, digest) == 0, i < 3);
        json_decref(l);
    }
}

static void calibrate(void **state)
{
    child_start(&result, load_main, "cede-load calibrate --device opencl");
    child_end(&result);
    json_t *l = child_final(&result);
    assert_true(json_number(l, "iterations_per_us") > 0);
    assert_true(json_number(l, "host_overhead_us") >= 0);
    json_decref(l);
}

static void stops_when_told(void **state)
{
    child_start(&result, load_main,
                "cede-load batch --device opencl --iterations-per-us 1 --report 5 --verify");
    child_await_output(&result);
    kill(result.pid, SIGTERM);
    child_end(&result);
    json_t *l = child_final(&result);
    assert_true(json_is_true(json_object_get(l, "verified")));
    json_decref(l);
}

static void refusals(void **state)
{
    fails("batch --seconds 1 --memory 4096", "there is no --memory on OpenCL devices");
    fails("batch --seconds 1 --work euler", "there is no --work on OpenCL devices");
    fails("batch --seconds 1 --sm-fraction 0.5", "there is no --sm-fraction on OpenCL devices");
    fails("batch --seconds 1 --gpu 1000", "no OpenCL device 1000: ");
    setenv("CEDE_OPENCL_DEVICE", "no such name", 1);
    fails("batch --seconds 1", "no OpenCL device 0 of no such name: 0 found");
    setenv("CEDE_OPENCL_DEVICE", "", 1);
    json_decref(good("batch --requests 1 --verify"));
    unsetenv("CEDE_OPENCL_DEVICE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latency),   cmocka_unit_test(batch),    cmocka_unit_test(same_bits),
        cmocka_unit_test(calibrate), cmocka_unit_test(refusals), cmocka_unit_test(stops_when_told),
    };
    run("batch --requests 1");
    if (strstr(result.err, "cannot open the OpenCL loader") ||
        strstr(result.err, "cannot find an OpenCL platform")) {
        fputs(result.err, stderr);
        return 77;
    }
    return cmocka_run_group_tests_name("load_opencl", tests, NULL, NULL);
}
