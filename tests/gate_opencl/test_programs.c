/* The layer without a daemon: programs with several implementations of OpenCL, several loaders and
 * several threads get what they would get without it. */
#include <dlfcn.h>
#include <malloc.h>

#include "../test.h"
#include "base/util.h"
#include "fake.h"

#define BUILDS  2000
#define OPTIONS 300000 /* bytes: what is so large is not there any more once it is freed */

static cl_icd_dispatch below;
static const cl_icd_dispatch *cl; /* as the program sees it */
static pfn_clInitLayer init;

static int set_up(void **state)
{
    cl_uint n;
    fake_begin(&below);
    void *library = dlopen(getenv("OPENCL_LAYER"), RTLD_NOW);
    init = library ? (pfn_clInitLayer)dlsym(library, "clInitLayer") : NULL;
    return init ? init(sizeof(below) / sizeof(void *), &below, &n, &cl) : -1;
}

/* Listed twice, the layer would call itself. */
TEST(listed_twice)
{
    const cl_icd_dispatch *again = NULL;
    cl_uint n;
    assert_int_not_equal(init(sizeof(*cl) / sizeof(void *), cl, &n, &again), CL_SUCCESS);
    assert_int_equal(cl->clFlush((cl_command_queue)0x1000), CL_SUCCESS);
    assert_ptr_equal(fake.flushed, (cl_command_queue)0x1000);
}

/* Each platform's function is called for its own objects. */
TEST(several_platforms)
{
    typedef cl_int(CL_API_CALL * enqueue)(cl_uint, cl_command_queue *, void *, cl_uint,
                                          const cl_event *, cl_event *);
    enqueue f[3];
    for (int i = 1; i <= 2; i++)
        f[i] = (enqueue)cl->clGetExtensionFunctionAddressForPlatform(FAKE_PLATFORM(i),
                                                                     "clEnqueueCommandBufferKHR");
    for (int i = 1; i <= 2; i++)
        assert_int_equal(f[i](0, NULL, NULL, 0, NULL, NULL), i);
}

/* GPUs that are steered from outside: their queues are made as they were asked for. */
TEST(nvidia_is_left_alone)
{
    static const cl_queue_properties asked[] = {CL_QUEUE_PROPERTIES, 0, 0x1096, 1, 0};
    cl_command_queue q = cl->clCreateCommandQueueWithProperties(NULL, FAKE_NVIDIA, asked, NULL);
    assert_memory_equal(fake.made, asked, sizeof(asked));
    cl_command_queue_properties flags = 0;
    assert_int_equal(cl->clGetCommandQueueInfo(q, CL_QUEUE_PROPERTIES, sizeof(flags), &flags, NULL),
                     0);
    assert_int_equal(flags, CL_QUEUE_PROFILING_ENABLE); /* as the device answers */
    cl->clReleaseCommandQueue(q);
}

/* Processors and NVIDIA's GPUs, which others share out: the gate is for those who ask. */
TEST(what_others_share_out)
{
    static const struct {
        cl_device_id device;
        const char *asks;
    } cases[] = {{FAKE_PROCESSOR, "CEDE_GATE_CPU"}, {FAKE_NVIDIA, "CEDE_GATE_NVIDIA"}};
    for (size_t i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
        if (i & 1)
            setenv(cases[i / 2].asks, "1", 1);
        cl_command_queue q =
            cl->clCreateCommandQueueWithProperties(NULL, cases[i / 2].device, NULL, NULL);
        assert_int_equal(fake.made[1], i & 1 ? CL_QUEUE_PROFILING_ENABLE : 0);
        cl->clReleaseCommandQueue(q);
        unsetenv(cases[i / 2].asks);
    }
}

static atomic_bool built;

static void *builds(void *p)
{
    char *options = malloc(OPTIONS + 1);
    for (size_t i = 0; i < OPTIONS; i++)
        options[i] = "-DA=1 "[i % 6];
    options[OPTIONS] = '\0';
    for (int i = 0; i < BUILDS; i++)
        cl->clBuildProgram(p, 0, NULL, options, NULL, NULL);
    free(options);
    atomic_store(&built, true);
    return NULL;
}

/* One thread builds a program while another makes kernels of it. */
TEST(builds_and_kernels)
{
    pthread_t t;
    cl_program p =
        cl->clCreateProgramWithSource(NULL, 1, (const char **)&fake_sources[0], NULL, NULL);
    assert_non_null(p);
    cl->clBuildProgram(p, 0, NULL, "", NULL, NULL);
    assert_int_equal(pthread_create(&t, NULL, builds, p), 0);
    while (!atomic_load(&built))
        assert_non_null(cl->clCreateKernel(p, "f", NULL));
    pthread_join(t, NULL);
}

int main(void)
{
    mallopt(M_MMAP_THRESHOLD, OPTIONS / 2);
    setenv("CEDE_GATE", "/nowhere", 1);
    return test_run(set_up, NULL);
}
