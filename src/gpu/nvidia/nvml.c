/* The vendor's management library, opened at run time. Its types are declared here, so that no SDK
 * is needed; layouts and codes are its documented ABI (nvml.h of any CUDA toolkit). Changes nothing
 * on any GPU. */
#include "gpu/nvidia/nvml.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/symbols.h"

struct nvml_pci_info {
    char bus_id_legacy[16];
    uint32_t domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};
_Static_assert(sizeof(struct nvml_pci_info) == 68, "nvmlPciInfo_t");

struct nvml_memory {
    uint64_t total, free, used;
};

struct nvml_process_info { /* since _v2 */
    uint32_t pid;
    uint64_t used_bytes; /* UINT64_MAX: not known */
    uint32_t gpu_instance, compute_instance;
};
_Static_assert(sizeof(struct nvml_process_info) == 24, "nvmlProcessInfo_t");
#define NO_INSTANCE UINT32_MAX

struct nvml_attributes {
    uint32_t sms, engines[5], gpu_slices, compute_slices;
    uint64_t memory_mib;
};
_Static_assert(sizeof(struct nvml_attributes) == 40, "nvmlDeviceAttributes_t");

struct nvml_sample {
    uint32_t pid;
    uint64_t time_us; /* since 1970 */
    uint32_t sm_percent, mem_percent, enc_percent, dec_percent;
};
_Static_assert(sizeof(struct nvml_sample) == 32, "nvmlProcessUtilizationSample_t");

/* Use of the whole device in the last sample, in percent of the time. */
struct nvml_rates {
    uint32_t gpu, memory;
};

#define NVML_SUCCESS           0
#define NVML_NOT_FOUND         6
#define NVML_INSUFFICIENT_SIZE 7

/* Older samples are ignored; new ones come every 0.17-1 s. */
#define SAMPLE_MAX_AGE_US 2000000ULL
/* If the device was busy for longer than the samples show, a process without samples worked. */
#define RATE_ERROR 0.2

#define TRIES_MAX     4U  /* to get a list that grows meanwhile */
#define INSTANCES_MAX 64U /* of one GPU: 8 GPU instances of 8 compute instances */

#define X(member, symbol, arguments) {#symbol, offsetof(struct nvml, member)},
static const struct symbol needed[] = {NVML_NEEDED(X)}, optional[] = {NVML_OPTIONAL(X)},
                           gpm[] = {NVML_GPM(X)};
#undef X

/* The library's threads stay, and must take no signals, which would end the process untidily. */
static int nvml_init(const struct nvml *n)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int r = n->init();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r;
}

int nvml_open(struct nvml **out)
{
    struct nvml *n = calloc(1, sizeof(*n));
    if (!n)
        return -ENOMEM;
    n->lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->lib) {
        free(n);
        return -ENOENT;
    }
    for (size_t i = 0; i < ARRAY_SIZE(optional); i++)
        symbols_find(n->lib, &optional[i], 1, n);
    n->running = n->running ? n->running : n->running_v3;
    n->mps = n->mps ? n->mps : n->mps_v3;
    n->has_gpm = !symbols_find(n->lib, gpm, ARRAY_SIZE(gpm), n) && n->clock && n->clock_most;
    if (symbols_find(n->lib, needed, ARRAY_SIZE(needed), n) || nvml_init(n) != NVML_SUCCESS) {
        dlclose(n->lib);
        free(n);
        return -EIO;
    }
    *out = n;
    return 0;
}

void nvml_close(struct nvml *n)
{
    if (!n)
        return;
    gpm_close(n);
    n->shutdown();
    dlclose(n->lib);
    free(n);
}

static void uuid_of(struct nvml *n, nvml_device d, char *buf, unsigned size)
{
    if (n->uuid(d, buf, size) != NVML_SUCCESS)
        buf[0] = '\0';
}

unsigned nvml_instance_indices(struct nvml *n, nvml_device gpu)
{
    unsigned now = 0, pending, most = 0;
    if (!n->mig_mode || !n->mig_count || !n->mig_by_index ||
        n->mig_mode(gpu, &now, &pending) != NVML_SUCCESS || now == 0 ||
        n->mig_count(gpu, &most) != NVML_SUCCESS)
        return 0;
    return (unsigned)min_u64(most, INSTANCES_MAX);
}

