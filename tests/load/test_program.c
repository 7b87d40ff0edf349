/* cede-load as a program: arguments, exit status, messages, signals, both back ends on stand-ins
 * for what they talk to. Each run is a process of its own. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "child.h"
#include "lib/util.h"
#include "load/load.h"

static struct child result; /* the last run */

/* Runs cede-load on the words of a line. kill_after: SIGTERM once there is some output. */
static void run_killed(const char *line, bool kill_after)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "cede-load %s", line);
    child_start(&result, load_main, whole);
    if (kill_after) {
        child_await_output(&result);
        kill(result.pid, SIGTERM);
    }
    child_end(&result);
}

static void run(const char *line)
{
    run_killed(line, false);
}

static void fails(const char *line, int status, const char *text)
{
    run(line);
    if (!strstr(result.err, text))
        fail_msg("'%s' said: %s", line, result.err);
    assert_int_equal(result.status, status);
    assert_string_equal(result.out, "");
    assert_ptr_equal(strchr(result.err, '\n'), result.err + strlen(result.err) - 1); /* one line */
}

static void usage_errors(void **state)
{
    fails("", 2, "first argument must be latency, batch, models or calibrate");
    fails("lateny", 2, "unknown role lateny");
    fails("batch --sekonds 3", 2, "unknown argument --sekonds");
    fails("batch -- --seconds 3", 2, "unknown argument --:");
    fails("batch 3", 2, "unknown argument 3");
    fails("batch --work chess", 2, "--work chess: must be spin, blackscholes or euler");
    fails("batch --period-us 3", 2, "--period-us does not go with batch");
    fails("latency --depth 3", 2, "--depth does not go with latency");
    fails("latency --period-us 0 --open", 2, "leave out --period-us 0");
    fails("latency --launch-us 5 --gap-us 5", 2, "--launch-us goes without");
    fails("latency --launch-us 5 --device opencl", 2, "--launch-us does not work");
    fails("batch --host-us 5", 2, "add --burst");
    fails("batch --burst 5 --depth 5", 2, "leave out --depth");
    fails("batch --burst 5 --barrier x", 2, "--barrier and --ranks go together");
    fails("batch --burst 5 --ranks 2", 2, "--barrier and --ranks go together");
    fails("batch --burst 5 --ranks 1 --barrier x", 2, "--ranks 1: must be");
    fails("batch --burst 5 --ranks 2 --barrier a/b", 2, "--barrier a/b: must be a name");
    fails("calibrate --verify", 2, "--verify does not go with calibrate");
    fails("latency --requests", 2, "--requests needs a value");
    fails("latency --requests ten", 2, "--requests ten: must be a whole number");
    fails("latency --requests=0", 2, "from 1 to 1000000000");
    fails("latency --requests 1.5", 2, "--requests 1.5: must be a whole number");
    fails("batch --kernel-us nan", 2, "--kernel-us nan: must be a number");
    fails("batch --kernel-us 2e6", 2, "from 1 to 1000000");
    fails("batch --sm-fraction 1.01", 2, "to 1");
    fails("batch --depth 1025", 2, "from 1 to 1024");
    fails("batch --gpus 0,16", 2, "--gpus 0,16: must be at least two different numbers up to 15");
    fails("batch --gpus 1", 2, "--gpus 1: must be");
    fails("batch --gpus 0,0", 2, "--gpus 0,0: must be");
    fails("batch --gpus 0,,1", 2, "--gpus 0,,1: must be");
    fails("latency --gpus 0,1", 2, "--gpus does not go with latency");
    fails("batch --gpus 0,1 --device opencl", 2, "add --device soft");
    static const char *const uses[] = {"dram",      "dram=",         "dram=1.5",  "dram=-1",
                                       "dram=nan",  "sram=0.5",      "=0.5",      "dram=0,",
                                       ",dram=0.5", "dram=0,dram=1", "dram=0.5x", "dram 0.5",
                                       "DRAM=1",    "dram=1;fp32=1"};
    for (size_t i = 0; i < ARRAY_SIZE(uses); i++) {
        char line[64];
        snprintf(line, sizeof(line), "batch --device soft --uses=%s", uses[i]);
        fails(line, 2,
              "must be shares from 0 to 1, such as tensor16=0.6,dram=0.3, of int, tensor8");
    }
    fails("batch --uses", 2, "--uses needs a value");
    fails("calibrate --uses dram=1", 2, "--uses does not go with calibrate");
    fails("batch --uses dram=0 --device nvidia", 2, "--uses works on the software GPU only");
    fails("latency --arrivals often", 2, "must be periodic or poisson");
    fails("latency --arrivals poisson", 2, "goes with --open alone");
    fails("models --policy chance", 2, "must be fifo, priority, edf or laxity");
    fails("models --k 0", 2, "--k 0: must be a whole number");
    fails("models --work euler", 2, "--work does not go with models");
    fails("latency --load 20", 2, "--load does not go with latency");
    setenv("CEDE_LOAD_K", "many", 1);
    fails("models", 2, "CEDE_LOAD_K=many");
    unsetenv("CEDE_LOAD_K");
    fails("latency --verify=yes", 2, "--verify takes no value");
    fails("batch --device amd", 2, "--device amd: must be soft, nvidia, opencl or auto");
}

