/* Inside cede-load on NVIDIA GPUs: the driver's calls, and what the kernels of load_cuda.c and
 * works.c share. All of it in the current context; after an error, nothing is done. */
#ifndef CEDE_BENCH_LOAD_CUDA_H
#define CEDE_BENCH_LOAD_CUDA_H

#include "bench/load/spin.h"
#include "bench/load/works.h"

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
    struct spin s;
    struct cuda_calls cu;
    cu_context *contexts; /* the last is used; each owns what was made in it */
    uint64_t ncontexts;
    cu_function function; /* the spinning kernel */
    cu_stream stream;
    unsigned blocks;
    cu_pointer state; /* a word a thread */
    bool spin;        /* the end is waited for without giving up the CPU */
    cu_event *events; /* of the pieces in flight; NULL with spin: then there is one */
    uint64_t poll_ns;

    cu_pointer hold, hold_wrong; /* --memory, and a count of its words that are not as filled */
    uint64_t hold_words;
    cu_pointer copy; /* --copy-bytes; the host's side is pinned */

    const struct load_work *work; /* NULL: the spinning kernel */
    struct {
        cu_function kernel, digest, sums;
        cu_pointer v[5], number; /* arrays, and 32 bytes for sums */
        uint32_t n;
        uint64_t kernels, first_digest;
        double first_sums[4];
    } w;
};

/* A call of the driver; left out after an error. 0, or -errno with "cannot WHAT: NAME (text):
 * advice". */
#define CUDA(g, what, call, ...) cuda_check(g, (g)->s.failed ? 0 : (g)->cu.call(__VA_ARGS__), what)
int cuda_check(struct cuda *g, cu_result r, const char *what);

/* Fills in g->cu. */
int cuda_load_library(struct cuda *g);
/* A kernel of a PTX text. */
cu_function cuda_find(struct cuda *g, const char *ptx, const char *name);
/* Not waited for. */
int cuda_launch(struct cuda *g, cu_function f, unsigned blocks, unsigned threads, void **params);
/* On the kernels' stream, and waited for: a plain copy may still be on its way when it returns. */
int cuda_copy_in(struct cuda *g, cu_pointer to, const void *from, size_t bytes);
/* Until an event, or the stream if that is NULL, has ended. -ETIMEDOUT is no error yet. */
int cuda_wait(struct cuda *g, cu_event e, uint64_t limit_ns, uint64_t *end_ns);
/* Waits for the stream after WHAT. */
int cuda_settle(struct cuda *g, const char *what);

/* ---- load_cuda.c; for bench/balance.c too ---- */

/* The spinning kernel, its stream, state and speed. */
int cuda_set_up(struct cuda *g, const struct load_options *o, cu_device device);
/* Another state; kernels on one state run one after the other. */
cu_pointer cuda_make_state(struct cuda *g);

#endif
