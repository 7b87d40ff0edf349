/* Inside libcede: libcuda, which is never linked but opened at run time, and never closed once
 * open, as it leaves threads and exit handlers behind. One table of its calls; what uses it has a
 * copy, with the calls of that use. Where there is no GPU the host's calls stand in, and OpenCL's
 * for slices. Knows no policy; all calls may be made from several threads at once. */
#ifndef CEDE_LIBCEDE_CUDA_H
#define CEDE_LIBCEDE_CUDA_H

#include <stddef.h>
#include <stdint.h>

/* A text for people, where a call fails. */
struct gpu_error {
    char text[128];
};

struct cuda_location {
    int type, id;
};

struct cuda_update_result {
    int result;
    void *node, *from;
};

/* What calls are needed for. */
enum { CUDA_LEASES = 1, CUDA_MEMORY = 2, CUDA_STEPS = 4, CUDA_LEADS = 8, CUDA_GRAPHS = 16 };
enum { CUDA_GPUS = CUDA_LEASES | CUDA_MEMORY, CUDA_OWN = CUDA_STEPS | CUDA_LEADS, CUDA_ANY = 31 };

/* Uses, name, and the name under which libcuda exports the present version; the newest is
 * cuGraphExecUpdate_v2: CUDA 12.0, driver 525. Calls without a use may be missing, and are for
 * memory: a driver has the first three, from CUDA 12.2 on all. */
