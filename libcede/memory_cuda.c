/* libcede: libcuda and libnvidia-ml for memory; see memory_gpu.h. Never linked, and never closed
 * once open. The primary context is retained from opening to closing. */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/symbols.h"
#include "base/util.h"
#include "libcede/memory_gpu.h"

/* Numbers of the driver API's and NVML's reference. */
enum { OUT_OF_MEMORY = 2, STREAM_NONBLOCKING = 1, CONCURRENT_MANAGED_ACCESS = 89 };
enum { LOCATION_DEVICE = 1 };
enum { SET_READ_MOSTLY = 1, SET_PREFERRED_LOCATION = 3, SET_ACCESSED_BY = 5 };
enum { NVML_INSUFFICIENT_SIZE = 7 };

#define PROCESSES_MAX 1024U

struct location {
    int type, id;
};

struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned instances[2];
};

#define MEMORY_CALLS(X)                                                                            \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(error_name, "cuGetErrorName", (int r, const char **s))                                       \
    X(device_get, "cuDeviceGet", (int *d, int ordinal))                                            \
    X(attribute, "cuDeviceGetAttribute", (int *v, int attribute, int d))                           \
    X(total, "cuDeviceTotalMem_v2", (size_t * bytes, int d))                                       \
    X(bus_id, "cuDeviceGetPCIBusId", (char *s, int len, int d))                                    \
    X(retain, "cuDevicePrimaryCtxRetain", (void **c, int d))                                       \
    X(release, "cuDevicePrimaryCtxRelease_v2", (int d))                                            \
    X(push, "cuCtxPushCurrent_v2", (void *c))                                                      \
    X(pop, "cuCtxPopCurrent_v2", (void **c))                                                       \
    X(info, "cuMemGetInfo_v2", (size_t * available, size_t * all))                                 \
    X(alloc, "cuMemAlloc_v2", (unsigned long long *address, size_t bytes))                         \
    X(dealloc, "cuMemFree_v2", (unsigned long long address))                                       \
    X(stream_create, "cuStreamCreateWithPriority", (void **s, unsigned flags, int priority))       \
    X(stream_destroy, "cuStreamDestroy_v2", (void *s))                                             \
    X(stream_sync, "cuStreamSynchronize", (void *s))

/* Each may be missing: a driver has the first two, from CUDA 12.2 on all. */
#define MANAGED_CALLS(X)                                                                           \
    X(prefetch, "cuMemPrefetchAsync",                                                              \
      (unsigned long long address, size_t bytes, int device, void *s))                             \
    X(advise, "cuMemAdvise", (unsigned long long address, size_t bytes, int advice, int device))   \
    X(prefetch2, "cuMemPrefetchAsync_v2",                                                          \
      (unsigned long long address, size_t bytes, struct location to, unsigned flags, void *s))     \
    X(advise2, "cuMemAdvise_v2",                                                                   \
      (unsigned long long address, size_t bytes, int advice, struct location where))

#define UUID_CALLS(X) X(uuid_of, "cuDeviceGetUuid_v2", (unsigned char uuid[16], int d))

#define USERS_CALLS(X)                                                                             \
    X(nvml_init, "nvmlInit_v2", (void))                                                            \
    X(nvml_shutdown, "nvmlShutdown", (void))                                                       \
    X(nvml_device, "nvmlDeviceGetHandleByPciBusId_v2", (const char *bus, void **d))                \
    X(nvml_processes, "nvmlDeviceGetComputeRunningProcesses_v3",                                   \
      (void *d, unsigned *n, struct process *v))

struct memory_gpu {
#define X(field, symbol, args) int(*field) args;
    MEMORY_CALLS(X)
    MANAGED_CALLS(X)
    UUID_CALLS(X)
    USERS_CALLS(X)
#undef X
    int ordinal, device;
    void *context, *nvml; /* NULL: none */
    bool nvml_on;
    uint64_t total_bytes;
    char uuid[48];
    const char *unmanaged;
};

#define X(field, symbol, args) {symbol, offsetof(struct memory_gpu, field)},
static const struct symbol memory_symbols[] = {MEMORY_CALLS(X)},
                           managed_symbols[] = {MANAGED_CALLS(X)}, uuid_symbols[] = {UUID_CALLS(X)},
                           users_symbols[] = {USERS_CALLS(X)};
#undef X