/* A walk through the library's devices: our devices, and instances that are none of ours. */
struct walk {
    struct nvml *n;
    struct nv_gpus *gpus;
    unsigned i, count;     /* GPUs */
    unsigned k, instances; /* of `gpu` */
    nvml_device gpu, d;
    int index; /* of our device; -ENOENT: an instance that is none */
};

static struct walk walk_begin(struct nvml *n, struct nv_gpus *gpus)
{
    struct walk w = {.n = n, .gpus = gpus};
    if (n->count(&w.count) != NVML_SUCCESS)
        w.count = 0;
    return w;
}

static bool walk_instances(struct walk *w)
{
    while (w->k < w->instances) {
        char uuid[96];
        if (w->n->mig_by_index(w->gpu, w->k++, &w->d) != NVML_SUCCESS)
            continue;
        uuid_of(w->n, w->d, uuid, sizeof(uuid));
        w->index = nv_device_by_uuid(w->gpus, uuid);
        return true;
    }
    return false;
}

static bool walk_next(struct walk *w)
{
    struct nvml *n = w->n;
    while (!walk_instances(w)) {
        char uuid[96], bus[20] = "";
        struct nvml_pci_info pci;
        if (w->i == w->count)
            return false;
        if (n->by_index(w->i++, &w->d) != NVML_SUCCESS)
            continue;
        uuid_of(n, w->d, uuid, sizeof(uuid));
        if (n->pci(w->d, &pci) == NVML_SUCCESS)
            snprintf(bus, sizeof(bus), "%04x:%02x:%02x.0", pci.domain, pci.bus & 0xFF,
                     pci.device & 0xFF);
        w->index = nv_gpu_index(w->gpus, uuid, bus);
        w->gpu = w->d;
        w->k = 0;
        w->instances = nv_gpu_divided(w->gpus, uuid) ? nvml_instance_indices(n, w->d) : 0;
        if (w->index >= 0)
            return true;
    }
    return true;
}

/* part: an instance, which has a name already and keeps it if the library only knows the GPU's. */
static void device_describe(struct nvml *n, nvml_device d, bool part, struct gpu_info *g)
{
    char name[96];
    if (n->name(d, name, sizeof(name)) == NVML_SUCCESS && (!part || strstr(name, "MIG ")))
        snprintf(g->name, sizeof(g->name), "%.*s", (int)sizeof(g->name) - 1, name);
    struct nvml_memory m;
    if (n->memory(d, &m) == NVML_SUCCESS)
        g->memory_bytes = m.total;
    unsigned none = 0;
    int r = n->samples ? n->samples(d, NULL, &none, 0) : -1;
    if (r == NVML_SUCCESS || r == NVML_INSUFFICIENT_SIZE || r == NVML_NOT_FOUND)
        g->caps |= GPU_CAP_USAGE;
    int mode;
    if (!part && n->compute_mode && n->compute_mode(d, &mode) == NVML_SUCCESS &&
        mode == NVML_COMPUTEMODE_DEFAULT)
        g->caps |= GPU_CAP_POOL;
}

void nvml_gpus(struct nvml *n, struct nv_gpus *gpus)
{
    for (struct walk w = walk_begin(n, gpus); walk_next(&w);) {
        if (w.index >= 0)
            device_describe(n, w.d, gpus->part[w.index].gpu[0], &gpus->v[w.index]);
    }
}

/* Adds a GPU's instances, as many as there is room for. */
static void instances_add(struct nvml *n, nvml_device gpu, const struct gpu_info *whole,
                          struct nv_gpus *gpus)
{
    unsigned most = nvml_instance_indices(n, gpu);
    for (unsigned k = 0; k < most && gpus->n < DEVICE_GPUS_MAX; k++) {
        nvml_device d;
        char uuid[96];
        if (n->mig_by_index(gpu, k, &d) != NVML_SUCCESS)
            continue;
        uuid_of(n, d, uuid, sizeof(uuid));
        struct gpu_info *g = &gpus->v[gpus->n];
        struct nv_part *part = &gpus->part[gpus->n];
        struct nvml_attributes a = {.sms = 0};
        *part = (struct nv_part){.gpu_instance = NO_INSTANCE};
        memcpy(part->gpu, whole->uuid, sizeof(part->gpu));
        if (n->gpu_instance)
            n->gpu_instance(d, &part->gpu_instance);
        if (n->compute_instance)
            n->compute_instance(d, &part->compute_instance);
        if (n->attributes)
            n->attributes(d, &a);
        *g = *whole;
        g->caps = 0;
        g->sms = a.sms;
        g->memory_bytes = a.memory_mib << 20;
        snprintf(g->uuid, sizeof(g->uuid), "%.*s", (int)sizeof(g->uuid) - 1, uuid);
        snprintf(g->name, sizeof(g->name), "%.32s MIG %u.%u", whole->name, part->gpu_instance,
                 part->compute_instance);
        device_describe(n, d, true, g);
        const char *profile = strstr(g->name, "MIG ");
        snprintf(g->label, sizeof(g->label), "%u:%s", gpus->n, profile ? profile + 4 : "MIG");
        gpus->n++;
    }
}

