/* Inside cede-load on NVIDIA GPUs: the driver's calls, and what the kernels of load_cuda.c, works.c
 * and bench/balance.c share. All of it in the current context. */
#ifndef CEDE_LOAD_CUDA_H
#define CEDE_LOAD_CUDA_H

#include "load/ops.h"
#include "load/works.h"

/* From the driver API's reference; the suffixes are the names under which libcuda exports the
 * present versions of these calls. */
typedef int cu_result, cu_device;
typedef unsigned long long cu_pointer;
typedef struct cu_ctx *cu_context;
typedef struct cu_mod *cu_module;
typedef struct cu_func *cu_function;
typedef struct cu_str *cu_stream;
typedef struct cu_ev *cu_event;

enum { CU_OUT_OF_MEMORY = 2, CU_NOT_READY = 600 };
enum { CU_CTX_SCHED_SPIN = 1, CU_CTX_SCHED_BLOCKING_SYNC = 4 };
enum { CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16 };

#define CUDA_CALLS(X)                                                                              \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(error_name, "cuGetErrorName", (cu_result r, const char **s))                                 \
    X(error_text, "cuGetErrorString", (cu_result r, const char **s))                               \
    X(device_get, "cuDeviceGet", (cu_device * d, int ordinal))                                     \
    X(device_attribute, "cuDeviceGetAttribute", (int *v, int attribute, cu_device d))              \
    X(ctx_create, "cuCtxCreate_v2", (cu_context * c, unsigned flags, cu_device d))                 \
    X(ctx_destroy, "cuCtxDestroy_v2", (cu_context c))                                              \
    X(module_load, "cuModuleLoadData", (cu_module * m, const void *image))                         \
    X(module_function, "cuModuleGetFunction", (cu_function * f, cu_module m, const char *name))    \
    X(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor",                                    \
      (int *blocks, cu_function f, int threads, size_t shared_bytes))                              \
    X(mem_alloc, "cuMemAlloc_v2", (cu_pointer * p, size_t bytes))                                  \
    X(mem_alloc_host, "cuMemAllocHost_v2", (void **p, size_t bytes))                               \
    X(copy_out, "cuMemcpyDtoH_v2", (void *dst, cu_pointer src, size_t bytes))                      \
    X(copy_in_async, "cuMemcpyHtoDAsync_v2",                                                       \
      (cu_pointer dst, const void *src, size_t bytes, cu_stream s))                                \
    X(copy_out_async, "cuMemcpyDtoHAsync_v2",                                                      \
      (void *dst, cu_pointer src, size_t bytes, cu_stream s))                                      \
    X(stream_create, "cuStreamCreate", (cu_stream * s, unsigned flags))                            \
    X(stream_query, "cuStreamQuery", (cu_stream s))                                                \
    X(event_create, "cuEventCreate", (cu_event * e, unsigned flags))                               \
    X(event_record, "cuEventRecord", (cu_event e, cu_stream s))                                    \
    X(event_query, "cuEventQuery", (cu_event e))                                                   \
    X(launch, "cuLaunchKernel",                                                                    \
      (cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,             \
       unsigned bz, unsigned shared_bytes, cu_stream s, void **params, void **extra))

struct cuda_calls {
#define X(field, symbol, args) cu_result(*field) args;
    CUDA_CALLS(X)
#undef X
};

struct cuda {
    struct load_gpu base;
    struct cuda_calls cu;
    cu_context *contexts; /* the last is used; each owns what was made in it */
    uint64_t ncontexts;
    cu_function function;
    cu_stream stream;
    unsigned blocks;
    cu_pointer state;    /* a word a thread */
    uint64_t steps;      /* of the generator that the state must have made */
    uint32_t iterations; /* of one kernel */
    bool spin, verify;

    cu_function hold_fill, hold_check;
    cu_pointer hold, hold_wrong; /* --memory, and a count of its words that are not as filled */
    uint64_t hold_words;

    cu_pointer copy;
    unsigned char *copy_in, *copy_out; /* pinned */
    size_t copy_bytes;
    unsigned char pattern;
    bool copying_out, copy_wrong;

    /* Pieces in flight, as counters into the rings. */
    uint64_t head, tail, slots;
    uint64_t *submit_ns;
    cu_event *events; /* NULL with spin */
    uint64_t poll_ns;

    const struct load_work *work; /* NULL: the spinning kernel */
    struct {
        cu_function kernel, digest, sums;
        cu_pointer v[5], number; /* arrays, and 32 bytes for sums */
        uint32_t n;
        uint64_t kernels, first_digest;
        double first_sums[4];
    } w;
};

/* A calibration or warm-up kernel takes ms; this long means suspended or hung. */
#define SETUP_NS (30 * NSEC_PER_SEC)

/* Fills in g->cu. */
int cuda_load_library(struct cuda *g, struct error *err);
/* 0, or a negative errno with "cannot WHAT: NAME (text): advice". */
int cuda_check(const struct cuda *g, cu_result r, const char *what, struct error *err);
/* Waits for the stream after WHAT; -ETIMEDOUT after SETUP_NS. */
int cuda_settle(struct cuda *g, const char *what, struct error *err);
/* A kernel of a PTX text. */
int cuda_find(struct cuda *g, const char *ptx, const char *name, cu_function *out,
              struct error *err);
int cuda_alloc(struct cuda *g, size_t bytes, const char *what, cu_pointer *out, struct error *err);
/* The spinning kernel that fills such a part of the GPU, its stream, and a state of its threads:
 * into function, blocks, stream and state. */
int cuda_set_up_kernel(struct cuda *g, cu_device device, double sm_fraction, struct error *err);
/* Another state, of cuda_state_bytes(); kernels on one state run one after the other. */
int cuda_make_state(struct cuda *g, cu_pointer *out, struct error *err);
size_t cuda_state_bytes(const struct cuda *g);
int cuda_launch(const struct cuda *g, cu_stream stream, cu_pointer state, uint32_t iterations,
                struct error *err);
/* One kernel from launch to end, for the host: for spin_calibrate(). arg: struct cuda. */
int cuda_timed(void *arg, uint32_t iterations, double *us, struct error *err);
/* Polls the stream without giving up the CPU: what a latency is measured with. */
int cuda_spin_until_idle(struct cuda *g, uint64_t limit_ns, uint64_t *end_ns, struct error *err);

#endif
