/* What the parts of a GPU do: NVML's GPU performance monitoring (GPM), on Hopper and later. A
 * sample is a copy of the counters, 49 us on an H200; two give means over the time between. Changes
 * nothing. Layouts and codes: nvml.h of any CUDA toolkit since 12.0; seen to work with driver
 * 580.159.04. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/nvidia/gpm.h"
#include "device/nvidia/nvidia.h"
#include "lib/procfs.h"
#include "lib/symbols.h"

typedef void *nvml_device;
typedef void *gpm_sample;

struct gpm_support {
    uint32_t version, supported;
};

struct gpm_metric {
    uint32_t id;
    int32_t status;
    double value; /* here: percent */
    const char *names[3];
};
_Static_assert(sizeof(struct gpm_metric) == 40, "nvmlGpmMetric_t");

#define VERSION     1U
#define METRICS_MAX 333U /* the library's array has as many, and none may look beyond ours */
struct gpm_metrics {
    uint32_t version, n;
    gpm_sample from, to;
    struct gpm_metric v[METRICS_MAX];
};

#define CLOCK_SM        1
#define WINDOW_LEAST_NS (150 * NSEC_PER_MSEC) /* the counters move every 100 ms (H200) */

static const uint32_t metric_of[GPU_PARTS] = {
    [PART_INTEGER] = 4, [PART_TENSOR_FP64] = 6, [PART_TENSOR_FP16] = 7, [PART_TENSOR_INTEGER] = 9,
    [PART_FP64] = 11,   [PART_FP32] = 12,       [PART_FP16] = 13,       [PART_DRAM] = 10,
};

struct gpm_gpu {
    char uuid[NV_UUID_BYTES];
    nvml_device device;
    bool supported, sampled;
    gpm_sample from, to;
    uint64_t ns;  /* of `from` */
    double clock; /* then, of the highest */
};

struct gpm {
    void *lib;
    int (*by_uuid)(const char *uuid, nvml_device *d);
    int (*support)(nvml_device d, struct gpm_support *out);
    int (*alloc)(gpm_sample *s);
    int (*free)(gpm_sample s);
    int (*sample)(nvml_device d, gpm_sample s);
    int (*metrics)(struct gpm_metrics *m);
    int (*clock)(nvml_device d, int type, unsigned *mhz);
    int (*clock_most)(nvml_device d, int type, unsigned *mhz);
    struct gpm_gpu gpus[DEVICE_GPUS_MAX];
    struct gpm_metrics asked;
};

static const struct symbol needed[] = {
    {"nvmlDeviceGetHandleByUUID", offsetof(struct gpm, by_uuid)},
    {"nvmlGpmQueryDeviceSupport", offsetof(struct gpm, support)},
    {"nvmlGpmSampleAlloc", offsetof(struct gpm, alloc)},
    {"nvmlGpmSampleFree", offsetof(struct gpm, free)},
    {"nvmlGpmSampleGet", offsetof(struct gpm, sample)},
    {"nvmlGpmMetricsGet", offsetof(struct gpm, metrics)},
    {"nvmlDeviceGetClockInfo", offsetof(struct gpm, clock)},
    {"nvmlDeviceGetMaxClockInfo", offsetof(struct gpm, clock_most)},
};

static struct gpm *gpm_open(void)
{
    struct gpm *g = calloc(1, sizeof(*g));
    if (!g)
        return NULL;
    g->lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (g->lib && !symbols_find(g->lib, needed, ARRAY_SIZE(needed), g))
        return g;
    gpm_close(g);
    return NULL;
}

void gpm_close(struct gpm *g)
{
    if (!g)
        return;
    for (unsigned i = 0; i < DEVICE_GPUS_MAX; i++) {
        if (g->gpus[i].from)
            g->free(g->gpus[i].from);
        if (g->gpus[i].to)
            g->free(g->gpus[i].to);
    }
    if (g->lib)
        dlclose(g->lib);
    free(g);
}

/* A device may have another place than before, where instances came or went. */
static struct gpm_gpu *gpm_find(struct gpm *g, unsigned gpu, const char *uuid)
{
    struct gpm_gpu *x = &g->gpus[gpu];
    struct gpm_support s = {VERSION, 0};
    if (strcmp(x->uuid, uuid) == 0)
        return x;
    snprintf(x->uuid, sizeof(x->uuid), "%s", uuid);
    x->sampled = false;
    x->supported = g->by_uuid(uuid, &x->device) == 0 && g->support(x->device, &s) == 0 &&
                   s.supported && (x->from || g->alloc(&x->from) == 0) &&
                   (x->to || g->alloc(&x->to) == 0);
    return x;
}

bool nv_has_counters(struct nv_driver *d, unsigned gpu)
{
    const char *uuid = d->gpus.v[gpu].uuid;
    if (!d->gpm_tried && d->nvml) {
        d->gpm_tried = true;
        d->gpm = gpm_open();
    }
    return d->gpm && uuid[0] && gpm_find(d->gpm, gpu, uuid)->supported;
}

/* The SMs' clock now, of its highest. */
static double clock_now(const struct gpm *g, nvml_device d)
{
    unsigned now, most;
    if (g->clock(d, CLOCK_SM, &now) != 0 || g->clock_most(d, CLOCK_SM, &most) != 0 || !most)
        return 1;
    return now < most ? (double)now / most : 1;
}

static double gpm_share(const struct gpm_metric *m)
{
    double share = m->status == 0 && isfinite(m->value) ? m->value / 100 : 0;
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

/* Takes 2 ms. */
static int gpm_difference(struct gpm *g, const struct gpm_gpu *x, double clock,
                          struct gpu_counters *out)
{
    g->asked.version = VERSION;
    g->asked.n = GPU_PARTS;
    g->asked.from = x->from;
    g->asked.to = x->to;
    for (unsigned p = 0; p < GPU_PARTS; p++)
        g->asked.v[p] = (struct gpm_metric){.id = metric_of[p]};
    if (g->metrics(&g->asked) != 0)
        return -EIO;
    for (unsigned p = 0; p < GPU_PARTS; p++)
        out->parts[p] = gpm_share(&g->asked.v[p]) * (p == PART_DRAM ? 1 : clock);
    return 0;
}

static int gpm_counters(struct gpm *g, struct gpm_gpu *x, uint64_t now_ns, struct gpu_counters *out)
{
    if (out && x->sampled && now_ns < x->ns + WINDOW_LEAST_NS)
        return -EAGAIN;
    double clock = clock_now(g, x->device), mean = (clock + x->clock) / 2;
    if (g->sample(x->device, x->to) != 0) {
        x->sampled = false;
        return -EIO;
    }
    int r = !out ? 0 : x->sampled ? gpm_difference(g, x, mean, out) : -EAGAIN;
    if (out)
        out->window_ns = now_ns - x->ns;
    gpm_sample from = x->from;
    x->from = x->to;
    x->to = from;
    x->ns = now_ns;
    x->clock = clock;
    x->sampled = true;
    return r;
}

int nv_counters(struct device_driver *base, unsigned gpu, struct gpu_counters *out,
                struct error *err)
{
    struct nv_driver *d = (struct nv_driver *)(void *)base;
    int r = gpu < d->gpus.n && !d->gpus.part[gpu].gpu[0] && nv_has_counters(d, gpu)
                ? gpm_counters(d->gpm, &d->gpm->gpus[gpu], d->io->now_ns(), out)
                : -ENOTSUP;
    return r < 0 ? error_set(err, r, "the GPU's counters: %s", strerror(-r)) : 0;
}