void nvml_divide(struct nvml *n, struct nv_gpus *gpus, bool in_place)
{
    nvml_device handle[DEVICE_GPUS_MAX] = {NULL};
    for (struct walk w = walk_begin(n, gpus); walk_next(&w);) {
        unsigned now = 0, pending;
        char uuid[96];
        if (w.index < 0 || !n->mig_mode || n->mig_mode(w.d, &now, &pending) != NVML_SUCCESS || !now)
            continue;
        uuid_of(n, w.d, uuid, sizeof(uuid));
        if (!uuid[0] || handle[w.index])
            continue;
        struct gpu_info *g = &gpus->v[w.index];
        snprintf(g->uuid, sizeof(g->uuid), "%.*s", (int)sizeof(g->uuid) - 1, uuid);
        device_describe(n, w.d, false, g);
        memcpy(gpus->divided[gpus->ndivided++], g->uuid, sizeof(g->uuid));
        handle[w.index] = w.d;
    }
    if (!in_place || !gpus->ndivided)
        return;
    struct nv_gpus whole = *gpus;
    gpus->n = 0;
    for (unsigned i = 0; i < whole.n; i++) {
        unsigned before = gpus->n;
        if (handle[i])
            instances_add(n, handle[i], &whole.v[i], gpus);
        if (gpus->n == before && gpus->n < DEVICE_GPUS_MAX)
            gpus->v[gpus->n++] = whole.v[i];
    }
}

int nvml_memory_free(struct nvml *n, struct nv_gpus *gpus, unsigned gpu, uint64_t *bytes)
{
    for (struct walk w = walk_begin(n, gpus); walk_next(&w);) {
        struct nvml_memory m;
        if (w.index != (int)gpu)
            continue;
        if (n->memory(w.d, &m) != NVML_SUCCESS)
            return -EIO;
        gpus->v[gpu].memory_bytes = m.total;
        *bytes = m.free;
        return 0;
    }
    return -ENOENT;
}

static bool pid_exists(uint32_t pid)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/%u", pid);
    return access(path, F_OK) == 0;
}

struct processes {
    struct nvml_process_info *v;
    unsigned n;
    size_t cap;
};

static void processes_free(struct processes *p)
{
    free(p->v);
}

/* Gets a device's processes by `list`; none where that refuses. 0 or -ENOMEM. */
static int processes_list(int(*list) NVML_LIST, nvml_device d, struct processes *p)
{
    int r = NVML_INSUFFICIENT_SIZE;
    p->n = 48;
    for (unsigned tries = 0; r == NVML_INSUFFICIENT_SIZE && tries < TRIES_MAX; tries++) {
        /* The call reports the number; more may come meanwhile. */
        if (list_grow(&p->v, p->n + 15, &p->cap, sizeof(*p->v)) < 0)
            return -ENOMEM;
        p->n = (unsigned)p->cap;
        r = list(d, &p->n, p->v);
    }
    if (r != NVML_SUCCESS || p->n > p->cap)
        p->n = 0;
    return 0;
}

/* Whether an entry of a device's list belongs to this device; some entries name an instance. */
static bool listed_here(const struct nv_gpus *gpus, int index, const struct nvml_process_info *x)
{
    const struct nv_part *part = index >= 0 ? &gpus->part[index] : NULL;
    return x->pid && pid_exists(x->pid) &&
           (!part || !part->gpu[0] || x->gpu_instance == NO_INSTANCE ||
            (x->gpu_instance == part->gpu_instance &&
             x->compute_instance == part->compute_instance));
}

