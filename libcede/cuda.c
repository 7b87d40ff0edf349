/* libcede: libcuda and libnvidia-ml for leases; see gpus.h. Never linked, and never closed once
 * open, as they leave threads and exit handlers behind. A device's primary context is retained when
 * it is first needed. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/symbols.h"
#include "base/util.h"
#include "libcede/gpus.h"

/* Numbers of the driver API's and NVML's reference. */
enum { STREAM_NON_BLOCKING = 1 };
enum { ATTRIBUTE_SMS = 16, ATTRIBUTE_THREADS_PER_SM = 39, ATTRIBUTE_REGISTERS_PER_BLOCK = 12 };
enum { ATTRIBUTE_SHARED_PER_SM = 81, ATTRIBUTE_REGISTERS_PER_SM = 82, ATTRIBUTE_MAJOR = 75 };
enum { ATTRIBUTE_BLOCKS_PER_SM = 106, ATTRIBUTE_RESERVED_SHARED = 111 };
enum { FUNCTION_SHARED = 1, FUNCTION_REGISTERS = 4 };

struct rates {
    unsigned gpu, memory;
};

#define CUDA_CALLS(X)                                                                              \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(error_name, "cuGetErrorName", (int r, const char **s))                                       \
    X(device_count, "cuDeviceGetCount", (int *n))                                                  \
    X(device_get, "cuDeviceGet", (int *d, int ordinal))                                            \
    X(attribute, "cuDeviceGetAttribute", (int *v, int attribute, int d))                           \
    X(memory, "cuDeviceTotalMem_v2", (size_t * bytes, int d))                                      \
    X(mem_info, "cuMemGetInfo_v2", (size_t * free_bytes, size_t * total_bytes))                    \
    X(function, "cuFuncGetAttribute", (int *v, int attribute, void *f))                            \
    X(bus_id, "cuDeviceGetPCIBusId", (char *s, int len, int d))                                    \
    X(retain, "cuDevicePrimaryCtxRetain", (void **c, int d))                                       \
    X(release, "cuDevicePrimaryCtxRelease_v2", (int d))                                            \
    X(ctx_current, "cuCtxGetCurrent", (void **c))                                                  \
    X(ctx_device, "cuCtxGetDevice", (int *d))                                                      \
    X(push, "cuCtxPushCurrent_v2", (void *c))                                                      \
    X(pop, "cuCtxPopCurrent_v2", (void **c))                                                       \
    X(stream_create, "cuStreamCreateWithPriority", (void **s, unsigned flags, int priority))       \
    X(stream_destroy, "cuStreamDestroy_v2", (void *s))                                             \
    X(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor",                                    \
      (int *blocks, void *f, int threads, size_t shared_bytes))

#define NVML_CALLS(X)                                                                              \
    X(nvml_init, "nvmlInit_v2", (void))                                                            \
    X(nvml_shutdown, "nvmlShutdown", (void))                                                       \
    X(nvml_device, "nvmlDeviceGetHandleByPciBusId_v2", (const char *bus, void **d))                \
    X(nvml_rates, "nvmlDeviceGetUtilizationRates", (void *d, struct rates *out))

struct cuda_gpu {
    int device;
    void *context; /* NULL: not retained */
    void *nvml;    /* NULL: not known there */
    uint64_t memory_bytes;
};

struct cede_gpus {
#define X(field, symbol, args) int(*field) args;
    CUDA_CALLS(X)
    NVML_CALLS(X)
#undef X
    pthread_mutex_t lock; /* retaining contexts */
    bool nvml;
    unsigned n;
    struct cuda_gpu *gpus;
};

#define X(field, symbol, args) {symbol, offsetof(struct cede_gpus, field)},
static const struct symbol cuda_symbols[] = {CUDA_CALLS(X)}, nvml_symbols[] = {NVML_CALLS(X)};
#undef X

static bool cuda_load(struct cede_gpus *g, const char *name, const struct symbol *s, size_t n,
                      struct gpu_error *e)
{
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    e->text[0] = '\0'; /* a library that is not installed is no failure */
    if (!lib)
        return false;
    const char *missing = symbols_find(lib, s, n, g);
    if (missing)
        snprintf(e->text, sizeof(e->text), "%s has no %s: the driver is too old", name, missing);
    return !missing;
}

static int cuda_failed(const struct cede_gpus *g, int r, const char *what, unsigned device,
                       struct gpu_error *e)
{
    const char *name = NULL;
    if (r == 0)
        return 0;
    g->error_name(r, &name);
    snprintf(e->text, sizeof(e->text), "cannot %s on GPU %u: %s (%d)", what, device,
             name ? name : "unknown error", r);
    return -EIO;
}

static void cuda_find_nvml(struct cede_gpus *g)
{
    struct gpu_error why;
    char bus[32];
    g->nvml = cuda_load(g, "libnvidia-ml.so.1", nvml_symbols, ARRAY_SIZE(nvml_symbols), &why) &&
              g->nvml_init() == 0;
    for (unsigned i = 0; g->nvml && i < g->n; i++) {
        if (g->bus_id(bus, sizeof(bus), g->gpus[i].device) != 0 ||
            g->nvml_device(bus, &g->gpus[i].nvml) != 0)
            g->gpus[i].nvml = NULL;
    }
}

static int cuda_start(struct cede_gpus *g, struct gpu_error *e)
{
    int n = 0;
    if (!cuda_load(g, "libcuda.so.1", cuda_symbols, ARRAY_SIZE(cuda_symbols), e) ||
        cuda_failed(g, g->init(0), "start the driver (cuInit)", 0, e) ||
        cuda_failed(g, g->device_count(&n), "count the GPUs", 0, e))
        return -ENODEV;
    if (n < 1) {
        snprintf(e->text, sizeof(e->text), "no GPU is visible");
        return -ENODEV;
    }
    g->gpus = calloc((size_t)n, sizeof(*g->gpus));
    if (!g->gpus)
        return -ENOMEM;
    for (; g->n < (unsigned)n; g->n++) {
        struct cuda_gpu *d = &g->gpus[g->n];
        size_t bytes = 0;
        if (cuda_failed(g, g->device_get(&d->device, (int)g->n), "find the device", g->n, e))
            return -ENODEV;
        if (g->memory(&bytes, d->device) == 0)
            d->memory_bytes = bytes;
    }
    cuda_find_nvml(g);
    return 0;
}

int cede_gpus_open(struct cede_gpus **out, struct gpu_error *e)
{
    struct cede_gpus *g = calloc(1, sizeof(*g));
    *out = NULL;
    if (!g)
        return -ENOMEM;
    pthread_mutex_init(&g->lock, NULL);
    int r = cuda_start(g, e);
    if (r)
        cede_gpus_close(g);
    else
        *out = g;
    return r;
}

void cede_gpus_close(struct cede_gpus *g)
{
    if (!g)
        return;
    for (unsigned i = 0; i < g->n; i++) {
        if (g->gpus[i].context)
            g->release(g->gpus[i].device);
    }
    if (g->nvml)
        g->nvml_shutdown();
    pthread_mutex_destroy(&g->lock);
    free(g->gpus);
    free(g);
}

unsigned cede_gpus_count(const struct cede_gpus *g)
{
    return g->n;
}

uint64_t cede_gpus_memory(const struct cede_gpus *g, unsigned device)
{
    return g->gpus[device].memory_bytes;
}

/* Makes the primary context current, until cuda_leave(). */
static int cuda_enter(struct cede_gpus *g, unsigned device, struct gpu_error *e)
{
    struct cuda_gpu *d = &g->gpus[device];
    int r = 0;
    pthread_mutex_lock(&g->lock);
    if (!d->context)
        r = cuda_failed(g, g->retain(&d->context, d->device), "retain the primary context", device,
                        e);
    if (r)
        d->context = NULL;
    pthread_mutex_unlock(&g->lock);
    return r ? r : cuda_failed(g, g->push(d->context), "make the context current", device, e);
}

static void cuda_leave(struct cede_gpus *g)
{
    void *was;
    g->pop(&was);
}

int cede_gpus_stream(struct cede_gpus *g, unsigned device, unsigned level, void **out,
                     struct gpu_error *e)
{
    int r = cuda_enter(g, device, e);
    if (r)
        return r;
    r = cuda_failed(g, g->stream_create(out, STREAM_NON_BLOCKING, -(int)level), "create a stream",
                    device, e);
    cuda_leave(g);
    return r;
}

void cede_gpus_stream_end(struct cede_gpus *g, unsigned device, void *stream)
{
    struct gpu_error why;
    if (cuda_enter(g, device, &why))
        return;
    g->stream_destroy(stream);
    cuda_leave(g);
}

int cede_gpus_free(struct cede_gpus *g, unsigned device, uint64_t *bytes)
{
    struct gpu_error why;
    size_t free_bytes = 0, total_bytes = 0;
    if (cuda_enter(g, device, &why))
        return -EIO;
    int r = g->mem_info(&free_bytes, &total_bytes);
    cuda_leave(g);
    *bytes = free_bytes;
    return r ? -EIO : 0;
}

void *cede_gpus_context(const struct cede_gpus *g)
{
    void *c = NULL;
    return g->ctx_current(&c) == 0 ? c : NULL;
}

/* 0 where the driver does not know the attribute: it has no such limit. */
static uint32_t cuda_attribute(const struct cede_gpus *g, int attribute, int device)
{
    int v = 0;
    return g->attribute(&v, attribute, device) == 0 && v > 0 ? (uint32_t)v : 0;
}

static struct sm_limits cuda_limits(const struct cede_gpus *g, int device)
{
    return (struct sm_limits){
        .threads = cuda_attribute(g, ATTRIBUTE_THREADS_PER_SM, device),
        .blocks = cuda_attribute(g, ATTRIBUTE_BLOCKS_PER_SM, device),
        .registers = cuda_attribute(g, ATTRIBUTE_REGISTERS_PER_SM, device),
        .block_registers = cuda_attribute(g, ATTRIBUTE_REGISTERS_PER_BLOCK, device),
        .shared_bytes = cuda_attribute(g, ATTRIBUTE_SHARED_PER_SM, device),
        .reserved_bytes = cuda_attribute(g, ATTRIBUTE_RESERVED_SHARED, device),
        .major = cuda_attribute(g, ATTRIBUTE_MAJOR, device)};
}

int cede_gpus_profile(struct cede_gpus *g, void *context, void *function, unsigned threads,
                      unsigned shared_bytes, struct gpu_profile *out, struct gpu_error *e)
{
    int blocks = 0, sms = 0, registers = 0, fixed = 0, d = 0;
    /* GPU 0 in the texts: which one the function is on is not known */
    if (context ? cuda_failed(g, g->push(context), "make a kernel's context current", 0, e)
                : cuda_enter(g, 0, e))
        return -EIO;
    bool failed = cuda_failed(g, g->ctx_device(&d), "ask for a context's GPU", 0, e) ||
                  cuda_failed(g, g->occupancy(&blocks, function, (int)threads, shared_bytes),
                              "ask for a kernel's occupancy", 0, e) ||
                  cuda_failed(g, g->attribute(&sms, ATTRIBUTE_SMS, d), "ask for the SMs", 0, e) ||
                  cuda_failed(g, g->function(&registers, FUNCTION_REGISTERS, function),
                              "ask for a kernel's registers", 0, e) ||
                  cuda_failed(g, g->function(&fixed, FUNCTION_SHARED, function),
                              "ask for a kernel's shared memory", 0, e);
    struct sm_limits sm = cuda_limits(g, d);
    cuda_leave(g);
    if (failed)
        return -EIO;
    if (blocks < 1 || sms < 1 || !sm.threads) {
        snprintf(e->text, sizeof(e->text),
                 "the kernel does not fit on an SM with blocks of %u threads and %u bytes of "
                 "shared memory",
                 threads, shared_bytes);
        return -EIO;
    }
    *out = (struct gpu_profile){.threads = threads,
                                .blocks_per_sm = (uint32_t)blocks,
                                .sms = (uint32_t)sms,
                                .registers = (uint32_t)registers,
                                .shared_bytes = (uint32_t)fixed + shared_bytes,
                                .sm = sm};
    return 0;
}

int cede_gpus_utilization(struct cede_gpus *g, unsigned device, unsigned *percent)
{
    struct rates rates = {0};
    if (!g->gpus[device].nvml || g->nvml_rates(g->gpus[device].nvml, &rates) != 0)
        return -ENOTSUP;
    *percent = rates.gpu < 100 ? rates.gpu : 100;
    return 0;
}
