/* The load of a GPU's parts, by NVML's GPU performance monitoring (GPM), on Hopper and later. A
 * sample is a copy of the counters and takes 49 us on an H200; two samples give means over the time
 * between. Layouts and codes: nvml.h of any CUDA toolkit since 12.0; seen to work with driver
 * 580.159.04. */
#include "gpu/nvidia/nvml.h"

#include <errno.h>
#include <math.h>
#include <string.h>

struct gpm_support {
    uint32_t version, supported;
};

struct gpm_metric {
    uint32_t id;
    int32_t status;
    double value; /* percent */
    const char *names[3];
};
_Static_assert(sizeof(struct gpm_metric) == 40, "nvmlGpmMetric_t");

#define VERSION     1U
#define METRICS_MAX 333U /* as in the library's array, which it may access as a whole */
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

void gpm_close(struct nvml *n)
{
    for (unsigned i = 0; i < DEVICE_GPUS_MAX; i++) {
        if (n->gpm[i].from)
            n->gpm_free(n->gpm[i].from);
        if (n->gpm[i].to)
            n->gpm_free(n->gpm[i].to);
    }
}

static struct gpm_gpu *gpm_find(struct nvml *n, unsigned gpu, const char *uuid)
{
    struct gpm_gpu *x = &n->gpm[gpu];
    struct gpm_support s = {VERSION, 0};
    if (strcmp(x->uuid, uuid) == 0)
        return x;
    snprintf(x->uuid, sizeof(x->uuid), "%s", uuid);
    x->sampled = false;
    x->supported = n->by_uuid(uuid, &x->device) == 0 && n->gpm_support(x->device, &s) == 0 &&
                   s.supported && (x->from || n->gpm_alloc(&x->from) == 0) &&
                   (x->to || n->gpm_alloc(&x->to) == 0);
    return x;
}

bool nv_has_counters(struct nv_driver *d, unsigned gpu)
{
    const char *uuid = d->gpus.v[gpu].uuid;
    return d->nvml && d->nvml->has_gpm && uuid[0] && gpm_find(d->nvml, gpu, uuid)->supported;
}

/* The SMs' present clock, as a share of the highest. */
static double clock_now(const struct nvml *n, nvml_device d)
{
    unsigned now, most;
    if (n->clock(d, CLOCK_SM, &now) != 0 || n->clock_most(d, CLOCK_SM, &most) != 0 || !most)
        return 1;
    return now < most ? (double)now / most : 1;
}

static double gpm_share(const struct gpm_metric *m)
{
    double share = m->status == 0 && isfinite(m->value) ? m->value / 100 : 0;
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

/* Takes 2 ms. */
static int gpm_difference(const struct nvml *n, const struct gpm_gpu *x, double clock,
                          struct gpu_counters *out)
{
    struct gpm_metrics m = {.version = VERSION, .n = GPU_PARTS, .from = x->from, .to = x->to};
    for (unsigned p = 0; p < GPU_PARTS; p++)
        m.v[p].id = metric_of[p];
    if (n->gpm_metrics(&m) != 0)
        return -EIO;
    for (unsigned p = 0; p < GPU_PARTS; p++)
        out->parts[p] = gpm_share(&m.v[p]) * (p == PART_DRAM ? 1 : clock);
    return 0;
}

static int gpm_counters(const struct nvml *n, struct gpm_gpu *x, uint64_t now_ns,
                        struct gpu_counters *out)
{
    if (out && x->sampled && now_ns < x->ns + WINDOW_LEAST_NS)
        return -EAGAIN;
    double clock = clock_now(n, x->device), mean = (clock + x->clock) / 2;
    if (n->gpm_take(x->device, x->to) != 0) {
        x->sampled = false;
        return -EIO;
    }
    int r = !out ? 0 : x->sampled ? gpm_difference(n, x, mean, out) : -EAGAIN;
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
                ? gpm_counters(d->nvml, &d->nvml->gpm[gpu], d->io->now_ns(), out)
                : -ENOTSUP;
    return r < 0 ? error_set(err, r, "the GPU's counters: %s", strerror(-r)) : 0;
}
