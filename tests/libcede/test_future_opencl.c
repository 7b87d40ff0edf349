/* The future map's kernels compiled as OpenCL, on any OpenCL device (PoCL), against the same text
 * compiled for the host: random blocks, types, strides and places.
 *
 * usage: test_future_opencl FUTURE_KERNELS_H    exit status 77: there is no OpenCL device */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../random.h"
#include "libcede/future_kernels.h"

#define SLOTS   64U
#define THREADS 80U
#define WORDS   512U /* of an array, 32 bits each */

#define OK(call)                                                                                   \
    do {                                                                                           \
        cl_int ok_ = (call);                                                                       \
        if (ok_ != CL_SUCCESS) {                                                                   \
            printf("%s: %d\n", #call, ok_);                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* What a call makes that sets r. */
#define MADE(call)                                                                                 \
    ({                                                                                             \
        cl_int r;                                                                                  \
        __auto_type made_ = call;                                                                  \
        OK(r);                                                                                     \
        made_;                                                                                     \
    })

static cl_context context;
static cl_command_queue queue;
static cl_kernel place, store, resolve;

static const char kernels[] =
    "__kernel void cede_future_place(__global uint *place, uint tag, uint n)"
    "{future_place(place, tag, n);}"
    "__kernel void cede_future_store(__global struct future_slot *slots, uint mask,"
    " __global const uint *place, uint tag, uint n, __global const char *values, long stride,"
    " uint bytes)"
    "{future_store(get_global_id(0), slots, mask, place, tag, n, values, stride, bytes);}"
    "__kernel void cede_future_resolve(__global const struct future_slot *slots, uint mask,"
    " __global uint *missing, uint n, __global char *inputs, long stride, uint bytes)"
    "{future_resolve(get_global_id(0), slots, mask, missing, n, inputs, stride, bytes);}";

static void begin(const char *path)
{
    static char text[16384];
    const char *source[] = {text, kernels};
    cl_platform_id platform;
    cl_device_id device;
    FILE *f = fopen(path, "r");
    if (!f || fread(text, 1, sizeof(text) - 1, f) == 0 || !feof(f)) {
        printf("cannot read %s\n", path);
        exit(1);
    }
    fclose(f);
    if (clGetPlatformIDs(1, &platform, NULL) != CL_SUCCESS ||
        clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL) != CL_SUCCESS)
        exit(77);
    context = MADE(clCreateContext(NULL, 1, &device, NULL, NULL, &r));
    queue = MADE(clCreateCommandQueue(context, device, 0, &r));
    cl_program p = MADE(clCreateProgramWithSource(context, 2, source, NULL, &r));
    OK(clBuildProgram(p, 1, &device, "-cl-std=CL1.2", NULL, NULL));
    place = MADE(clCreateKernel(p, "cede_future_place", &r));
    store = MADE(clCreateKernel(p, "cede_future_store", &r));
    resolve = MADE(clCreateKernel(p, "cede_future_resolve", &r));
    OK(clReleaseProgram(p));
}

static cl_mem buffer(size_t bytes)
{
    return MADE(clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &r));
}

/* The arguments of a kernel; of one that is a buffer of none, value is NULL. */
struct argument {
    size_t bytes;
    const void *value;
};
#define ARG(v)                                                                                     \
    {                                                                                              \
        sizeof(v), &(v)                                                                            \
    }

static void arguments(cl_kernel k, const struct argument *a, cl_uint n)
{
    for (cl_uint i = 0; i < n; i++)
        OK(clSetKernelArg(k, i, a[i].bytes, a[i].value));
}

/* Both worlds: what kernels work on here, and there. */
static struct future_slot slots[SLOTS];
static uint32_t words[2], missing, values[WORDS], inputs[WORDS];
static cl_mem cl_slots, cl_words, cl_missing, cl_values, cl_inputs;

static void same(cl_mem m, const void *want, size_t bytes, const char *what, unsigned round)
{
    static char got[SLOTS * sizeof(slots[0]) + sizeof(inputs)];
    OK(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, bytes, got, 0, NULL, NULL));
    if (memcmp(got, want, bytes) != 0) {
        printf("round %u: %s differ\n", round, what);
        exit(1);
    }
}

/* Of one size, as PoCL compiles a kernel for each; more threads than there are integers. */
static void run(cl_kernel k)
{
    size_t n = THREADS;
    OK(clEnqueueNDRangeKernel(queue, k, 1, NULL, &n, NULL, 0, NULL, NULL));
}

