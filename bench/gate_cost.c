/* What the OpenCL layer adds to a submission when nobody else wants the device: the same call into
 * a library that does nothing, with and without the layer between, in turns. Medians over rounds.
 *
 * usage: bench_gate_cost LAYER */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl_layer.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/cost.h"

#define CALLS 100000

static cl_int CL_API_CALL nothing(cl_command_queue q, cl_kernel k, cl_uint dims,
                                  const size_t *offset, const size_t *size, const size_t *local,
                                  cl_uint n, const cl_event *wait, cl_event *event)
{
    return CL_SUCCESS;
}

static double ns_each(__typeof__(&clEnqueueNDRangeKernel) f)
{
    size_t size = 64;
    uint64_t t = monotonic_ns();
    for (int i = 0; i < CALLS; i++)
        f((cl_command_queue)8, (cl_kernel)8, 1, NULL, &size, NULL, 0, NULL, NULL);
    return (double)(monotonic_ns() - t) / CALLS;
}

int main(int argc, char **argv)
{
    static cl_icd_dispatch below;
    const cl_icd_dispatch *above;
    double without[COST_ROUNDS], with[COST_ROUNDS];
    below.clEnqueueNDRangeKernel = nothing;
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    pfn_clInitLayer init = library ? (pfn_clInitLayer)dlsym(library, "clInitLayer") : NULL;
    cl_uint n;
    if (!init || init(sizeof(below) / sizeof(void *), &below, &n, &above) != CL_SUCCESS) {
        fprintf(stderr, "usage: bench_gate_cost LAYER\n");
        return 2;
    }
    for (int i = 0; i < COST_ROUNDS; i++) {
        without[i] = ns_each(below.clEnqueueNDRangeKernel);
        with[i] = ns_each(above->clEnqueueNDRangeKernel);
    }
    double a = cost_median(without, COST_ROUNDS), b = cost_median(with, COST_ROUNDS);
    printf("{\"calls\":%d,\"rounds\":%d,\"without_ns\":%.2f,\"with_ns\":%.2f,\"added_ns\":%.2f}\n",
           CALLS, COST_ROUNDS, a, b, b - a);
    return 0;
}
