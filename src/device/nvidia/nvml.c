/* The vendor's management library, opened at run time; types are declared here, so that no SDK is
 * needed. Changes nothing on any GPU. Layouts and codes: the library's documented ABI (nvml.h of
 * any CUDA toolkit). */
#include "device/nvidia/nvidia.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "lib/symbols.h"

typedef void *nvml_device;

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

struct nvml_sample {
    uint32_t pid;
    uint64_t time_us; /* since 1970 */
    uint32_t sm_percent, mem_percent, enc_percent, dec_percent;
};
_Static_assert(sizeof(struct nvml_sample) == 32, "nvmlProcessUtilizationSample_t");

#define NVML_SUCCESS           0
#define NVML_NOT_FOUND         6
#define NVML_INSUFFICIENT_SIZE 7

/* Older samples are not about now; new ones come every 0.17-1 s. */
#define SAMPLE_MAX_AGE_US 2000000ULL

#define TRIES_MAX 4U /* of a list that grows while it is asked for */

struct nvml {
    void *lib;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *n);
    int (*by_index)(unsigned i, nvml_device *d);
    int (*name)(nvml_device d, char *buf, unsigned size);
    int (*uuid)(nvml_device d, char *buf, unsigned size);
    int (*pci)(nvml_device d, struct nvml_pci_info *out);
    int (*memory)(nvml_device d, struct nvml_memory *out);
    int (*running)(nvml_device d, unsigned *n, struct nvml_process_info *out);
    int (*mps)(nvml_device d, unsigned *n, struct nvml_process_info *out);
    int (*samples)(nvml_device d, struct nvml_sample *out, unsigned *n, unsigned long long since);
};

static const struct symbol needed[] = {
    {"nvmlInit_v2", offsetof(struct nvml, init)},
    {"nvmlShutdown", offsetof(struct nvml, shutdown)},
    {"nvmlDeviceGetCount_v2", offsetof(struct nvml, count)},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(struct nvml, by_index)},
    {"nvmlDeviceGetName", offsetof(struct nvml, name)},
    {"nvmlDeviceGetUUID", offsetof(struct nvml, uuid)},
    {"nvmlDeviceGetPciInfo_v3", offsetof(struct nvml, pci)},
    {"nvmlDeviceGetMemoryInfo", offsetof(struct nvml, memory)},
};
/* Of two for one place the later one counts: every library so far has _v2, with the same entries,
 * but _v3 of 535.43 to 535.86 has larger ones. Lists of MPS clients came with 470. */
static const struct symbol optional[] = {
    {"nvmlDeviceGetComputeRunningProcesses_v3", offsetof(struct nvml, running)},
    {"nvmlDeviceGetComputeRunningProcesses_v2", offsetof(struct nvml, running)},
    {"nvmlDeviceGetMPSComputeRunningProcesses_v3", offsetof(struct nvml, mps)},
    {"nvmlDeviceGetMPSComputeRunningProcesses_v2", offsetof(struct nvml, mps)},
    {"nvmlDeviceGetProcessUtilization", offsetof(struct nvml, samples)},
};

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
    if (symbols_find(n->lib, needed, ARRAY_SIZE(needed), n) || n->init() != NVML_SUCCESS) {
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
    n->shutdown();
    dlclose(n->lib);
    free(n);
}

/* Our index of the library's i-th device, or -ENOENT. */
static int device_at(struct nvml *n, unsigned i, struct nv_gpus *gpus, nvml_device *d)
{
    char uuid[96] = "", bus[20] = "";
    struct nvml_pci_info pci;
    if (n->by_index(i, d) != NVML_SUCCESS)
        return -ENOENT;
    if (n->uuid(*d, uuid, sizeof(uuid)) != NVML_SUCCESS)
        uuid[0] = '\0';
    if (n->pci(*d, &pci) == NVML_SUCCESS)
        snprintf(bus, sizeof(bus), "%04x:%02x:%02x.0", pci.domain, pci.bus & 0xFF,
                 pci.device & 0xFF);
    return nv_gpu_index(gpus, uuid, bus);
}

static unsigned device_count(struct nvml *n)
{
    unsigned count = 0;
    return n->count(&count) == NVML_SUCCESS ? count : 0;
}

int nvml_gpus(struct nvml *n, struct nv_gpus *gpus)
{
    for (unsigned i = 0; i < device_count(n); i++) {
        nvml_device d;
        int index = device_at(n, i, gpus, &d);
        if (index < 0)
            continue;
        struct gpu_info *g = &gpus->v[index];
        char name[96];
        if (n->name(d, name, sizeof(name)) == NVML_SUCCESS)
            snprintf(g->name, sizeof(g->name), "%.*s", (int)sizeof(g->name) - 1, name);
        struct nvml_memory m;
        if (n->memory(d, &m) == NVML_SUCCESS)
            g->memory_bytes = m.total;
        unsigned none = 0;
        int r = n->samples ? n->samples(d, NULL, &none, 0) : -1;
        if (r == NVML_SUCCESS || r == NVML_INSUFFICIENT_SIZE || r == NVML_NOT_FOUND)
            g->caps |= GPU_CAP_USAGE;
    }
    return 0;
}

