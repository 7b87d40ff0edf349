/* libcede: libcuda for the overlap loop and the future map; see step_gpu.h. Never linked. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/symbols.h"
#include "base/util.h"
#include "libcede/step_gpu.h"

/* Numbers of the driver API's reference. */
enum { NOT_READY = 600, EVENT_BLOCKING_SYNC = 1, STREAM_NONBLOCKING = 1 };
enum { HOST_PORTABLE = 1, HOST_DEVICEMAP = 2 };

#define THREADS 256U /* of a block */

#define STEP_CALLS(X)                                                                              \
    X(error_name, "cuGetErrorName", (int r, const char **s))                                       \
    X(ctx_current, "cuCtxGetCurrent", (void **context))                                            \
    X(module_load, "cuModuleLoadData", (void **module, const void *image))                         \
    X(module_unload, "cuModuleUnload", (void *module))                                             \
    X(module_function, "cuModuleGetFunction", (void **f, void *module, const char *name))          \
    X(stream_create, "cuStreamCreateWithPriority", (void **s, unsigned flags, int priority))       \
    X(stream_destroy, "cuStreamDestroy_v2", (void *s))                                             \
    X(stream_sync, "cuStreamSynchronize", (void *s))                                               \
    X(event_create, "cuEventCreate", (void **e, unsigned flags))                                   \
    X(event_destroy, "cuEventDestroy_v2", (void *e))                                               \
    X(event_record, "cuEventRecord", (void *e, void *s))                                           \
    X(event_query, "cuEventQuery", (void *e))                                                      \
    X(event_sync, "cuEventSynchronize", (void *e))                                                 \
    X(event_elapsed, "cuEventElapsedTime", (float *ms, void *from, void *to))                      \
    X(alloc, "cuMemAlloc_v2", (uint64_t * address, size_t bytes))                                  \
    X(dealloc, "cuMemFree_v2", (uint64_t address))                                                 \
    X(clear, "cuMemsetD8_v2", (uint64_t address, unsigned char value, size_t bytes))               \
    X(host_alloc, "cuMemHostAlloc", (void **p, size_t bytes, unsigned flags))                      \
    X(host_pointer, "cuMemHostGetDevicePointer_v2", (uint64_t * address, void *p, unsigned flags)) \
    X(host_free, "cuMemFreeHost", (void *p))                                                       \
    X(copy_out, "cuMemcpyDtoHAsync_v2", (void *to, uint64_t from, size_t bytes, void *s))          \
    X(launch, "cuLaunchKernel",                                                                    \
      (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,      \
       unsigned shared_bytes, void *s, void **params, void **extra))

struct step_gpu {
#define X(field, symbol, args) int(*field) args;
    STEP_CALLS(X)
#undef X
    void *module, *kernels[FUTURE_KERNELS];
};

static int step_failed(const struct step_gpu *g, int r, const char *what, struct gpu_error *e)
{
    const char *name = NULL;
    if (r == 0)
        return 0;
    g->error_name(r, &name);
    snprintf(e->text, sizeof(e->text), "cannot %s: %s (%d)", what, name ? name : "unknown error",
             r);
    return -EIO;
}

static int step_load_kernels(struct step_gpu *g, struct gpu_error *e)
{
    static const char *const names[] = {"cede_future_place", "cede_future_store",
                                        "cede_future_resolve"};
    int r = step_failed(g, g->module_load(&g->module, cede_future_ptx),
                        "load the future map's kernels", e);
    for (unsigned i = 0; r == 0 && i < FUTURE_KERNELS; i++)
        r = step_failed(g, g->module_function(&g->kernels[i], g->module, names[i]),
                        "find the future map's kernels", e);
    return r;
}

int cede_step_gpu_open(struct step_gpu **out, bool kernels, struct gpu_error *e)
{
    static const struct symbol calls[] = {
#define X(field, symbol, args) {symbol, offsetof(struct step_gpu, field)},
        STEP_CALLS(X)
#undef X
    };
    void *context = NULL;
    *out = NULL;
    struct step_gpu *g = calloc(1, sizeof(*g));
    if (!g)
        return -ENOMEM;
    /* NOLOAD: without the program's own CUDA there is no context */
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int r = lib && !symbols_find(lib, calls, ARRAY_SIZE(calls), g) &&
                    g->ctx_current(&context) == 0 && context
                ? 0
                : -ENOSYS;
    if (r == 0 && kernels)
        r = step_load_kernels(g, e);
    if (r)
        cede_step_gpu_close(g);
    else
        *out = g;
    return r;
}