static void help(void **state)
{
    run("batch --help");
    assert_int_equal(result.status, 0);
    assert_non_null(strstr(result.out, "--period-us"));
    assert_non_null(strstr(result.out, "calibrate"));
}

static void soft(void **state)
{
    run("latency --device soft --period-us 100 --requests 50 --verify --contexts 3 --json");
    json_t *l = child_final(&result);
    assert_string_equal(json_string_value(json_object_get(l, "device")), "soft");
    assert_int_equal(json_number(l, "requests"), 50);
    assert_true(json_number(l, "p50_us") == 125 && json_number(l, "max_us") == 125);
    assert_true(json_is_true(json_object_get(l, "verified")));
    json_decref(l);

    run("latency --device=soft --period-us=100 --requests=5 --kernels=4");
    l = child_final(&result);
    assert_true(json_number(l, "p50_us") == 4 * 125); /* the stand-in has no pipeline */
    json_decref(l);

    run("batch --device soft --kernel-us 75 --seconds 0.01 --verify");
    l = child_final(&result);
    assert_true(json_number(l, "rate") > 0.74 && json_number(l, "rate") < 0.76);
    assert_true(json_number(l, "work_us") == 75 * json_number(l, "kernels"));
    json_decref(l);

    run("batch --device soft --memory 1000 --requests 5 --verify");
    run("batch --device soft --requests 5 --uses tensor16=1,dram=0.25,fp32=0");
    l = child_final(&result);
    assert_int_equal(json_number(l, "kernels"), 5);
    json_decref(l);
    fails("batch --device soft --requests 5 --uses tensor16=0.75", 1,
          "cannot say what is used of the parts of the software GPU");
    run("calibrate --device soft");
    l = child_final(&result);
    assert_true(json_number(l, "host_overhead_us") == 25);
    assert_true(json_number(l, "iterations_per_us") > 0);
    json_decref(l);
}

static void soft_faults(void **state)
{
    const char *short_run = "latency --device soft --period-us 100 --requests 20 --verify";
    fails("batch --device soft --gpu 7 --seconds 1", 1, "GPU 7 of the software GPU");
    fails("latency --device soft --copy-bytes 10 --requests 1", 1, "leave out --copy-bytes");
    fails("batch --device soft --memory 1001 --seconds 1", 1, "no room for --memory");
    setenv("FAKE_SOFT", "absent", 1);
    fails(short_run, 1, "no software GPU answers at /made-up/socket: start one with cede-softgpu");
    fails("batch --device soft --socket /x/y", 1, "at /x/y");
    setenv("FAKE_SOFT", "gone", 1);
    fails(short_run, 1, "its server has gone");
    static const struct {
        const char *fault, *text;
    } harm[] = {{"twice", "kernel 6 came out of order"}, {"short", "kernel 6 ended before"}};
    for (size_t i = 0; i < ARRAY_SIZE(harm); i++) {
        setenv("FAKE_SOFT", harm[i].fault, 1);
        run(short_run);
        assert_int_equal(result.status, 1);
        assert_non_null(strstr(result.err, harm[i].text));
        assert_non_null(strstr(result.out, "\"verified\":false"));
    }
    unsetenv("FAKE_SOFT");
}

