/* The part of the OpenCL 1.2 API that cede-load uses, so that it is built without OpenCL's headers.
 * Names, values and signatures are the specification's; nothing here is the load generator's. */
#ifndef CEDE_BENCH_LOAD_OPENCL_H
#define CEDE_BENCH_LOAD_OPENCL_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t cl_code;
typedef struct cl_plat *cl_platform;
typedef struct cl_dev *cl_device;
typedef struct cl_ctx *cl_ctx_handle;
typedef struct cl_que *cl_queue;
typedef struct cl_prog *cl_program_handle;
typedef struct cl_kern *cl_kernel_handle;
typedef struct cl_buf *cl_buffer;
typedef struct cl_ev *cl_event_handle;

enum { CL_MEM_READ_WRITE = 1 };
enum {
    CL_PLATFORM_NAME = 0x0902,
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
    CL_DEVICE_NAME = 0x102b,
    CL_DRIVER_VERSION = 0x102d,
    CL_PROGRAM_BUILD_LOG = 0x1183,
};
#define CL_DEVICE_TYPE_ALL 0xffffffffULL

#define OPENCL_CALLS(X)                                                                            \
    X(cl_code, platforms, "clGetPlatformIDs", (uint32_t max, cl_platform * v, uint32_t * n))       \
    X(cl_code, platform_info, "clGetPlatformInfo",                                                 \
      (cl_platform p, uint32_t what, size_t size, void *v, size_t *used))                          \
    X(cl_code, devices, "clGetDeviceIDs",                                                          \
      (cl_platform p, uint64_t types, uint32_t max, cl_device * v, uint32_t * n))                  \
    X(cl_code, device_info, "clGetDeviceInfo",                                                     \
      (cl_device d, uint32_t what, size_t size, void *v, size_t *used))                            \
    X(cl_ctx_handle, context, "clCreateContext",                                                   \
      (const intptr_t *properties, uint32_t n, const cl_device *v,                                 \
       void (*notify)(const char *, const void *, size_t, void *), void *arg, cl_code *code))      \
    X(cl_code, context_free, "clReleaseContext", (cl_ctx_handle c))                                \
    X(cl_queue, queue, "clCreateCommandQueue",                                                     \
      (cl_ctx_handle c, cl_device d, uint64_t properties, cl_code * code))                         \
    X(cl_code, queue_free, "clReleaseCommandQueue", (cl_queue q))                                  \
    X(cl_program_handle, program, "clCreateProgramWithSource",                                     \
      (cl_ctx_handle c, uint32_t n, const char **texts, const size_t *sizes, cl_code *code))       \
    X(cl_code, build, "clBuildProgram",                                                            \
      (cl_program_handle p, uint32_t n, const cl_device *v, const char *options,                   \
       void (*notify)(cl_program_handle, void *), void *arg))                                      \
    X(cl_code, build_info, "clGetProgramBuildInfo",                                                \
      (cl_program_handle p, cl_device d, uint32_t what, size_t size, void *v, size_t *used))       \
    X(cl_code, program_free, "clReleaseProgram", (cl_program_handle p))                            \
    X(cl_kernel_handle, kernel, "clCreateKernel",                                                  \
      (cl_program_handle p, const char *name, cl_code *code))                                      \
    X(cl_code, kernel_free, "clReleaseKernel", (cl_kernel_handle k))                               \
    X(cl_code, kernel_arg, "clSetKernelArg",                                                       \
      (cl_kernel_handle k, uint32_t i, size_t size, const void *v))                                \
    X(cl_buffer, buffer, "clCreateBuffer",                                                         \
      (cl_ctx_handle c, uint64_t flags, size_t size, void *host, cl_code *code))                   \
    X(cl_code, buffer_free, "clReleaseMemObject", (cl_buffer b))                                   \
    X(cl_code, write, "clEnqueueWriteBuffer",                                                      \
      (cl_queue q, cl_buffer b, uint32_t blocking, size_t at, size_t size, const void *from,       \
       uint32_t nwait, const cl_event_handle *wait, cl_event_handle *e))                           \
    X(cl_code, read, "clEnqueueReadBuffer",                                                        \
      (cl_queue q, cl_buffer b, uint32_t blocking, size_t at, size_t size, void *to,               \
       uint32_t nwait, const cl_event_handle *wait, cl_event_handle *e))                           \
    X(cl_code, launch, "clEnqueueNDRangeKernel",                                                   \
      (cl_queue q, cl_kernel_handle k, uint32_t dimensions, const size_t *offset,                  \
       const size_t *global, const size_t *local, uint32_t nwait, const cl_event_handle *wait,     \
       cl_event_handle *e))                                                                        \
    X(cl_code, events_wait, "clWaitForEvents", (uint32_t n, const cl_event_handle *v))             \
    X(cl_code, event_free, "clReleaseEvent", (cl_event_handle e))                                  \
    X(cl_code, flush, "clFlush", (cl_queue q))                                                     \
    X(cl_code, finish, "clFinish", (cl_queue q))

struct opencl_calls {
#define X(type, field, symbol, args) type(*field) args;
    OPENCL_CALLS(X)
#undef X
};

#endif
