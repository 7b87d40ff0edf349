/* What slices cost on an OpenCL device that is the processor itself (PoCL): the process's processor
 * time, which other programs on the machine disturb less than they do the clock. The same work as
 * one launch; as many launches as there were slices, without waiting, which is what no library can
 * avoid; and by cede_slice_run() with 1, 2 and 4 slices queued. These take turns in each round.
 * "us" is the time in addition to the one launch, per launch or slice: of the rounds' least, and of
 * their medians. An element is a work-group of 64.
 *
 * usage: bench_slice_cost_opencl [ROUNDS [MS]]    exit status 77: there is no OpenCL device */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "bench/cost.h"
#include "cede/slice.h"

#define GROUP      64U
#define ITERS      200U
#define WORDS      1024U
#define ROUNDS_MAX 1000U

enum { WHOLE, LAUNCHES, DEPTH_1, DEPTH_2, DEPTH_4, WAYS };
static const struct {
    const char *name;
    unsigned depth;
} ways[WAYS] = {{"whole", 0}, {"launches", 0}, {"depth_1", 1}, {"depth_2", 2}, {"depth_4", 4}};

static const char text[] = "kernel void spin(global uint *groups, global uint *sums, uint iters)\n"
                           "{\n"
                           "    uint x = (uint)get_global_id(0);\n"
                           "    for (uint i = 0; i < iters; i++)\n"
                           "        x = x * 1664525u + 1013904223u;\n"
                           "    sums[get_global_id(0) % 65536] = x;\n"
                           "    if (get_local_id(0) == 0)\n"
                           "        atomic_inc(groups + get_group_id(0) % 1024);\n"
                           "}\n";

static cl_command_queue queue;
static cl_kernel kernel;
static cl_mem groups;
static uint32_t launched; /* elements */

static int launch(void *unused, uint64_t first, uint64_t count, void *stream)
{
    const size_t items = count * GROUP, group = GROUP;
    launched += (uint32_t)count;
    return clEnqueueNDRangeKernel(stream, kernel, 1, NULL, &items, &group, 0, NULL, NULL) ? -EIO
                                                                                          : 0;
}

static bool prepare(cl_device_id device)
{
    static const cl_uint zeros[WORDS];
    const char *source = text;
    const cl_uint iters = ITERS;
    cl_int r;
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &r);
    queue = r ? NULL : clCreateCommandQueue(context, device, 0, &r);
    cl_program p = r ? NULL : clCreateProgramWithSource(context, 1, &source, NULL, &r);
    if (r || clBuildProgram(p, 1, &device, "", NULL, NULL))
        return false;
    kernel = clCreateKernel(p, "spin", &r);
    cl_mem sums = r ? NULL : clCreateBuffer(context, CL_MEM_READ_WRITE, 65536 * 4, NULL, &r);
    if (!r)
        groups = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof(zeros),
                                (void *)(uintptr_t)zeros, &r);
    return !r && !clSetKernelArg(kernel, 0, sizeof(cl_mem), &groups) &&
           !clSetKernelArg(kernel, 1, sizeof(cl_mem), &sums) &&
           !clSetKernelArg(kernel, 2, sizeof(iters), &iters);
}

static double processor_us(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* *pieces: launches, or slices; where the way has none of its own, so many. 0 or -EIO. */
static int run_way(unsigned way, uint64_t count, uint64_t *pieces, double *us)
{
    static uint64_t sizes[WAYS];
    const double before = processor_us();
    int r = 0;
    if (ways[way].depth) {
        struct cede_slice_progress p = {.next_count = sizes[way]};
        struct cede_slice_config c;
        cede_slice_defaults(&c);
        c.flags = CEDE_SLICE_OPENCL;
        c.depth = ways[way].depth;
        c.count = count;
        c.stream = queue;
        c.launch = launch;
        r = cede_slice_run(&c, &p);
        sizes[way] = p.next_count;
        *pieces = p.slices;
        if (r)
            fprintf(stderr, "bench_slice_cost_opencl: %s\n", p.error);
    } else {
        uint64_t n = way == WHOLE ? 1 : *pieces, done = 0;
        for (uint64_t i = 0; r == 0 && i < n; i++) {
            uint64_t end = count * (i + 1) / n;
            r = launch(NULL, done, end - done, queue);
            done = end;
        }
        *pieces = n;
        r = r || clFinish(queue) ? -EIO : 0;
    }
    *us = processor_us() - before;
    return r ? -EIO : 0;
}

/* Every element ran once, as the work-groups counted. */
static bool all_ran(void)
{
    static uint32_t found[WORDS];
    uint32_t sum = 0;
    if (clEnqueueReadBuffer(queue, groups, CL_TRUE, 0, sizeof(found), found, 0, NULL, NULL))
        return false;
    for (unsigned i = 0; i < WORDS; i++)
        sum += found[i];
    return sum == launched;
}

static int measure(unsigned rounds, double ms)
{
    static double us[WAYS][ROUNDS_MAX], more[WAYS][ROUNDS_MAX];
    uint64_t pieces[WAYS] = {0}, count = 10000;
    int r = run_way(DEPTH_2, count, &pieces[DEPTH_2], &us[0][0]); /* compiles */
    r = r ? r : run_way(WHOLE, count, &pieces[WHOLE], &us[0][0]);
    count = (uint64_t)max_u64(1, (uint64_t)((double)count * ms * 1e3 / (us[0][0] + 1)));
    for (unsigned i = 0; r == 0 && i <= rounds;
         i++) { /* the first is not counted: sizes are found */
        unsigned at = i ? i - 1 : 0;
        pieces[LAUNCHES] = max_u64(pieces[DEPTH_2], 1);
        for (unsigned way = 0; r == 0 && way < WAYS; way++) {
            r = run_way(way, count, &pieces[way], &us[way][at]);
            more[way][at] = (us[way][at] - us[WHOLE][at]) / (double)pieces[way];
        }
    }
    if (r || !all_ran()) {
        fprintf(stderr, "bench_slice_cost_opencl: a call of OpenCL failed, or work did not run\n");
        return 1;
    }
    for (unsigned way = 0; way < WAYS; way++) {
        cost_sort(us[way], rounds);
        cost_sort(more[way], rounds);
    }
    printf("{\"rounds\":%u,\"whole_ms\":%.2f", rounds, us[WHOLE][0] / 1e3);
    for (unsigned way = LAUNCHES; way < WAYS; way++)
        printf(",\"%s\":{\"pieces\":%llu,\"piece_us\":%.0f,\"min_us\":%.1f,\"p50_us\":%.1f}",
               ways[way].name, (unsigned long long)pieces[way], us[WHOLE][0] / (double)pieces[way],
               (us[way][0] - us[WHOLE][0]) / (double)pieces[way], more[way][rounds / 2]);
    puts("}");
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t rounds = 25, ms = 200;
    cl_platform_id platform;
    cl_device_id device;
    if (argc > 3 || (argc > 1 && parse_u64(argv[1], 1, ROUNDS_MAX, &rounds)) ||
        (argc > 2 && parse_u64(argv[2], 1, 60000, &ms))) {
        fprintf(stderr, "usage: bench_slice_cost_opencl [ROUNDS [MS]]\n");
        return 2;
    }
    if (clGetPlatformIDs(1, &platform, NULL) != CL_SUCCESS ||
        clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL) != CL_SUCCESS)
        return 77;
    if (!prepare(device)) {
        fprintf(stderr, "bench_slice_cost_opencl: the device refuses the kernel or a buffer\n");
        return 1;
    }
    return measure((unsigned)rounds, (double)ms);
}
