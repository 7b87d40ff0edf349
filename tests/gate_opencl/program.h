/* What OpenCL programs under the layer share: a device, and calls that end them when they fail. */
#ifndef CEDE_TESTS_OPENCL_PROGRAM_H
#define CEDE_TESTS_OPENCL_PROGRAM_H

#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#include <CL/cl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../random.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        cl_int ok_ = (call);                                                                       \
        if (ok_ != CL_SUCCESS) {                                                                   \
            printf("%s: %d\n", #call, ok_);                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static cl_device_id device;
static cl_context context;

/* The first device and a context; else ends the program with 77. */
static void open_device(void)
{
    cl_platform_id platform;
    cl_int r;
    if (clGetPlatformIDs(1, &platform, NULL) != CL_SUCCESS ||
        clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL) != CL_SUCCESS)
        exit(77);
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &r);
    OK(r);
}

static cl_program build(cl_context c, const char *source, const char *options)
{
    cl_int r;
    cl_program p = clCreateProgramWithSource(c, 1, &source, NULL, &r);
    OK(r);
    OK(clBuildProgram(p, 1, &device, options, NULL, NULL));
    return p;
}

#endif