static int memory_gpu_failed(const struct memory_gpu *g, int r, const char *what,
                             struct gpu_error *e)
{
    const char *name = NULL;
    if (r == 0)
        return 0;
    g->error_name(r, &name);
    snprintf(e->text, sizeof(e->text), "cannot %s on GPU %d: %s (%d)", what, g->ordinal,
             name ? name : "unknown error", r);
    return r == OUT_OF_MEMORY ? -ENOMEM : -EIO;
}

/* Makes the primary context current, until memory_gpu_leave(). */
static int memory_gpu_enter(struct memory_gpu *g, struct gpu_error *e)
{
    return memory_gpu_failed(g, g->push(g->context), "make the context current", e) ? -EIO : 0;
}

static void memory_gpu_leave(struct memory_gpu *g)
{
    void *was;
    g->pop(&was);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void memory_gpu_find_uuid(struct memory_gpu *g)
{
    unsigned char b[16] = {0};
    if (!g->uuid_of || g->uuid_of(b, g->device) != 0)
        return;
    char *to = g->uuid + snprintf(g->uuid, sizeof(g->uuid), "GPU-");
    for (int i = 0; i < 16; i++)
        to += snprintf(to, 4, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", b[i]);
}

static void memory_gpu_find_users(struct memory_gpu *g)
{
    char bus[32];
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib || symbols_find(lib, users_symbols, ARRAY_SIZE(users_symbols), g) ||
        g->nvml_init() != 0)
        return;
    g->nvml_on = true;
    if (g->bus_id(bus, sizeof(bus), g->device) != 0 || g->nvml_device(bus, &g->nvml) != 0)
        g->nvml = NULL;
}

static void memory_gpu_find_managed(struct memory_gpu *g)
{
    int concurrent = 0;
    if (g->attribute(&concurrent, CONCURRENT_MANAGED_ACCESS, g->device) != 0 || !concurrent)
        g->unmanaged = "the device cannot move managed memory while programs run "
                       "(no concurrent managed access)";
    else if (!g->prefetch2 && !g->prefetch)
        g->unmanaged = "the driver has no cuMemPrefetchAsync";
}

static int memory_gpu_start(struct memory_gpu *g, struct gpu_error *e)
{
    size_t bytes = 0;
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return -ENODEV; /* without a text: that it is not installed is no failure */
    const char *missing = symbols_find(lib, memory_symbols, ARRAY_SIZE(memory_symbols), g);
    if (missing) {
        snprintf(e->text, sizeof(e->text), "libcuda.so.1 has no %s: the driver is too old",
                 missing);
        return -ENODEV;
    }
    for (size_t i = 0; i < ARRAY_SIZE(managed_symbols); i++)
        (void)symbols_find(lib, &managed_symbols[i], 1, g);
    (void)symbols_find(lib, uuid_symbols, 1, g);
    if (memory_gpu_failed(g, g->init(0), "start the driver (cuInit)", e) ||
        memory_gpu_failed(g, g->device_get(&g->device, g->ordinal), "find the device", e))
        return -ENODEV;
    if (memory_gpu_failed(g, g->total(&bytes, g->device), "ask for the memory", e) ||
        memory_gpu_failed(g, g->retain(&g->context, g->device), "retain the primary context", e))
        return -EIO;
    g->total_bytes = bytes;
    memory_gpu_find_uuid(g);
    memory_gpu_find_managed(g);
    memory_gpu_find_users(g);
    return 0;
}

int cede_memory_gpu_open(int device, struct memory_gpu **out, struct gpu_error *e)
{
    struct memory_gpu *g = calloc(1, sizeof(*g));
    *out = NULL;
    if (!g)
        return -ENOMEM;
    g->ordinal = device;
    int r = memory_gpu_start(g, e);
    if (r)
        cede_memory_gpu_close(g);
    else
        *out = g;
    return r;
}

void cede_memory_gpu_close(struct memory_gpu *g)
{
    if (!g)
        return;
    if (g->context)
        g->release(g->device);
    if (g->nvml_on)
        g->nvml_shutdown();
    free(g);
}

uint64_t cede_memory_gpu_total(const struct memory_gpu *g)
{
    return g->total_bytes;
}

const char *cede_memory_gpu_uuid(const struct memory_gpu *g)
{
    return g->uuid;
}

/* ---- allocations ----------------------------------------------------------------------------- */

int cede_memory_gpu_free(struct memory_gpu *g, uint64_t *bytes, struct gpu_error *e)
{
    size_t available = 0, all = 0;
    if (memory_gpu_enter(g, e))
        return -EIO;
    int r = memory_gpu_failed(g, g->info(&available, &all), "ask for free memory", e);
    memory_gpu_leave(g);
    *bytes = available;
    return r ? -EIO : 0;
}

int cede_memory_gpu_allocate(struct memory_gpu *g, uint64_t bytes, uint64_t *address,
                             struct gpu_error *e)
{
    unsigned long long at = 0;
    if (memory_gpu_enter(g, e))
        return -EIO;
    int r = memory_gpu_failed(g, g->alloc(&at, bytes), "allocate memory", e);
    memory_gpu_leave(g);
    *address = at;
    return r;
}

int cede_memory_gpu_release(struct memory_gpu *g, uint64_t address, struct gpu_error *e)
{
    if (memory_gpu_enter(g, e))
        return -EIO;
    int r = memory_gpu_failed(g, g->dealloc(address), "free memory", e);
    memory_gpu_leave(g);
    return r ? -EIO : 0;
}

/* ---- managed memory -------------------------------------------------------------------------- */

const char *cede_memory_gpu_unmanaged(const struct memory_gpu *g)
{
    return g->unmanaged;
}

int cede_memory_gpu_advise(struct memory_gpu *g, const struct cede_range *range,
                           struct gpu_error *e)
{
    static const struct {
        unsigned advice;
        int number;
    } all[] = {{CEDE_RANGE_READ_MOSTLY, SET_READ_MOSTLY},
               {CEDE_RANGE_PREFER_DEVICE, SET_PREFERRED_LOCATION},
               {CEDE_RANGE_ACCESSED_BY_DEVICE, SET_ACCESSED_BY}};
    const struct location here = {LOCATION_DEVICE, g->device};
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(all) && r == 0; i++) {
        if (!(range->advice & all[i].advice))
            continue;
        if (!g->advise2 && !g->advise) {
            snprintf(e->text, sizeof(e->text), "the driver has no cuMemAdvise");
            return -EIO;
        }
        r = g->advise2 ? g->advise2(range->address, range->bytes, all[i].number, here)
                       : g->advise(range->address, range->bytes, all[i].number, g->device);
    }
    return memory_gpu_failed(g, r, "advise on a range", e) ? -EIO : 0;
}