static void nvidia(void **state)
{
    run("latency --device nvidia --requests 20 --period-us 1000 --kernels 2 --gap-us 100 "
        "--copy-bytes 5000 --memory 100001 --verify --contexts 2 --iterations-per-us 20");
    json_t *l = child_final(&result);
    assert_string_equal(json_string_value(json_object_get(l, "device")), "nvidia");
    assert_int_equal(json_number(l, "requests"), 20);
    assert_true(json_number(l, "p50_us") >= 300); /* what two kernels and a gap take at least */
    assert_true(json_number(l, "p50_us") <= json_number(l, "p99_us"));
    assert_true(json_is_true(json_object_get(l, "verified")));
    json_decref(l);

    run("batch --device nvidia --seconds 0.2 --kernel-us 100 --depth 30 --verify "
        "--iterations-per-us 20 --sm-fraction 0.5 --report 50");
    assert_non_null(strstr(result.out, "{\"t\":"));
    l = child_final(&result);
    assert_true(json_number(l, "kernels") > 0);
    assert_true(json_number(l, "rate") > 0 &&
                json_number(l, "rate") < 1.01); /* exact speed was given */
    assert_true(json_is_true(json_object_get(l, "verified")));
    json_decref(l);

    run("calibrate --device nvidia");
    l = child_final(&result);
    assert_true(json_number(l, "iterations_per_us") > 0);
    assert_true(json_number(l, "host_overhead_us") >= 0);
    json_decref(l);
}

