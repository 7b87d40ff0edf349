/* A stand-in for libOpenCL.so.1, so that what can go wrong on a device is seen in cede-load: one
 * device that does the kernel's arithmetic when it is launched, which ends at once. Knows just
 * the calls that cede-load makes. FAKE_OPENCL in the environment says what shall go wrong. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/load/kernels.h"
#include "bench/load/opencl.h"

#define CALL(type, name, ...)                                                                      \
    type name(__VA_ARGS__);                                                                        \
    type name(__VA_ARGS__)

enum { FAILED = -5, NO_MEMORY = -4, NO_DEVICE = -1, NO_PLATFORM = -1001 };

struct cl_buf {
    unsigned char *bytes;
    uint64_t copies; /* into it */
};

static struct {
    cl_buffer state;
    uint32_t iterations;
    uint64_t launches;
    _Atomic int objects; /* that were not released */
} gpu;

static bool fault(const char *what)
{
    const char *s = getenv("FAKE_OPENCL");
    return s && strcmp(s, what) == 0;
}

static void *object(cl_code *code, bool failed)
{
    static int any;
    *code = failed ? NO_MEMORY : 0;
    gpu.objects += !failed;
    return failed ? NULL : &any;
}

/* Its address is the number of the kernel. */
static cl_event_handle event(void)
{
    gpu.objects++;
    return (cl_event_handle)(uintptr_t)gpu.launches;
}

static cl_code released(void)
{
    return --gpu.objects < 0 ? FAILED : 0;
}

CALL(cl_code, clGetPlatformIDs, uint32_t max, cl_platform *v, uint32_t *n)
{
    *n = 1;
    *v = NULL;
    return fault("no-platform") ? NO_PLATFORM : 0;
}

CALL(cl_code, clGetDeviceIDs, cl_platform p, uint64_t types, uint32_t max, cl_device *v,
     uint32_t *n)
{
    *n = 1;
    *v = NULL;
    return fault("no-device") ? NO_DEVICE : 0;
}

static cl_code info(const char *text, size_t size, void *v)
{
    strncpy(v, text, size);
    return 0;
}

CALL(cl_code, clGetPlatformInfo, cl_platform p, uint32_t what, size_t size, void *v, size_t *used)
{
    return info("made up", size, v);
}

CALL(cl_code, clGetDeviceInfo, cl_device d, uint32_t what, size_t size, void *v, size_t *used)
{
    const uint32_t units = 1;
    if (what == CL_DEVICE_MAX_COMPUTE_UNITS)
        memcpy(v, &units, sizeof(units));
    return what == CL_DEVICE_MAX_COMPUTE_UNITS ? 0 : info("device", size, v);
}

CALL(cl_ctx_handle, clCreateContext, const intptr_t *properties, uint32_t n, const cl_device *v,
     void (*notify)(const char *, const void *, size_t, void *), void *arg, cl_code *code)
{
    return object(code, fault("second-context") && gpu.objects == 1);
}

CALL(cl_queue, clCreateCommandQueue, cl_ctx_handle c, cl_device d, uint64_t properties,
     cl_code *code)
{
    return object(code, fault("queue"));
}

CALL(cl_program_handle, clCreateProgramWithSource, cl_ctx_handle c, uint32_t n, const char **texts,
     const size_t *sizes, cl_code *code)
{
    return object(code, n != 1 || sizes || !strstr(*texts, "__kernel void cede_spin("));
}

CALL(cl_code, clBuildProgram, cl_program_handle p, uint32_t n, const cl_device *v,
     const char *options, void (*notify)(cl_program_handle, void *), void *arg)
{
    return fault("compiler") ? -11 : 0;
}

CALL(cl_code, clGetProgramBuildInfo, cl_program_handle p, cl_device d, uint32_t what, size_t size,
     void *v, size_t *used)
{
    return info("first line of the log\nsecond", size, v);
}

CALL(cl_kernel_handle, clCreateKernel, cl_program_handle p, const char *name, cl_code *code)
{
    return object(code, strcmp(name, "cede_spin") != 0);
}

CALL(cl_code, clSetKernelArg, cl_kernel_handle k, uint32_t i, size_t size, const void *v)
{
    memcpy(i ? (void *)&gpu.iterations : (void *)&gpu.state, v, size);
    return 0;
}

CALL(cl_buffer, clCreateBuffer, cl_ctx_handle c, uint64_t flags, size_t size, void *host,
     cl_code *code)
{
    cl_buffer b = object(code, fault("memory")) ? calloc(1, sizeof(*b)) : NULL;
    if (b)
        b->bytes = calloc(1, size);
    return b;
}

CALL(cl_code, clReleaseMemObject, cl_buffer b)
{
    free(b->bytes);
    free(b);
    return released();
}

CALL(cl_code, clEnqueueWriteBuffer, cl_queue q, cl_buffer b, uint32_t blocking, size_t at,
     size_t size, const void *from, uint32_t nwait, const cl_event_handle *wait, cl_event_handle *e)
{
    memcpy(b->bytes + at, from, size);
    if (++b->copies == 2 && fault("copy"))
        b->bytes[at]++;
    return 0;
}

CALL(cl_code, clEnqueueReadBuffer, cl_queue q, cl_buffer b, uint32_t blocking, size_t at,
     size_t size, void *to, uint32_t nwait, const cl_event_handle *wait, cl_event_handle *e)
{
    memcpy(to, b->bytes + at, size);
    if (e)
        *e = event();
    return 0;
}

CALL(cl_code, clEnqueueNDRangeKernel, cl_queue q, cl_kernel_handle k, uint32_t dimensions,
     const size_t *offset, const size_t *global, const size_t *local, uint32_t nwait,
     const cl_event_handle *wait, cl_event_handle *e)
{
    uint32_t *state = (uint32_t *)(void *)gpu.state->bytes;
    size_t n = *global;
    gpu.launches++;
    if (gpu.launches == 8 && fault("skip"))
        n--; /* the last work item */
    if (gpu.launches == 8 && fault("launch"))
        return FAILED;
    for (size_t i = 0; i < n; i++) {
        for (uint32_t k2 = 0; k2 < gpu.iterations; k2++)
            state[i] = state[i] * SPIN_MUL + SPIN_ADD;
    }
    if (e)
        *e = event();
    return 0;
}

CALL(cl_code, clWaitForEvents, uint32_t n, const cl_event_handle *v)
{
    while ((uintptr_t)*v >= 8 && fault("hang"))
        pause();
    return (uintptr_t)*v == 8 && fault("dead") ? FAILED : 0;
}

#define ENDS_WELL(name, type)                                                                      \
    CALL(cl_code, name, type object)                                                               \
    {                                                                                              \
        return 0;                                                                                  \
    }
#define RELEASES(name, type)                                                                       \
    CALL(cl_code, name, type object)                                                               \
    {                                                                                              \
        return released();                                                                         \
    }

ENDS_WELL(clFlush, cl_queue)
ENDS_WELL(clFinish, cl_queue)
RELEASES(clReleaseEvent, cl_event_handle)
RELEASES(clReleaseKernel, cl_kernel_handle)
RELEASES(clReleaseProgram, cl_program_handle)
RELEASES(clReleaseCommandQueue, cl_queue)

/* The last thing that goes: by then everything else must have gone. */
CALL(cl_code, clReleaseContext, cl_ctx_handle c)
{
    cl_code code = released();
    if (gpu.objects > 1) /* at most one more context */
        abort();
    return code;
}