int cede_memory_gpu_prefetch(struct memory_gpu *g, const struct cede_range *range, void **stream,
                             struct gpu_error *e)
{
    const struct location here = {LOCATION_DEVICE, g->device};
    int r = 0;
    if (memory_gpu_enter(g, e))
        return -EIO;
    if (!*stream)
        r = g->stream_create(stream, STREAM_NONBLOCKING, 0);
    if (r)
        *stream = NULL;
    else
        r = g->prefetch2 ? g->prefetch2(range->address, range->bytes, here, 0, *stream)
                         : g->prefetch(range->address, range->bytes, g->device, *stream);
    memory_gpu_leave(g);
    return memory_gpu_failed(g, r, "prefetch a range", e) ? -EIO : 0;
}

int cede_memory_gpu_finish(struct memory_gpu *g, void *stream, struct gpu_error *e)
{
    if (memory_gpu_enter(g, e))
        return -EIO;
    int r = memory_gpu_failed(g, g->stream_sync(stream), "wait for a prefetch", e);
    g->stream_destroy(stream);
    memory_gpu_leave(g);
    return r ? -EIO : 0;
}

/* ---- processes ------------------------------------------------------------------------------- */

int cede_memory_gpu_users(struct memory_gpu *g, struct cede_memory_user *users, unsigned n)
{
    unsigned there = PROCESSES_MAX;
    if (!g->nvml)
        return -ENOTSUP;
    struct process *v = calloc(there, sizeof(*v));
    if (!v)
        return -ENOMEM;
    int r = g->nvml_processes(g->nvml, &there, v);
    if (r == 0) {
        for (unsigned i = 0; i < there && i < n; i++)
            users[i] = (struct cede_memory_user){.pid = (int)v[i].pid, .bytes = v[i].bytes};
    }
    free(v);
    return r == 0 ? (int)there : -ENOTSUP;
}