int nvml_processes(struct nvml *n, struct nv_gpus *gpus, bool mps, struct usage_list *out)
{
    _cleanup_(processes_free) struct processes p = {0};
    int(*list) NVML_LIST = mps ? n->mps : n->running;
    int r = list ? 0 : -ENOTSUP;
    for (struct walk w = walk_begin(n, gpus); r == 0 && walk_next(&w);) {
        r = processes_list(list, w.d, &p);
        for (unsigned k = 0; k < p.n && r == 0; k++) {
            struct gpu_usage u = {
                .pid = (int32_t)p.v[k].pid,
                .gpu = w.index < 0 ? DEVICE_GPUS_MAX : (uint32_t)w.index,
                .busy = -1,
                .memory_bytes = p.v[k].used_bytes == UINT64_MAX ? 0 : p.v[k].used_bytes,
            };
            if (listed_here(gpus, w.index, &p.v[k]))
                r = usage_list_push(out, &u);
        }
    }
    return r;
}

struct samples {
    struct nvml_sample *v;
    unsigned n;
    size_t cap;
};

static void samples_free(struct samples *s)
{
    free(s->v);
}

/* Gets a device's samples of the last seconds. -ENOTSUP: it never has any. */
static int samples_list(struct nvml *n, nvml_device d, uint64_t since_us, struct samples *s)
{
    unsigned found = 0;
    int r = n->samples(d, NULL, &found, since_us);
    s->n = 0;
    for (unsigned tries = 0; r == NVML_INSUFFICIENT_SIZE && tries < TRIES_MAX; tries++) {
        if (list_grow(&s->v, found + 15, &s->cap, sizeof(*s->v)) < 0)
            return -ENOMEM;
        found = (unsigned)s->cap;
        r = n->samples(d, s->v, &found, since_us);
        s->n = r == NVML_SUCCESS && found <= s->cap ? found : 0;
    }
    return r == NVML_SUCCESS || r == NVML_NOT_FOUND || r == NVML_INSUFFICIENT_SIZE ? 0 : -ENOTSUP;
}

/* The mean share of a process in its samples, and their number in *own. */
static double samples_of(const struct samples *s, int32_t pid, unsigned *own)
{
    double sum = 0;
    *own = 0;
    for (unsigned i = 0; i < s->n; i++) {
        if ((int32_t)s->v[i].pid != pid)
            continue;
        sum += (double)min_u64(s->v[i].sm_percent, 100) / 100;
        ++*own;
    }
    return *own ? sum / *own : 0;
}

/* Each sample names one process, the one that had the engine at its end (the driver's
 * NV2080_CTRL_PERF_GPUMON_ENGINE_UTIL_SAMPLE); an idle device has no samples. So of processes that
 * take turns each is charged with work of the others: if their shares add up to more than 1, each
 * share is scaled by the process's part of all samples. A process without samples was idle only if
 * the samples of the others make up the device's busy time. */
static void busy_by_samples(struct nvml *n, nvml_device d, const struct samples *s, uint32_t gpu,
                            struct usage_list *list)
{
    struct nvml_rates rates;
    double sum = 0;
    unsigned all = 0, own;
    for (size_t k = 0; k < list->n; k++) {
        if (list->v[k].gpu == gpu) {
            sum += samples_of(s, list->v[k].pid, &own);
            all += own;
        }
    }
    bool idle = n->rates && n->rates(d, &rates) == NVML_SUCCESS &&
                (double)rates.gpu / 100 <= sum + RATE_ERROR;
    for (size_t k = 0; k < list->n; k++) {
        if (list->v[k].gpu != gpu)
            continue;
        double share = samples_of(s, list->v[k].pid, &own);
        list->v[k].busy = !own ? (idle ? 0 : -1) : sum > 1 ? share * own / all : share;
    }
}

int nvml_busy(struct nvml *n, struct nv_gpus *gpus, struct usage_list *list)
{
    bool any = false;
    const uint64_t now_us = read_clock_ns(CLOCK_REALTIME) / NSEC_PER_USEC;
    _cleanup_(samples_free) struct samples s = {0};
    for (struct walk w = walk_begin(n, gpus); n->samples && walk_next(&w);) {
        int r = w.index < 0 ? -ENOTSUP : samples_list(n, w.d, now_us - SAMPLE_MAX_AGE_US, &s);
        if (r == -ENOMEM)
            return r;
        if (r < 0)
            continue;
        any = true;
        busy_by_samples(n, w.d, &s, (uint32_t)w.index, list);
    }
    return any ? 0 : -ENOTSUP;
}