static void nvidia_faults(void **state)
{
    const char *line = "latency --device nvidia --period-us 100 --requests 20 --verify "
                       "--iterations-per-us 20";
    static const struct {
        const char *fault, *text;
    } t[] = {
        {"no-gpu", "cannot initialise the NVIDIA driver (cuInit): CUDA_ERROR_NO_DEVICE, 100"},
        {"memory", "memory is taken: see nvidia-smi"},
        {"dead", "cannot wait for a kernel: unknown error, 719 (no text): a kernel died"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        setenv("FAKE_CUDA", t[i].fault, 1);
        fails(line, 1, t[i].text);
    }
    unsetenv("FAKE_CUDA");
    fails("latency --device nvidia --gpu 1", 1, "--gpu counts the visible ones from 0");
    fails("batch --device nvidia --kernel-us 1e6 --iterations-per-us 1e5", 1, "more than 2^32");
    setenv("FAKE_CUDA", "second-context", 1);
    fails("batch --device nvidia --contexts 2", 1, "cannot create a context");

    setenv("FAKE_CUDA", "skip", 1);
    run(line);
    assert_int_equal(result.status, 1);
    assert_non_null(strstr(result.err, "1024 of 1024 threads did not do exactly their work"));
    assert_non_null(strstr(result.out, "\"verified\":false"));
    setenv("FAKE_CUDA", "forget", 1);
    run("latency --device nvidia --period-us 100 --requests 2 --memory 4000 --verify "
        "--iterations-per-us 20");
    assert_int_equal(result.status, 1);
    assert_non_null(strstr(result.err, "3 of 1000 words of --memory are not as they were filled"));
    setenv("FAKE_CUDA", "copy", 1);
    run("latency --device nvidia --period-us 100 --requests 2 --copy-bytes 64 --verify "
        "--iterations-per-us 20");
    assert_int_equal(result.status, 1);
    assert_non_null(strstr(result.err, "a copy came back with other bytes"));
    unsetenv("FAKE_CUDA");
}

#define OPENCL " --device opencl --iterations-per-us 1 --kernel-us 10 --verify"

static void opencl(void **state)
{
    run("latency --requests 20 --period-us 50 --kernels 2 --copy-bytes 100 --contexts 2" OPENCL);
    json_t *l = child_final(&result);
    assert_string_equal(json_string_value(json_object_get(l, "device")), "opencl");
    assert_int_equal(json_number(l, "requests"), 20);
    assert_true(json_is_true(json_object_get(l, "verified")));
    json_decref(l);
    run("batch --requests 100 --depth 7" OPENCL);
    l = child_final(&result);
    assert_int_equal(json_number(l, "kernels"), 100);
    assert_true(json_is_true(json_object_get(l, "verified")));
    json_decref(l);
}

static void opencl_faults(void **state)
{
    static const struct {
        const char *fault, *text;
    } t[] = {
        {"no-platform",
         "cannot find an OpenCL platform: CL_PLATFORM_NOT_FOUND_KHR, -1001: install"},
        {"no-device", "no OpenCL device 0: 0 found"},
        {"second-context", "cannot create a context: CL_MEM_OBJECT_ALLOCATION_FAILURE"},
        {"queue", "cannot create a queue"},
        {"memory", "cannot allocate the state"},
        {"compiler", "first line of the log: cannot compile the kernel: CL_BUILD_PROGRAM_FAILURE"},
        {"launch", "cannot launch a kernel: CL_OUT_OF_RESOURCES, -5"},
        {"dead", "cannot run a kernel: CL_OUT_OF_RESOURCES, -5"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        setenv("FAKE_OPENCL", t[i].fault, 1);
        fails("batch --requests 20 --depth 2 --contexts 2" OPENCL, 1, t[i].text);
    }
    setenv("FAKE_OPENCL", "skip", 1);
    run("batch --requests 20" OPENCL);
    assert_int_equal(result.status, 1);
    assert_non_null(strstr(result.err, "1 of 1024 threads did not do exactly their work"));
    assert_non_null(strstr(result.out, "\"verified\":false"));
    setenv("FAKE_OPENCL", "copy", 1);
    run("latency --requests 5 --period-us 50 --copy-bytes 64" OPENCL);
    assert_int_equal(result.status, 1);
    assert_non_null(strstr(result.err, "a copy came back with other bytes"));

    setenv("FAKE_OPENCL", "hang", 1);
    run_killed("batch --report 10 --depth 3" OPENCL, true);
    json_t *l = child_final(&result);
    assert_int_equal(json_number(l, "kernels"), 4); /* 3 of the 7 that ended were for warming up */
    assert_true(json_is_null(json_object_get(l, "verified")));
    json_decref(l);
    unsetenv("FAKE_OPENCL");
}

/* SIGTERM ends a run without a limit, with the final object and status 0; also when the GPU does
 * not answer any more. */
static void stops_when_told(void **state)
{
    run_killed("batch --device nvidia --iterations-per-us 20 --report 10 --verify", true);
    json_t *l = child_final(&result);
    assert_string_equal(json_string_value(json_object_get(l, "role")), "batch");
    assert_true(json_is_true(json_object_get(l, "verified")));
    json_decref(l);

    setenv("FAKE_CUDA", "hang", 1);
    run_killed("batch --device nvidia --iterations-per-us 20 --report 10 --verify", true);
    l = child_final(&result);
    assert_int_equal(json_number(l, "kernels"), 7); /* 3 of the 10 that ran were for warming up */
    assert_true(json_is_null(json_object_get(l, "verified")));
    json_decref(l);
    unsetenv("FAKE_CUDA");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_errors),
        cmocka_unit_test(help),
        cmocka_unit_test(soft),
        cmocka_unit_test(soft_faults),
        cmocka_unit_test(nvidia),
        cmocka_unit_test(nvidia_faults),
        cmocka_unit_test(opencl),
        cmocka_unit_test(opencl_faults),
        cmocka_unit_test(stops_when_told),
    };
    unsetenv("FAKE_CUDA");
    unsetenv("FAKE_OPENCL");
    unsetenv("FAKE_SOFT");
    return cmocka_run_group_tests_name("load_program", tests, NULL, NULL);
}