void cede_step_gpu_close(struct step_gpu *g)
{
    if (!g)
        return;
    if (g->module)
        g->module_unload(g->module);
    free(g);
}

int cede_step_gpu_stream(struct step_gpu *g, void **out, struct gpu_error *e)
{
    return step_failed(g, g->stream_create(out, STREAM_NONBLOCKING, 0), "create a stream", e);
}

void cede_step_gpu_stream_end(struct step_gpu *g, void *stream)
{
    g->stream_destroy(stream);
}

void cede_step_gpu_drain(struct step_gpu *g, void *stream)
{
    g->stream_sync(stream);
}

int cede_step_gpu_event(struct step_gpu *g, bool blocking, void **out, struct gpu_error *e)
{
    return step_failed(g, g->event_create(out, blocking ? EVENT_BLOCKING_SYNC : 0),
                       "create an event", e);
}

void cede_step_gpu_event_end(struct step_gpu *g, void *event)
{
    g->event_destroy(event);
}

int cede_step_gpu_record(struct step_gpu *g, void *event, void *stream, struct gpu_error *e)
{
    return step_failed(g, g->event_record(event, stream), "record an event", e);
}

int cede_step_gpu_done(struct step_gpu *g, void *event, struct gpu_error *e)
{
    int r = g->event_query(event);
    return r == NOT_READY ? 0 : r == 0 ? 1 : step_failed(g, r, "run a step", e);
}

int cede_step_gpu_wait(struct step_gpu *g, void *event, struct gpu_error *e)
{
    return step_failed(g, g->event_sync(event), "run a step", e);
}

int64_t cede_step_gpu_elapsed_ns(struct step_gpu *g, void *from, void *to)
{
    float ms = 0;
    return g->event_elapsed(&ms, from, to) == 0 ? (int64_t)((double)ms * 1e6) : 0;
}

int cede_step_gpu_memory(struct step_gpu *g, size_t bytes, uint64_t *address, struct gpu_error *e)
{
    int r = step_failed(g, g->alloc(address, bytes), "allocate GPU memory", e);
    if (r == 0)
        r = step_failed(g, g->clear(*address, 0, bytes), "clear GPU memory", e);
    /* The default stream clears it, for which non-blocking streams do not wait. */
    return r ? r : step_failed(g, g->stream_sync(NULL), "clear GPU memory", e);
}

void cede_step_gpu_memory_end(struct step_gpu *g, uint64_t address)
{
    g->dealloc(address);
}

int cede_step_gpu_pinned(struct step_gpu *g, size_t bytes, void **out, uint64_t *address,
                         struct gpu_error *e)
{
    int r = step_failed(g, g->host_alloc(out, bytes, HOST_PORTABLE | HOST_DEVICEMAP),
                        "allocate pinned memory", e);
    if (r)
        return r;
    memset(*out, 0, bytes);
    return step_failed(g, g->host_pointer(address, *out, 0), "map pinned memory", e);
}

void cede_step_gpu_pinned_end(struct step_gpu *g, void *p)
{
    g->host_free(p);
}

int cede_step_gpu_copy_out(struct step_gpu *g, void *to, uint64_t from, size_t bytes, void *stream,
                           struct gpu_error *e)
{
    return step_failed(g, g->copy_out(to, from, bytes, stream), "copy a step's results", e);
}

int cede_step_gpu_launch(struct step_gpu *g, enum future_kernel k, unsigned n, void **params,
                         void *stream, struct gpu_error *e)
{
    unsigned blocks = (n + THREADS - 1) / THREADS, threads = n < THREADS ? n : THREADS;
    return step_failed(
        g, g->launch(g->kernels[k], blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL),
        "launch a kernel of the future map", e);
}
