/* cede-load as a program: arguments, exit status, messages, signals, both back ends on stand-ins
 * for what they talk to. Each run is a process of its own. */
#include "../test.h"
#include "base/util.h"
#include "bench/load/load.h"
#include "child.h"

#include <signal.h>

static struct child result; /* the last run */

static void run(const char *line)
{
    child_load(&result, line);
}

/* SIGTERM once there is some output. */
static const json_t *run_killed(const char *line)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "cede-load %s", line);
    child_start(&result, load_main, whole);
    child_await_output(&result);
    kill(result.pid, SIGTERM);
    child_end(&result);
    return child_final(&result);
}

static void fails(const char *line, int status, const char *text)
{
    child_load_fails(&result, line, status, text);
}

static const json_t *verified_on(const char *device)
{
    const json_t *l = child_verified(&result);
    assert_string_equal(json_string_value(json_object_get(l, "device")), device);
    return l;
}

/* It ran to its end, and found that a result was wrong. */
static void harmed(const char *line, const char *text)
{
    run(line);
    assert_int_equal(result.status, 1);
    if (!strstr(result.err, text))
        fail_msg("'%s' said: %s", line, result.err);
    assert_non_null(strstr(result.out, "\"verified\":false"));
}

TEST(usage_errors)
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
    fails("batch --device amd", 2, "--device amd: must be soft, nvidia, hip, opencl or auto");
}

TEST(help)
{
    run("batch --help");
    assert_int_equal(result.status, 0);
    assert_non_null(strstr(result.out, "--period-us"));
    assert_non_null(strstr(result.out, "calibrate"));
}

TEST(soft)
{
    run("latency --device soft --period-us 100 --requests 50 --verify --contexts 3 --json");
    json_says(verified_on("soft"), "requests 50 p50_us 125 max_us 125");

    run("latency --device=soft --period-us=100 --requests=5 --kernels=4");
    json_says(child_final(&result), "p50_us 500"); /* 4 * 125: the stand-in has no pipeline */

    run("batch --device soft --kernel-us 75 --seconds 0.01 --verify");
    const json_t *l = child_final(&result);
    assert_true(json_number(l, "rate") > 0.74 && json_number(l, "rate") < 0.76);
    assert_true(json_number(l, "work_us") == 75 * json_number(l, "kernels"));

    run("batch --device soft --memory 1000 --requests 5 --verify");
    child_verified(&result);
    run("batch --device soft --requests 5 --uses tensor16=1,dram=0.25,fp32=0");
    json_says(child_final(&result), "kernels 5");
    run("calibrate --device soft");
    l = child_final(&result);
    json_says(l, "host_overhead_us 25");
    assert_true(json_number(l, "iterations_per_us") > 0);
}

TEST(nvidia)
{
    run("latency --device nvidia --requests 20 --period-us 1000 --kernels 2 --gap-us 100 "
        "--copy-bytes 5000 --memory 100001 --verify --contexts 2 --iterations-per-us 20");
    const json_t *l = verified_on("nvidia");
    json_says(l, "requests 20");
    assert_true(json_number(l, "p50_us") >= 300); /* what two kernels and a gap take at least */
    assert_true(json_number(l, "p50_us") <= json_number(l, "p99_us"));

    run("batch --device nvidia --seconds 0.2 --kernel-us 100 --depth 30 --verify "
        "--iterations-per-us 20 --sm-fraction 0.5 --report 50");
    assert_non_null(strstr(result.out, "{\"t\":"));
    l = verified_on("nvidia");
    assert_true(json_number(l, "kernels") > 0);
    double rate = json_number(l, "rate");
    assert_true(rate > 0 && rate < 1.01); /* exact speed was given */

    run("calibrate --device nvidia");
    l = child_final(&result);
    assert_true(json_number(l, "iterations_per_us") > 0);
    assert_true(json_number(l, "host_overhead_us") >= 0);
}

