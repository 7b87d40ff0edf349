/* libcede: libcuda and libnvidia-ml for leases and memory; see gpus.h. */
#include "libcede/gpus.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/symbols.h"
#include "base/util.h"

/* Numbers of the driver API's and NVML's reference. */
enum { ATTRIBUTE_SMS = 16, ATTRIBUTE_THREADS_PER_SM = 39, ATTRIBUTE_REGISTERS_PER_BLOCK = 12 };
enum { ATTRIBUTE_SHARED_PER_SM = 81, ATTRIBUTE_REGISTERS_PER_SM = 82, ATTRIBUTE_MAJOR = 75 };
enum { ATTRIBUTE_BLOCKS_PER_SM = 106, ATTRIBUTE_RESERVED_SHARED = 111 };
enum { CONCURRENT_MANAGED_ACCESS = 89, LOCATION_DEVICE = 1 };
enum { FUNCTION_SHARED = 1, FUNCTION_REGISTERS = 4 };
enum { SET_READ_MOSTLY = 1, SET_PREFERRED_LOCATION = 3, SET_ACCESSED_BY = 5 };

#define PROCESSES_MAX 1024U

struct rates {
    unsigned gpu, memory;
};

struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned instances[2];
};

/* The last two may be missing. */
#define NVML_CALLS(X)                                                                              \
    X(nvml_init, "nvmlInit_v2", (void))                                                            \
    X(nvml_shutdown, "nvmlShutdown", (void))                                                       \
    X(nvml_device, "nvmlDeviceGetHandleByPciBusId_v2", (const char *bus, void **d))                \
    X(nvml_rates, "nvmlDeviceGetUtilizationRates", (void *d, struct rates *out))                   \
    X(nvml_processes, "nvmlDeviceGetComputeRunningProcesses_v3",                                   \
      (void *d, unsigned *n, struct process *v))

struct gpu {
    int ordinal, device;
    void *context; /* NULL: not retained */
    void *nvml;    /* NULL: not known there */
    struct gpu_facts facts;
};

struct cede_gpus {
    struct cuda cu;
#define X(field, symbol, args) int(*field) args;
    NVML_CALLS(X)
#undef X
    pthread_mutex_t lock; /* retaining contexts */
    bool nvml;
    unsigned n;
    struct gpu *gpus;
};

static int gpus_failed(const struct cede_gpus *g, int r, const char *what, unsigned device,
                       struct gpu_error *e)
{
    char text[80];
    snprintf(text, sizeof(text), "%s on GPU %d", what,
             g->gpus ? g->gpus[device].ordinal : (int)device);
    return cede_cuda_failed(&g->cu, r, text, e);
}

/* Makes the primary context current, until gpus_leave(). */
static int gpus_enter(struct cede_gpus *g, unsigned device, struct gpu_error *e)
{
    struct gpu *d = &g->gpus[device];
    int r = 0;
    pthread_mutex_lock(&g->lock);
    if (!d->context)
        r = gpus_failed(g, g->cu.retain(&d->context, d->device), "retain the primary context",
                        device, e);
    if (r)
        d->context = NULL;
    pthread_mutex_unlock(&g->lock);
    return r ? r : gpus_failed(g, g->cu.push(d->context), "make the context current", device, e);
}

static int gpus_leave(const struct cede_gpus *g, int r)
{
    void *was;
    g->cu.pop(&was);
    return r;
}

/* A call of the driver in the device's primary context. */
#define IN_CONTEXT(g, device, e, what, call)                                                       \
    (gpus_enter(g, device, e) ?: gpus_leave(g, gpus_failed(g, call, what, device, e)))

/* ---- opening --------------------------------------------------------------------------------- */

static void gpus_find_nvml(struct cede_gpus *g)
{
    static const struct symbol calls[] = {
#define X(field, symbol, args) {symbol, offsetof(struct cede_gpus, field)},
        NVML_CALLS(X)
#undef X
    };
    char bus[32];
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; lib && i < ARRAY_SIZE(calls); i++)
        (void)symbols_find(lib, &calls[i], 1, g);
    g->nvml = g->nvml_init && g->nvml_shutdown && g->nvml_device && g->nvml_init() == 0;
    for (unsigned i = 0; g->nvml && i < g->n; i++) {
        if (g->cu.bus_id(bus, sizeof(bus), g->gpus[i].device) != 0 ||
            g->nvml_device(bus, &g->gpus[i].nvml) != 0)
            g->gpus[i].nvml = NULL;
    }
}

