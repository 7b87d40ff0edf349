/* Inside cede-load on NVIDIA and AMD GPUs: the driver's calls, and what the kernels of load_cuda.c
 * and works.c share. All of it in the current context; after an error, nothing is done. HIP has the
 * calls of CUDA's driver with the same arguments and numbers under other names, so both are one
 * back end; load_hip.c has the rest. */
#ifndef CEDE_BENCH_LOAD_CUDA_H
#define CEDE_BENCH_LOAD_CUDA_H

#include "bench/load/spin.h"
#include "bench/load/works.h"

/* From the driver API's reference and, for the second name, HIP's; the suffixes are the names under
 * which libcuda exports the present versions of these calls. */
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

#define CUDA_CALLS(X)                                                                              \
    X(init, "cuInit", "hipInit", (unsigned flags))                                                 \
    X(device_get, "cuDeviceGet", "hipDeviceGet", (cu_device * d, int ordinal))                     \
    X(device_attribute, "cuDeviceGetAttribute", "hipDeviceGetAttribute",                           \
      (int *v, int attribute, cu_device d))                                                        \
    X(ctx_create, "cuCtxCreate_v2", "hipCtxCreate", (cu_context * c, unsigned flags, cu_device d)) \
    X(ctx_destroy, "cuCtxDestroy_v2", "hipCtxDestroy", (cu_context c))                             \
    X(module_load, "cuModuleLoadData", "hipModuleLoadData", (cu_module * m, const void *image))    \
    X(module_function, "cuModuleGetFunction", "hipModuleGetFunction",                              \
      (cu_function * f, cu_module m, const char *name))                                            \
    X(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor",                                    \
      "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor",                                        \
      (int *blocks, cu_function f, int threads, size_t shared_bytes))                              \
    X(mem_alloc, "cuMemAlloc_v2", "hipMalloc", (cu_pointer * p, size_t bytes))                     \
    X(mem_alloc_host, "cuMemAllocHost_v2", "hipMemAllocHost", (void **p, size_t bytes))            \
    X(copy_out, "cuMemcpyDtoH_v2", "hipMemcpyDtoH", (void *dst, cu_pointer src, size_t bytes))     \
    X(copy_in_async, "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync",                                 \
      (cu_pointer dst, const void *src, size_t bytes, cu_stream s))                                \
    X(copy_out_async, "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync",                                \
      (void *dst, cu_pointer src, size_t bytes, cu_stream s))                                      \
    X(stream_create, "cuStreamCreate", "hipStreamCreateWithFlags",                                 \
      (cu_stream * s, unsigned flags))                                                             \
    X(stream_query, "cuStreamQuery", "hipStreamQuery", (cu_stream s))                              \
    X(event_create, "cuEventCreate", "hipEventCreateWithFlags", (cu_event * e, unsigned flags))    \
    X(event_record, "cuEventRecord", "hipEventRecord", (cu_event e, cu_stream s))                  \
    X(event_query, "cuEventQuery", "hipEventQuery", (cu_event e))                                  \
    X(launch, "cuLaunchKernel", "hipModuleLaunchKernel",                                           \
      (cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,             \
       unsigned bz, unsigned shared_bytes, cu_stream s, void **params, void **extra))

struct cuda_calls {
#define X(field, nvidia, amd, args) cu_result(*field) args;
    CUDA_CALLS(X)
#undef X
};

struct cuda;

/* What differs between CUDA and HIP. */
struct cuda_kind {
    size_t size;       /* of the back end's struct, which starts with struct cuda */
    const char *init;  /* what the first call does, as in "cannot WHAT" */
    int sms_attribute; /* the number of multiprocessors */
    const struct cuda_advice {
        cu_result code; /* 0: any other, the last */
        const char *text;
    } * advice;
    int (*load_library)(struct cuda *g); /* fills in g->cu */
    void (*error_words)(struct cuda *g, cu_result r, const char **name, const char **text);
    const char *spin; /* text of the spinning kernel */
    /* A text's module image, malloc'd; NULL after an error. NULL: the driver takes the text. */
    void *(*compile)(struct cuda *g, const char *text);
};
extern const struct cuda_kind cuda_nvidia;

struct cuda {
    struct spin s;
    const struct cuda_kind *kind;
    struct cuda_calls cu;
    cu_result (*error_name)(cu_result r, const char **s); /* NVIDIA */
    cu_result (*error_text)(cu_result r, const char **s);
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

/* A kernel of a text. */
cu_function cuda_find(struct cuda *g, const char *text, const char *name);
/* Not waited for. */
int cuda_launch(struct cuda *g, cu_function f, unsigned blocks, unsigned threads, void **params);
/* On the kernels' stream, and waited for: a plain copy may still be on its way when it returns. */
int cuda_copy_in(struct cuda *g, cu_pointer to, const void *from, size_t bytes);
/* Until an event, or the stream if that is NULL, has ended. -ETIMEDOUT is no error yet. */
int cuda_wait(struct cuda *g, cu_event e, uint64_t limit_ns, uint64_t *end_ns);
/* Waits for the stream after WHAT. */
int cuda_settle(struct cuda *g, const char *what);

/* ---- load_cuda.c; for load_hip.c and bench/balance.c too ---- */

int cuda_open(const struct cuda_kind *kind, const struct load_ops *ops,
              const struct load_options *o, struct load_gpu **out, struct error *err);
void cuda_close(struct load_gpu *base);

/* The spinning kernel, its stream, state and speed. */
int cuda_set_up(struct cuda *g, const struct load_options *o, cu_device device);
/* Another state; kernels on one state run one after the other. */
cu_pointer cuda_make_state(struct cuda *g);

#endif