#define HIP " --device hip --iterations-per-us 20 --verify"

TEST(hip)
{
    run("latency --requests 20 --period-us 1000 --kernels 2 --gap-us 100 --copy-bytes 5000" HIP);
    json_says(verified_on("hip"), "requests 20");
    run("latency --requests 20 --period-us 100 --open --arrivals poisson" HIP);
    json_says(verified_on("hip"), "requests 20");
    run("batch --requests 100 --kernel-us 100 --depth 30 --sm-fraction 0.5" HIP);
    json_says(verified_on("hip"), "kernels 100");
    run("calibrate --device hip");
    assert_true(json_number(child_final(&result), "iterations_per_us") > 0);

    fails("batch --memory 4000" HIP, 1, "there is no --memory on HIP devices");
    fails("batch --contexts 2" HIP, 1, "there is no --contexts on HIP devices");
    setenv("FAKE_CUDA", "no-gpu", 1);
    fails("batch" HIP, 1,
          "cannot initialise the HIP runtime (hipInit): hipErrorNoDevice, 100 (made up): no GPU is "
          "visible: check rocminfo");
    setenv("FAKE_CUDA", "compiler", 1);
    fails("batch" HIP, 1, "first line: cannot compile a kernel: hiprtc reports 6: is ROCm's");
    setenv("FAKE_CUDA", "skip", 1);
    harmed("batch --requests 20" HIP, "1024 of 1024 threads did not do exactly their work");
    unsetenv("FAKE_CUDA");
}

#define OPENCL " --device opencl --iterations-per-us 1 --kernel-us 10 --verify"

TEST(opencl)
{
    run("latency --requests 20 --period-us 50 --kernels 2 --copy-bytes 100 --contexts 2" OPENCL);
    json_says(verified_on("opencl"), "requests 20");
    run("batch --requests 100 --depth 7" OPENCL);
    json_says(verified_on("opencl"), "kernels 100");
}

#define SOFT       "latency --device soft --period-us 100 --requests 20 --verify"
#define NVIDIA     "latency --device nvidia --period-us 100 --verify --iterations-per-us 20"
#define MANY       NVIDIA " --requests 20"
#define FEW_OPENCL "batch --requests 20 --depth 2 --contexts 2" OPENCL