static void gpus_find_uuid(const struct cede_gpus *g, struct gpu *d)
{
    unsigned char b[16] = {0};
    if (!g->cu.uuid || g->cu.uuid(b, d->device) != 0)
        return;
    char *to = d->facts.uuid + snprintf(d->facts.uuid, sizeof(d->facts.uuid), "GPU-");
    for (int i = 0; i < 16; i++)
        to += snprintf(to, 4, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", b[i]);
}

static int gpus_find(struct cede_gpus *g, unsigned i, int ordinal, struct gpu_error *e)
{
    struct gpu *d = &g->gpus[i];
    size_t bytes = 0;
    int concurrent = 0;
    d->ordinal = ordinal;
    if (gpus_failed(g, g->cu.device_get(&d->device, ordinal), "find the device", i, e))
        return -ENODEV;
    if (g->cu.total(&bytes, d->device) == 0)
        d->facts.memory_bytes = bytes;
    gpus_find_uuid(g, d);
    if (g->cu.attribute(&concurrent, CONCURRENT_MANAGED_ACCESS, d->device) != 0 || !concurrent)
        d->facts.unmanaged = "the device cannot move managed memory while programs run "
                             "(no concurrent managed access)";
    else if (!g->cu.prefetch2 && !g->cu.prefetch)
        d->facts.unmanaged = "the driver has no cuMemPrefetchAsync";
    return 0;
}

static int gpus_start(struct cede_gpus *g, int ordinal, struct gpu_error *e)
{
    int n = 1;
    if (cede_cuda_open(&g->cu, ordinal < 0 ? CUDA_LEASES : CUDA_MEMORY, e) ||
        gpus_failed(g, g->cu.init(0), "start the driver (cuInit)", 0, e) ||
        (ordinal < 0 && gpus_failed(g, g->cu.device_count(&n), "count the GPUs", 0, e)))
        return -ENODEV;
    if (n < 1) {
        snprintf(e->text, sizeof(e->text), "no GPU is visible");
        return -ENODEV;
    }
    g->gpus = calloc((size_t)n, sizeof(*g->gpus));
    if (!g->gpus)
        return -ENOMEM;
    for (; g->n < (unsigned)n; g->n++) {
        if (gpus_find(g, g->n, ordinal < 0 ? (int)g->n : ordinal, e))
            return -ENODEV;
    }
    gpus_find_nvml(g);
    /* Memory is of the primary context, so that has to be there. */
    return ordinal < 0 ? 0 : gpus_enter(g, 0, e) ?: gpus_leave(g, 0);
}

int cede_gpus_open_one(int ordinal, struct cede_gpus **out, struct gpu_error *e)
{
    struct cede_gpus *g = calloc(1, sizeof(*g));
    *out = NULL;
    if (!g)
        return -ENOMEM;
    pthread_mutex_init(&g->lock, NULL);
    int r = gpus_start(g, ordinal, e);
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
            g->cu.release(g->gpus[i].device);
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

const struct gpu_facts *cede_gpus_facts(const struct cede_gpus *g, unsigned device)
{
    return &g->gpus[device].facts;
}

int cede_gpus_available(struct cede_gpus *g, unsigned device, uint64_t *bytes, struct gpu_error *e)
{
    size_t available = 0, all = 0;
    int r = IN_CONTEXT(g, device, e, "ask for free memory", g->cu.info(&available, &all));
    *bytes = available;
    return r;
}

/* ---- leases ---------------------------------------------------------------------------------- */

int cede_gpus_stream(struct cede_gpus *g, unsigned device, unsigned level, void **out,
                     struct gpu_error *e)
{
    return IN_CONTEXT(g, device, e, "create a stream",
                      g->cu.stream_create(out, CUDA_STREAM_NONBLOCKING, -(int)level));
}

void cede_gpus_stream_end(struct cede_gpus *g, unsigned device, void *stream)
{
    struct gpu_error why;
    (void)IN_CONTEXT(g, device, &why, "destroy a stream", g->cu.stream_destroy(stream));
}

void *cede_gpus_context(const struct cede_gpus *g)
{
    void *c = NULL;
    return g->cu.ctx_current(&c) == 0 ? c : NULL;
}

/* 0 where the driver does not know the attribute: it has no such limit. */
static uint32_t gpus_attribute(const struct cede_gpus *g, int attribute, int device)
{
    int v = 0;
    return g->cu.attribute(&v, attribute, device) == 0 && v > 0 ? (uint32_t)v : 0;
}

static struct sm_limits gpus_limits(const struct cede_gpus *g, int device)
{
    return (struct sm_limits){
        .threads = gpus_attribute(g, ATTRIBUTE_THREADS_PER_SM, device),
        .blocks = gpus_attribute(g, ATTRIBUTE_BLOCKS_PER_SM, device),
        .registers = gpus_attribute(g, ATTRIBUTE_REGISTERS_PER_SM, device),
        .block_registers = gpus_attribute(g, ATTRIBUTE_REGISTERS_PER_BLOCK, device),
        .shared_bytes = gpus_attribute(g, ATTRIBUTE_SHARED_PER_SM, device),
        .reserved_bytes = gpus_attribute(g, ATTRIBUTE_RESERVED_SHARED, device),
        .major = gpus_attribute(g, ATTRIBUTE_MAJOR, device)};
}

int cede_gpus_profile(struct cede_gpus *g, void *context, void *function, unsigned threads,
                      unsigned shared_bytes, struct gpu_profile *out, struct gpu_error *e)
{
    int blocks = 0, sms = 0, registers = 0, fixed = 0, d = 0;
    /* GPU 0 in the texts: which one the function is on is not known */
    if (context ? gpus_failed(g, g->cu.push(context), "make a kernel's context current", 0, e)
                : gpus_enter(g, 0, e))
        return -EIO;
    bool failed =
        gpus_failed(g, g->cu.ctx_device(&d), "ask for a context's GPU", 0, e) ||
        gpus_failed(g, g->cu.occupancy(&blocks, function, (int)threads, shared_bytes),
                    "ask for a kernel's occupancy", 0, e) ||
        gpus_failed(g, g->cu.attribute(&sms, ATTRIBUTE_SMS, d), "ask for the SMs", 0, e) ||
        gpus_failed(g, g->cu.function(&registers, FUNCTION_REGISTERS, function),
                    "ask for a kernel's registers", 0, e) ||
        gpus_failed(g, g->cu.function(&fixed, FUNCTION_SHARED, function),
                    "ask for a kernel's shared memory", 0, e);
    struct sm_limits sm = gpus_limits(g, d);
    if (gpus_leave(g, failed))
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
    void *d = g->gpus[device].nvml;
    if (!d || !g->nvml_rates || g->nvml_rates(d, &rates) != 0)
        return -ENOTSUP;
    *percent = rates.gpu < 100 ? rates.gpu : 100;
    return 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

int cede_gpus_allocate(struct cede_gpus *g, uint64_t bytes, uint64_t *address, struct gpu_error *e)
{
    int code = 0, r = IN_CONTEXT(g, 0, e, "allocate memory", code = g->cu.alloc(address, bytes));
    return code == CUDA_NO_MEMORY ? -ENOMEM : r;
}

int cede_gpus_deallocate(struct cede_gpus *g, uint64_t address, struct gpu_error *e)
{
    return IN_CONTEXT(g, 0, e, "free memory", g->cu.dealloc(address));
}

int cede_gpus_advise(struct cede_gpus *g, const struct cede_range *range, struct gpu_error *e)
{
    static const struct {
        unsigned advice;
        int number;
    } all[] = {{CEDE_RANGE_READ_MOSTLY, SET_READ_MOSTLY},
               {CEDE_RANGE_PREFER_DEVICE, SET_PREFERRED_LOCATION},
               {CEDE_RANGE_ACCESSED_BY_DEVICE, SET_ACCESSED_BY}};
    const struct cuda_location here = {LOCATION_DEVICE, g->gpus[0].device};
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(all) && r == 0; i++) {
        if (!(range->advice & all[i].advice))
            continue;
        if (!g->cu.advise2 && !g->cu.advise) {
            snprintf(e->text, sizeof(e->text), "the driver has no cuMemAdvise");
            return -EIO;
        }
        r = g->cu.advise2 ? g->cu.advise2(range->address, range->bytes, all[i].number, here)
                          : g->cu.advise(range->address, range->bytes, all[i].number, here.id);
    }
    return gpus_failed(g, r, "advise on a range", 0, e);
}

int cede_gpus_prefetch(struct cede_gpus *g, const struct cede_range *range, void **stream,
                       struct gpu_error *e)
{
    const struct cuda_location here = {LOCATION_DEVICE, g->gpus[0].device};
    const uint64_t at = range->address, bytes = range->bytes;
    int r = *stream ? 0 : cede_gpus_stream(g, 0, 0, stream, e);
    if (r) {
        *stream = NULL;
        return r;
    }
    return IN_CONTEXT(g, 0, e, "prefetch a range",
                      g->cu.prefetch2 ? g->cu.prefetch2(at, bytes, here, 0, *stream)
                                      : g->cu.prefetch(at, bytes, here.id, *stream));
}

int cede_gpus_finish(struct cede_gpus *g, void *stream, struct gpu_error *e)
{
    int r = IN_CONTEXT(g, 0, e, "wait for a prefetch", g->cu.stream_sync(stream));
    cede_gpus_stream_end(g, 0, stream);
    return r;
}

int cede_gpus_users(struct cede_gpus *g, struct cede_memory_user *users, unsigned n)
{
    unsigned there = PROCESSES_MAX;
    if (!g->gpus[0].nvml || !g->nvml_processes)
        return -ENOTSUP;
    struct process *v = calloc(there, sizeof(*v));
    if (!v)
        return -ENOMEM;
    int r = g->nvml_processes(g->gpus[0].nvml, &there, v);
    for (unsigned i = 0; r == 0 && i < there && i < n; i++)
        users[i] = (struct cede_memory_user){.pid = (int)v[i].pid, .bytes = v[i].bytes};
    free(v);
    return r == 0 ? (int)there : -ENOTSUP;
}