int nvml_memory_free(struct nvml *n, struct nv_gpus *gpus, unsigned gpu, uint64_t *bytes)
{
    for (unsigned i = 0; i < device_count(n); i++) {
        nvml_device d;
        struct nvml_memory m;
        if (device_at(n, i, gpus, &d) != (int)gpu)
            continue;
        if (n->memory(d, &m) != NVML_SUCCESS)
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

/* What a device's list of processes holds; freed by its user. */
struct processes {
    struct nvml_process_info *v;
    unsigned n, cap;
};

static void processes_free(struct processes *p)
{
    free(p->v);
}

/* The processes that `list` has for a device: none where it refuses. 0 or -ENOMEM. */
static int processes_list(int (*list)(nvml_device, unsigned *, struct nvml_process_info *),
                          nvml_device d, struct processes *p)
{
    int r = NVML_INSUFFICIENT_SIZE;
    p->n = 48;
    for (unsigned tries = 0; r == NVML_INSUFFICIENT_SIZE && tries < TRIES_MAX; tries++) {
        unsigned cap = p->n + 16; /* the call reports the number, and more may come */
        if (cap > p->cap) {
            void *v = reallocarray(p->v, cap, sizeof(*p->v));
            if (!v)
                return -ENOMEM;
            p->v = v;
            p->cap = cap;
        }
        p->n = p->cap;
        r = list(d, &p->n, p->v);
    }
    if (r != NVML_SUCCESS || p->n > p->cap)
        p->n = 0;
    return 0;
}

int nvml_running(struct nvml *n, struct nv_gpus *gpus, struct usage_list *out)
{
    if (!n->running)
        return -ENOTSUP;
    _cleanup_(processes_free) struct processes p = {0};
    for (unsigned i = 0; i < device_count(n); i++) {
        nvml_device d;
        int gpu = device_at(n, i, gpus, &d);
        int r = gpu >= 0 ? processes_list(n->running, d, &p) : 0;
        for (unsigned k = 0; gpu >= 0 && k < p.n && r == 0; k++) {
            struct gpu_usage u = {
                .pid = (int32_t)p.v[k].pid,
                .gpu = (uint32_t)gpu,
                .busy = -1,
                .memory_bytes = p.v[k].used_bytes == UINT64_MAX ? 0 : p.v[k].used_bytes,
            };
            if (p.v[k].pid && pid_exists(p.v[k].pid))
                r = usage_list_push(out, &u);
        }
        if (r < 0)
            return r;
    }
    return 0;
}

int nvml_mps_clients(struct nvml *n, struct pid_list *out)
{
    if (!n->mps)
        return -ENOTSUP;
    _cleanup_(processes_free) struct processes p = {0};
    for (unsigned i = 0; i < device_count(n); i++) {
        nvml_device d;
        int r = n->by_index(i, &d) == NVML_SUCCESS ? processes_list(n->mps, d, &p) : 0;
        for (unsigned k = 0; k < p.n && r == 0; k++) {
            if (p.v[k].pid && pid_exists(p.v[k].pid))
                r = pid_list_push(out, (pid_t)p.v[k].pid);
        }
        if (r < 0)
            return r;
    }
    return 0;
}

int nvml_busy(struct nvml *n, struct nv_gpus *gpus, struct usage_list *list)
{
    bool any = false;
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    uint64_t now_us = (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
    _cleanup_free_ struct nvml_sample *v = NULL;
    for (unsigned i = 0; n->samples && i < device_count(n); i++) {
        nvml_device d;
        int gpu = device_at(n, i, gpus, &d);
        if (gpu < 0)
            continue;
        unsigned cap = 0;
        int r = n->samples(d, NULL, &cap, now_us - SAMPLE_MAX_AGE_US);
        if (r != NVML_SUCCESS && r != NVML_INSUFFICIENT_SIZE && r != NVML_NOT_FOUND)
            continue;
        any = true;
        for (size_t k = 0; k < list->n; k++) {
            if (list->v[k].gpu == (uint32_t)gpu)
                list->v[k].busy = 0; /* no sample: did nothing lately */
        }
        if (r != NVML_INSUFFICIENT_SIZE || !cap)
            continue;
        cap += 16;
        void *p = reallocarray(v, cap, sizeof(*v));
        if (!p)
            return -ENOMEM;
        v = p;
        if (n->samples(d, v, &cap, now_us - SAMPLE_MAX_AGE_US) != NVML_SUCCESS)
            continue;
        for (size_t k = 0; k < list->n; k++) {
            double sum = 0;
            unsigned samples = 0;
            for (unsigned j = 0; j < cap; j++) {
                if ((int32_t)v[j].pid != list->v[k].pid || list->v[k].gpu != (uint32_t)gpu)
                    continue;
                sum += (double)min_u64(v[j].sm_percent, 100) / 100;
                samples++;
            }
            if (samples)
                list->v[k].busy = sum / samples;
        }
    }
    return any ? 0 : -ENOTSUP;
}
