/* The area of the Mandelbrot set, by counting: a long computation that survives kill -9 and gives
 * way to jobs of a higher class. It runs in slices of 0.5 ms and writes a checkpoint five times a
 * second; started again, it goes on from there. See cede_slice_run(3). The sums are integers, so
 * the result does not depend on where slices begin.
 *
 *     cc slices.c $(pkg-config --cflags --libs cede) -lOpenCL -o slices
 *     cede run -c batch -- ./slices mandelbrot.checkpoint 16384 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <cede/slice.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LANES  4096 /* work-items; each has a sum */
#define ROUNDS 1000 /* of z = z^2 + c */

/* 2654435761 is prime, so each point is counted once, but neighbours are far apart: all slices have
 * points that take long, and others. */
static const char text[] =
    "kernel void count_inside(global ulong *sums, ulong first, ulong count, ulong side, uint "
    "rounds)\n"
    "{\n"
    "    for (ulong i = get_global_id(0); i < count; i += get_global_size(0)) {\n"
    "        ulong at = (first + i) * 2654435761UL % (side * side);\n"
    "        float x = 4.0f * (at % side) / side - 2, y = 4.0f * (at / side) / side - 2;\n"
    "        float a = 0, b = 0;\n"
    "        uint k = 0;\n"
    "        for (; k < rounds && a * a + b * b < 4; k++) {\n"
    "            float t = a * a - b * b + x;\n"
    "            b = 2 * a * b + y;\n"
    "            a = t;\n"
    "        }\n"
    "        sums[get_global_id(0)] += k == rounds;\n"
    "    }\n"
    "}\n";

struct computation {
    cl_ulong side; /* points of a row, over -2 to 2 in both directions */
    cl_command_queue queue;
    cl_kernel kernel;
    cl_mem sums;
    cl_ulong state[LANES];
    struct cede_checkpoint file;
};

/* Puts points first to first + count - 1 into the queue. */
static int launch(void *arg, uint64_t first, uint64_t count, void *stream)
{
    struct computation *c = arg;
    const cl_ulong from = first, n = count;
    const cl_uint rounds = ROUNDS;
    const size_t lanes = LANES;
    clSetKernelArg(c->kernel, 0, sizeof(cl_mem), &c->sums);
    clSetKernelArg(c->kernel, 1, sizeof(from), &from);
    clSetKernelArg(c->kernel, 2, sizeof(n), &n);
    clSetKernelArg(c->kernel, 3, sizeof(c->side), &c->side);
    clSetKernelArg(c->kernel, 4, sizeof(rounds), &rounds);
    return clEnqueueNDRangeKernel(stream, c->kernel, 1, NULL, &lanes, NULL, 0, NULL, NULL) ? -EIO
                                                                                           : 0;
}

static int save(void *arg, uint64_t done)
{
    struct computation *c = arg;
    if (clEnqueueReadBuffer(c->queue, c->sums, CL_TRUE, 0, sizeof(c->state), c->state, 0, NULL,
                            NULL))
        return -EIO;
    int r = cede_checkpoint_write(&c->file, done, c->state, sizeof(c->state));
    if (r < 0)
        fprintf(stderr, "%s\n", c->file.error);
    return r;
}

/* The first device, a queue in order, the kernel, and the sums as they are in c->state. */
static int prepare(struct computation *c)
{
    const char *source = text;
    cl_platform_id platform;
    cl_device_id device;
    cl_int error;
    if (clGetPlatformIDs(1, &platform, NULL) ||
        clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL))
        return -1;
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    c->queue = error ? NULL : clCreateCommandQueue(context, device, 0, &error);
    cl_program program =
        error ? NULL : clCreateProgramWithSource(context, 1, &source, NULL, &error);
    if (error || clBuildProgram(program, 1, &device, "", NULL, NULL))
        return -1;
    c->kernel = clCreateKernel(program, "count_inside", &error);
    if (!error)
        c->sums = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                 sizeof(c->state), c->state, &error);
    return error ? -1 : 0;
}

int main(int argc, char **argv)
{
    static struct computation c;
    struct cede_slice_config config;
    struct cede_slice_progress at = {0};
    c.file.path = argc > 1 ? argv[1] : "mandelbrot.checkpoint";
    c.side = argc > 2 ? strtoul(argv[2], NULL, 10) : 4096;
    if (c.side < 1 || c.side > 65536) {
        fprintf(stderr, "usage: slices [FILE [SIDE]], with 1 to 65536 points of a side\n");
        return 2;
    }
    c.file.work = c.side * ROUNDS;
    cede_slice_defaults(&config);
    config.count = c.side * c.side;
    int r = cede_checkpoint_read(&c.file, &at.done, c.state, sizeof(c.state));
    if (r < 0 && r != -ENOENT) {
        fprintf(stderr, "%s\n", c.file.error);
        return 1;
    }
    printf("begins at %.1f %%\n", 100.0 * (double)at.done / (double)config.count);
    if (prepare(&c) < 0) {
        fprintf(stderr, "cannot prepare the kernel: there is no OpenCL device, or it refused\n");
        return 1;
    }
    config.flags = CEDE_SLICE_OPENCL; /* CUDA: no flag, and a current context */
    config.stream = c.queue;
    config.checkpoint_us = 200000;
    config.arg = &c;
    config.launch = launch;
    config.save = save;
    cede_connect(&config.client);
    while ((r = cede_slice_run(&config, &at)) == -EAGAIN) { /* saved; or end here, to free memory */
        printf("gives way at %.1f %%\n", 100.0 * (double)at.done / (double)config.count);
        while (cede_wanted(config.client))
            usleep(100000);
    }
    if (r < 0) {
        fprintf(stderr, "%s\n", at.error);
        return 1;
    }
    uint64_t inside = 0; /* of what was saved last, which is all of it */
    for (int i = 0; i < LANES; i++)
        inside += c.state[i];
    printf("area %.6f: %llu of %llu points; %llu slices of %.0f us\n",
           16.0 * (double)inside / (double)config.count, (unsigned long long)inside,
           (unsigned long long)config.count, (unsigned long long)at.slices,
           at.slices ? (double)at.gpu_us / (double)at.slices : 0);
    cede_close(config.client);
    return 0;
}