static void store_block(uint32_t tag, bool placed)
{
    uint32_t mask = SLOTS - 1, n = 1 + (uint32_t)rnd(SLOTS), bytes = rnd(2) ? 4 : 8;
    uint32_t zero = 0;
    int64_t stride = (int64_t)rnd(4); /* 0: the same one for all */
    for (unsigned i = 0; i < WORDS; i++)
        values[i] = (uint32_t)rnd(UINT32_MAX);
    if (placed) {
        uint32_t m = (uint32_t)rnd(n + 1);
        arguments(place, (struct argument[]){ARG(cl_words), ARG(tag), ARG(m)}, 3);
        run(place);
        future_place(words, tag, m);
    }
    OK(clEnqueueWriteBuffer(queue, cl_values, CL_TRUE, 0, sizeof(values), values, 0, NULL, NULL));
    const struct argument words_or_none = {sizeof(cl_mem), placed ? &cl_words : NULL};
    const struct argument a[] = {
        ARG(cl_slots), ARG(mask),
        words_or_none, placed ? (struct argument)ARG(zero) : (struct argument)ARG(tag),
        ARG(n),        ARG(cl_values),
        ARG(stride),   ARG(bytes)};
    arguments(store, a, 8);
    run(store);
    for (uint32_t i = 0; i < THREADS; i++)
        future_store(i, slots, mask, placed ? words : NULL, placed ? 0 : tag, n,
                     (const char *)values, stride, bytes);
}

static void resolve_block(uint32_t tag)
{
    uint32_t mask = SLOTS - 1, bytes = rnd(2) ? 4 : 8, n = 1 + (uint32_t)rnd(SLOTS);
    int64_t stride = 1 + (int64_t)rnd(3);
    for (unsigned i = 0; i < WORDS * 4 / bytes; i++) {
        int64_t v = (int64_t)rnd(1000);
        if (rnd(2))
            v = -(int64_t)(((tag - 1 + (uint32_t)rnd(SLOTS)) & FUTURE_POSITION_MASK) + 1);
        if (bytes == 8)
            ((int64_t *)inputs)[i] = v;
        else
            ((int32_t *)inputs)[i] = (int32_t)v;
    }
    OK(clEnqueueWriteBuffer(queue, cl_inputs, CL_TRUE, 0, sizeof(inputs), inputs, 0, NULL, NULL));
    const struct argument a[] = {ARG(cl_slots),  ARG(mask),   ARG(cl_missing), ARG(n),
                                 ARG(cl_inputs), ARG(stride), ARG(bytes)};
    arguments(resolve, a, 7);
    run(resolve);
    for (uint32_t i = 0; i < n; i++)
        future_resolve(i, slots, mask, &missing, n, (char *)inputs, stride, bytes);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    begin(argv[1]);
    cl_slots = buffer(sizeof(slots));
    cl_words = buffer(sizeof(words));
    cl_missing = buffer(sizeof(missing));
    cl_values = buffer(sizeof(values));
    cl_inputs = buffer(sizeof(inputs));
    OK(clEnqueueWriteBuffer(queue, cl_slots, CL_TRUE, 0, sizeof(slots), slots, 0, NULL, NULL));
    OK(clEnqueueWriteBuffer(queue, cl_missing, CL_TRUE, 0, 4, &missing, 0, NULL, NULL));
    uint32_t tag = FUTURE_POSITION_MASK - 2000; /* goes on at 1 behind the last */
    unsigned lacked = 0;
    for (unsigned round = 0; round < 300; round++) {
        store_block(tag, rnd(2));
        resolve_block(tag);
        same(cl_slots, slots, sizeof(slots), "slots", round);
        same(cl_inputs, inputs, sizeof(inputs), "inputs", round);
        lacked += missing != 0;
        tag = ((tag - 1 + (uint32_t)rnd(SLOTS)) & FUTURE_POSITION_MASK) + 1;
    }
    uint32_t got = 0; /* one of those without a value; which one differs */
    OK(clEnqueueReadBuffer(queue, cl_missing, CL_TRUE, 0, 4, &got, 0, NULL, NULL));
    if (!got || !lacked || tag > 100000) {
        printf("nothing was missing, or the positions did not go round\n");
        return 1;
    }
    return 0;
}