/* What goes wrong, by the stand-ins' variables, and what is said of it. */
TEST(faults)
{
    static const struct {
        const char *variable, *fault, *line, *text;
        bool harmed; /* it runs to its end, with a wrong result */
    } rows[] = {
        {NULL, NULL, "batch --device soft --gpu 7 --seconds 1", "GPU 7 of the software GPU", false},
        {NULL, NULL, "latency --device soft --copy-bytes 10 --requests 1", "leave out --copy-bytes",
         false},
        {NULL, NULL, "batch --device soft --memory 1001 --seconds 1", "no room for --memory",
         false},
        {NULL, NULL, "batch --device soft --requests 5 --uses tensor16=0.75",
         "cannot say what is used of the parts of the software GPU", false},
        {"FAKE_SOFT", "absent", SOFT,
         "no software GPU answers at /made-up/socket: start one with cede-softgpu", false},
        {"FAKE_SOFT", "absent", "batch --device soft --socket /x/y", "at /x/y", false},
        {"FAKE_SOFT", "gone", SOFT, "its server has gone", false},
        {"FAKE_SOFT", "twice", SOFT, "kernel 6 came out of order", true},
        {"FAKE_SOFT", "short", SOFT, "kernel 6 ended before", true},
        {NULL, NULL, "latency --device nvidia --gpu 1", "--gpu counts the visible ones from 0",
         false},
        {NULL, NULL, "batch --device nvidia --kernel-us 1e6 --iterations-per-us 1e5",
         "more than 2^32", false},
        {"FAKE_CUDA", "no-gpu", MANY,
         "cannot initialise the NVIDIA driver (cuInit): CUDA_ERROR_NO_DEVICE, 100", false},
        {"FAKE_CUDA", "memory", MANY, "memory is taken: see nvidia-smi", false},
        {"FAKE_CUDA", "dead", MANY,
         "cannot wait for a kernel: unknown error, 719 (no text): a kernel died", false},
        {"FAKE_CUDA", "second-context", "batch --device nvidia --contexts 2",
         "cannot create a context", false},
        {"FAKE_CUDA", "skip", MANY, "1024 of 1024 threads did not do exactly their work", true},
        {"FAKE_CUDA", "forget", NVIDIA " --requests 2 --memory 4000",
         "3 of 1000 words of --memory are not as they were filled", true},
        {"FAKE_CUDA", "copy", NVIDIA " --requests 2 --copy-bytes 64",
         "a copy came back with other bytes", true},
        {"FAKE_OPENCL", "no-platform", FEW_OPENCL,
         "cannot find an OpenCL platform: CL_PLATFORM_NOT_FOUND_KHR, -1001: install", false},
        {"FAKE_OPENCL", "no-device", FEW_OPENCL, "no OpenCL device 0: 0 found", false},
        {"FAKE_OPENCL", "second-context", FEW_OPENCL,
         "cannot create a context: CL_MEM_OBJECT_ALLOCATION_FAILURE", false},
        {"FAKE_OPENCL", "queue", FEW_OPENCL, "cannot create a queue", false},
        {"FAKE_OPENCL", "memory", FEW_OPENCL, "cannot allocate the state", false},
        {"FAKE_OPENCL", "compiler", FEW_OPENCL,
         "first line of the log: cannot compile the kernel: CL_BUILD_PROGRAM_FAILURE", false},
        {"FAKE_OPENCL", "launch", FEW_OPENCL, "cannot launch a kernel: CL_OUT_OF_RESOURCES, -5",
         false},
        {"FAKE_OPENCL", "dead", FEW_OPENCL, "cannot run a kernel: CL_OUT_OF_RESOURCES, -5", false},
        {"FAKE_OPENCL", "skip", "batch --requests 20" OPENCL,
         "1 of 1024 threads did not do exactly their work", true},
        {"FAKE_OPENCL", "copy", "latency --requests 5 --period-us 50 --copy-bytes 64" OPENCL,
         "a copy came back with other bytes", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (rows[i].variable)
            setenv(rows[i].variable, rows[i].fault, 1);
        if (rows[i].harmed)
            harmed(rows[i].line, rows[i].text);
        else
            fails(rows[i].line, 1, rows[i].text);
        if (rows[i].variable)
            unsetenv(rows[i].variable);
    }
}

/* SIGTERM ends a run without a limit, with the final object and status 0; also when the GPU does
 * not answer any more. */
TEST(stops_when_told)
{
    const json_t *l =
        run_killed("batch --device nvidia --iterations-per-us 20 --report 10 --verify");
    assert_true(json_is_true(json_object_get(l, "verified")));
    assert_string_equal(json_string_value(json_object_get(l, "role")), "batch");

    setenv("FAKE_CUDA", "hang", 1);
    l = run_killed("batch --device nvidia --iterations-per-us 20 --report 10 --verify");
    json_says(l, "kernels 7"); /* 3 of the 10 that ran were for warming up */
    assert_true(json_is_null(json_object_get(l, "verified")));

    setenv("FAKE_OPENCL", "hang", 1);
    l = run_killed("batch --report 10 --depth 3" OPENCL);
    json_says(l, "kernels 4"); /* 3 of the 7 that ended were for warming up */
    assert_true(json_is_null(json_object_get(l, "verified")));
}

int main(void)
{
    unsetenv("FAKE_CUDA");
    unsetenv("FAKE_OPENCL");
    unsetenv("FAKE_SOFT");
    return test_run(NULL, NULL);
}
