/* A step that adds numbers to words in GPU memory, on the driver API alone, for the tests of graphs
 * and bench/graph_cost.c. Works with a real libcuda and with the stand-in. */
#ifndef CEDE_BENCH_GRAPH_RIG_H
#define CEDE_BENCH_GRAPH_RIG_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/symbols.h"
#include "base/util.h"

typedef unsigned long long rig_pointer;

#define RIG_CALLS(X)                                                                               \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(error_name, "cuGetErrorName", (int r, const char **s))                                       \
    X(device_get, "cuDeviceGet", (int *d, int ordinal))                                            \
    X(retain, "cuDevicePrimaryCtxRetain", (void **c, int d))                                       \
    X(release, "cuDevicePrimaryCtxRelease_v2", (int d))                                            \
    X(push, "cuCtxPushCurrent_v2", (void *c))                                                      \
    X(pop, "cuCtxPopCurrent_v2", (void **c))                                                       \
    X(ctx_synchronize, "cuCtxSynchronize", (void))                                                 \
    X(module_load, "cuModuleLoadData", (void **module, const void *image))                         \
    X(module_unload, "cuModuleUnload", (void *module))                                             \
    X(module_function, "cuModuleGetFunction", (void **f, void *module, const char *name))          \
    X(mem_alloc, "cuMemAlloc_v2", (rig_pointer * p, size_t bytes))                                 \
    X(mem_free, "cuMemFree_v2", (rig_pointer p))                                                   \
    X(mem_alloc_async, "cuMemAllocAsync", (rig_pointer * p, size_t bytes, void *stream))           \
    X(mem_free_async, "cuMemFreeAsync", (rig_pointer p, void *stream))                             \
    X(copy_in, "cuMemcpyHtoD_v2", (rig_pointer to, const void *from, size_t bytes))                \
    X(copy_out, "cuMemcpyDtoH_v2", (void *to, rig_pointer from, size_t bytes))                     \
    X(stream_create, "cuStreamCreate", (void **stream, unsigned flags))                            \
    X(stream_destroy, "cuStreamDestroy_v2", (void *stream))                                        \
    X(stream_synchronize, "cuStreamSynchronize", (void *stream))                                   \
    X(stream_query, "cuStreamQuery", (void *stream))                                               \
    X(stream_wait, "cuStreamWaitEvent", (void *stream, void *event, unsigned flags))               \
    X(event_create, "cuEventCreate", (void **event, unsigned flags))                               \
    X(event_destroy, "cuEventDestroy_v2", (void *event))                                           \
    X(event_record, "cuEventRecord", (void *event, void *stream))                                  \
    X(event_query, "cuEventQuery", (void *event))                                                  \
    X(event_synchronize, "cuEventSynchronize", (void *event))                                      \
    X(capturing, "cuStreamIsCapturing", (void *stream, int *status))                               \
    X(exchange_mode, "cuThreadExchangeStreamCaptureMode", (int *mode))                             \
    X(begin, "cuStreamBeginCapture_v2", (void *stream, int mode))                                  \
    X(end, "cuStreamEndCapture", (void *stream, void **graph))                                     \
    X(device_name, "cuDeviceGetName", (char *name, int length, int d))                             \
    X(driver_version, "cuDriverGetVersion", (int *version))                                        \
    X(instantiate, "cuGraphInstantiateWithFlags",                                                  \
      (void **exec, void *graph, unsigned long long flags))                                        \
    X(graph_launch, "cuGraphLaunch", (void *exec, void *stream))                                   \
    X(exec_destroy, "cuGraphExecDestroy", (void *exec))                                            \
    X(graph_destroy, "cuGraphDestroy", (void *graph))                                              \
    X(launch, "cuLaunchKernel",                                                                    \
      (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,      \
       unsigned shared_bytes, void *stream, void **params, void **extra))

enum { RIG_NON_BLOCKING = 1, RIG_GLOBAL = 0, RIG_THREAD_LOCAL = 1, RIG_RELAXED = 2 };
#define RIG_WORDS 16 /* of GPU memory */

struct rig {
    struct {
#define X(field, symbol, args) int(*field) args;
        RIG_CALLS(X)
#undef X
    } cu;
    int device;
    void *context, *module, *add;
    rig_pointer words;
};

/* NULL, or what failed. */
static inline const char *rig_open(struct rig *r, const char *ptx)
{
#define X(field, symbol, args)                                                                     \
    {symbol, offsetof(struct rig, cu) + offsetof(__typeof__(((struct rig *)0)->cu), field)},
    static const struct symbol symbols[] = {RIG_CALLS(X)};
#undef X
    static const uint32_t zeros[RIG_WORDS];
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    *r = (struct rig){.device = 0};
    if (!lib)
        return "there is no libcuda.so.1";
    const char *missing = symbols_find(lib, symbols, ARRAY_SIZE(symbols), r);
    if (missing)
        return missing;
    if (r->cu.init(0) || r->cu.device_get(&r->device, 0) || r->cu.retain(&r->context, r->device))
        return "there is no GPU";
    if (r->cu.push(r->context) || r->cu.module_load(&r->module, ptx) ||
        r->cu.module_function(&r->add, r->module, "graph_add") ||
        r->cu.mem_alloc(&r->words, sizeof(zeros)) || r->cu.copy_in(r->words, zeros, sizeof(zeros)))
        return "the kernel cannot be set up";
    return NULL;
}

static inline void rig_close(struct rig *r)
{
    void *was;
    r->cu.mem_free(r->words);
    r->cu.module_unload(r->module);
    r->cu.pop(&was);
    r->cu.release(r->device);
}

/* Adds to word i, on a stream. A CUresult. */
static inline int rig_add(struct rig *r, void *stream, unsigned i, uint32_t number)
{
    rig_pointer word = r->words + i * sizeof(uint32_t);
    void *params[] = {&word, &number};
    return r->cu.launch(r->add, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

/* Its device and driver, as members of a JSON object; r NULL: there is none, but `instead`. */
static inline void rig_describe(FILE *f, const struct rig *r, const char *instead)
{
    char name[128];
    int version = 0;
    snprintf(name, sizeof(name), "%s", instead);
    if (r) {
        r->cu.device_name(name, sizeof(name), r->device);
        r->cu.driver_version(&version);
    }
    fprintf(f, "\"device\":\"%s\",\"cuda\":%d", name, version);
}

/* A word, when all work before has ended. */
static inline uint32_t rig_word(struct rig *r, unsigned i)
{
    uint32_t v = UINT32_MAX;
    if (r->cu.ctx_synchronize() || r->cu.copy_out(&v, r->words + i * sizeof(v), sizeof(v)))
        return UINT32_MAX;
    return v;
}

#endif
