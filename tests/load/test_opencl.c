/* cede-load on whatever OpenCL device is there (PoCL in CI); skips with status 77 without one.
 * Each run is a process of its own. Only counts, orders and results are looked at, never a time. */
#include "../test.h"
#include "base/util.h"
#include "bench/load/load.h"
#include "child.h"

#include <signal.h>

static struct child result;

#define OPENCL " --device opencl --iterations-per-us 1"

/* The final object of a run that did all its work right. */
static const json_t *good(const char *line)
{
    child_load(&result, line);
    const json_t *l = child_verified(&result);
    assert_string_equal(json_string_value(json_object_get(l, "device")), "opencl");
    return l;
}

static void fails(const char *line, const char *text)
{
    child_load_fails(&result, line, 1, text);
}

TEST(latency)
{
    const json_t *l =
        good("latency --requests 20 --period-us 2000 --kernel-us 50 --verify --contexts 2" OPENCL);
    static const char *const rising[] = {"p50_us", "p90_us", "p99_us", "p999_us", "max_us"};
    assert_int_equal(json_number(l, "requests"), 20);
    assert_true(json_number(l, rising[0]) > 0);
    for (size_t i = 1; i < ARRAY_SIZE(rising); i++)
        assert_true(json_number(l, rising[i]) >= json_number(l, rising[i - 1]));

    l = good("latency --requests 20 --period-us 100 --kernel-us 50 --verify --open "
             "--kernels 3" OPENCL);
    json_says(l, "requests 20");
    l = good("latency --requests 5 --period-us 100 --gap-us 10 --kernels 3 --copy-bytes 5001 "
             "--verify" OPENCL);
    json_says(l, "requests 5");
}

TEST(batch)
{
    const json_t *l = good("batch --requests 200 --kernel-us 20 --verify --report 1" OPENCL);
    json_says(l, "kernels 200 work_us 4000");
    assert_true(json_number(l, "rate") > 0);
    l = good("batch --seconds 0.05 --kernel-us 20 --verify --depth 3" OPENCL);
    assert_true(json_number(l, "kernels") > 0);
}

/* The same kernels in any number in flight, and in another role, leave the same bits. */
TEST(same_bits)
{
    static const char *const lines[] = {
        "batch --requests 24 --kernel-us 30 --verify --depth 1" OPENCL,
        "batch --requests 24 --kernel-us 30 --verify --depth 24" OPENCL,
        "latency --requests 6 --kernels 4 --kernel-us 30 --period-us 10 --verify" OPENCL,
        "batch --requests 25 --kernel-us 30 --verify" OPENCL,
    };
    char first[20] = "";
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        const json_t *l = good(lines[i]);
        const char *digest = json_string_value(json_object_get(l, "digest"));
        assert_non_null(digest);
        if (i == 0)
            snprintf(first, sizeof(first), "%s", digest);
        assert_int_equal(strcmp(first, digest) == 0, i < 3);
    }
}

TEST(calibrate)
{
    child_load(&result, "calibrate --device opencl");
    const json_t *l = child_final(&result);
    assert_true(json_number(l, "iterations_per_us") > 0);
    assert_true(json_number(l, "host_overhead_us") >= 0);
}

TEST(stops_when_told)
{
    child_start(&result, load_main, "cede-load batch --report 5 --verify" OPENCL);
    child_await_output(&result);
    kill(result.pid, SIGTERM);
    child_end(&result);
    child_verified(&result);
}

TEST(refusals)
{
    fails("batch --seconds 1 --memory 4096" OPENCL, "there is no --memory on OpenCL devices");
    fails("batch --seconds 1 --work euler" OPENCL, "there is no --work on OpenCL devices");
    fails("batch --seconds 1 --sm-fraction 0.5" OPENCL,
          "there is no --sm-fraction on OpenCL devices");
    fails("batch --seconds 1 --gpu 1000" OPENCL, "no OpenCL device 1000: ");
    setenv("CEDE_OPENCL_DEVICE", "no such name", 1);
    fails("batch --seconds 1" OPENCL, "no OpenCL device 0 of no such name: 0 found");
    setenv("CEDE_OPENCL_DEVICE", "", 1);
    good("batch --requests 1 --verify" OPENCL);
    unsetenv("CEDE_OPENCL_DEVICE");
}

int main(void)
{
    child_load(&result, "batch --requests 1" OPENCL);
    if (strstr(result.err, "cannot open the OpenCL loader") ||
        strstr(result.err, "cannot find an OpenCL platform")) {
        fputs(result.err, stderr);
        return 77;
    }
    return test_run(NULL, NULL);
}