#define CUDA_CALLS(X)                                                                              \
    X(CUDA_ANY, error_name, "cuGetErrorName", (int r, const char **s))                             \
    X(CUDA_GPUS, init, "cuInit", (unsigned flags))                                                 \
    X(CUDA_LEASES, device_count, "cuDeviceGetCount", (int *n))                                     \
    X(CUDA_GPUS, device_get, "cuDeviceGet", (int *d, int ordinal))                                 \
    X(CUDA_GPUS, attribute, "cuDeviceGetAttribute", (int *v, int attribute, int d))                \
    X(CUDA_GPUS, total, "cuDeviceTotalMem_v2", (size_t * bytes, int d))                            \
    X(CUDA_GPUS, bus_id, "cuDeviceGetPCIBusId", (char *s, int len, int d))                         \
    X(CUDA_GPUS, retain, "cuDevicePrimaryCtxRetain", (void **c, int d))                            \
    X(CUDA_GPUS, release, "cuDevicePrimaryCtxRelease_v2", (int d))                                 \
    X(CUDA_ANY - CUDA_MEMORY, ctx_current, "cuCtxGetCurrent", (void **c))                          \
    X(CUDA_LEASES | CUDA_GRAPHS, ctx_device, "cuCtxGetDevice", (int *d))                           \
    X(CUDA_GPUS | CUDA_LEADS, push, "cuCtxPushCurrent_v2", (void *c))                              \
    X(CUDA_GPUS | CUDA_LEADS, pop, "cuCtxPopCurrent_v2", (void **c))                               \
    X(CUDA_LEADS, priorities, "cuCtxGetStreamPriorityRange", (int *least, int *greatest))          \
    X(CUDA_GPUS | CUDA_GRAPHS, info, "cuMemGetInfo_v2", (size_t * available, size_t * all))        \
    X(CUDA_LEASES, function, "cuFuncGetAttribute", (int *v, int attribute, void *f))               \
    X(CUDA_LEASES, occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor",                       \
      (int *blocks, void *f, int threads, size_t shared_bytes))                                    \
    X(CUDA_MEMORY | CUDA_STEPS, alloc, "cuMemAlloc_v2", (uint64_t * address, size_t bytes))        \
    X(CUDA_MEMORY | CUDA_STEPS, dealloc, "cuMemFree_v2", (uint64_t address))                       \
    X(0, uuid, "cuDeviceGetUuid_v2", (unsigned char uuid[16], int d))                              \
    X(0, prefetch, "cuMemPrefetchAsync", (uint64_t address, size_t bytes, int device, void *s))    \
    X(0, advise, "cuMemAdvise", (uint64_t address, size_t bytes, int advice, int device))          \
    X(0, prefetch2, "cuMemPrefetchAsync_v2",                                                       \
      (uint64_t address, size_t bytes, struct cuda_location to, unsigned flags, void *s))          \
    X(0, advise2, "cuMemAdvise_v2",                                                                \
      (uint64_t address, size_t bytes, int advice, struct cuda_location where))                    \
    X(CUDA_ANY - CUDA_GRAPHS, stream_create, "cuStreamCreateWithPriority",                         \
      (void **s, unsigned flags, int priority))                                                    \
    X(CUDA_ANY - CUDA_GRAPHS, stream_destroy, "cuStreamDestroy_v2", (void *s))                     \
    X(CUDA_ANY - CUDA_LEASES, stream_sync, "cuStreamSynchronize", (void *s))                       \
    X(CUDA_STEPS, event_create, "cuEventCreate", (void **e, unsigned flags))                       \
    X(CUDA_STEPS, event_destroy, "cuEventDestroy_v2", (void *e))                                   \
    X(CUDA_STEPS, event_record, "cuEventRecord", (void *e, void *s))                               \
    X(CUDA_STEPS, event_query, "cuEventQuery", (void *e))                                          \
    X(CUDA_STEPS, event_sync, "cuEventSynchronize", (void *e))                                     \
    X(CUDA_STEPS, event_elapsed, "cuEventElapsedTime", (float *ms, void *from, void *to))          \
    X(CUDA_STEPS, clear, "cuMemsetD8_v2", (uint64_t address, unsigned char v, size_t bytes))       \
    X(CUDA_STEPS, copy_out, "cuMemcpyDtoHAsync_v2",                                                \
      (void *to, uint64_t from, size_t bytes, void *s))                                            \
    X(CUDA_OWN, host_alloc, "cuMemHostAlloc", (void **p, size_t bytes, unsigned flags))            \
    X(CUDA_OWN, host_pointer, "cuMemHostGetDevicePointer_v2",                                      \
      (uint64_t * address, void *p, unsigned flags))                                               \
    X(CUDA_OWN, host_free, "cuMemFreeHost", (void *p))                                             \
    X(CUDA_OWN, module_load, "cuModuleLoadData", (void **m, const void *image))                    \
    X(CUDA_OWN, module_unload, "cuModuleUnload", (void *m))                                        \
    X(CUDA_OWN, module_function, "cuModuleGetFunction", (void **f, void *m, const char *name))     \
    X(CUDA_OWN, launch, "cuLaunchKernel",                                                          \
      (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,      \
       unsigned shared_bytes, void *s, void **params, void **extra))                               \
    X(CUDA_GRAPHS, trim, "cuDeviceGraphMemTrim", (int device))                                     \
    X(CUDA_GRAPHS, exchange_mode, "cuThreadExchangeStreamCaptureMode", (int *mode))                \
    X(CUDA_GRAPHS, capturing, "cuStreamIsCapturing", (void *stream, int *status))                  \
    X(CUDA_GRAPHS, begin, "cuStreamBeginCapture_v2", (void *stream, int mode))                     \
    X(CUDA_GRAPHS, end, "cuStreamEndCapture", (void *stream, void **graph))                        \
    X(CUDA_GRAPHS, nodes, "cuGraphGetNodes", (void *graph, void **nodes, size_t *n))               \
    X(CUDA_GRAPHS, instantiate, "cuGraphInstantiateWithFlags",                                     \
      (void **exec, void *graph, unsigned long long flags))                                        \
    X(CUDA_GRAPHS, update, "cuGraphExecUpdate_v2",                                                 \
      (void *exec, void *graph, struct cuda_update_result *result))                                \
    X(CUDA_GRAPHS, upload, "cuGraphUpload", (void *exec, void *stream))                            \
    X(CUDA_GRAPHS, graph_launch, "cuGraphLaunch", (void *exec, void *stream))                      \
    X(CUDA_GRAPHS, exec_destroy, "cuGraphExecDestroy", (void *exec))                               \
    X(CUDA_GRAPHS, graph_destroy, "cuGraphDestroy", (void *graph))

struct cuda {
#define X(uses, field, symbol, args) int(*field) args;
    CUDA_CALLS(X)
#undef X
};

/* Numbers of the driver API's reference, and of the host's. */
enum { CUDA_NO_MEMORY = 2, CUDA_NOT_READY = 600, HOST_NO_MEMORY = 1 << 20 };
enum { CUDA_STREAM_NONBLOCKING = 1, CUDA_EVENT_BLOCKING_SYNC = 1 };
enum { CUDA_HOST_PORTABLE = 1, CUDA_HOST_DEVICEMAP = 2 };

/* Opens libcuda for one use; other than for leases and memory, only where the program has it open.
 * 0; -ENODEV: it is not there, which is no failure and has no text, or lacks a call. */
int cede_cuda_open(struct cuda *cu, unsigned use, struct gpu_error *e);
/* The same, where a context is current. 0 or -ENOSYS. */
int cede_cuda_here(struct cuda *cu, unsigned use, void **context);

/* What of one use runs at once on the host: streams, events, memory, and kernels, which are a
 * function of the thread's number and the parameters. */
extern const struct cuda cede_cuda_host;
typedef void (*host_kernel)(uint32_t i, void **params);
/* A stream is a cl_command_queue, events are markers in it, and times are the host's: so no queue
 * has to be made with profiling. 0 or -ENOSYS. */
int cede_cuda_opencl(struct cuda *cu);

/* 0 if r is; -ENOMEM: of the host; else -EIO, and a text on what could not be done. */
int cede_cuda_failed(const struct cuda *cu, int r, const char *what, struct gpu_error *e);

/* Memory of the host, all 0, and its address on the GPU, unless that is NULL. */
int cede_cuda_pinned(const struct cuda *cu, size_t bytes, void **out, uint64_t *address,
                     struct gpu_error *e);

/* 1: what was in the stream in front of the event has run; 0: not yet; -EIO: it has failed. */
int cede_cuda_passed(const struct cuda *cu, void *event, struct gpu_error *e);
/* Between two events that were passed; 0 if the driver cannot tell. */
uint64_t cede_cuda_elapsed_ns(const struct cuda *cu, void *from, void *to);

#endif
