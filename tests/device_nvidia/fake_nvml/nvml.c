/* See fake_nvml.h. Built once for each age of the library, by DRIVER: 450, without lists of MPS
 * clients; 535 (up to .86), in which the third version of a list has larger entries; 580.
 * Functions, layouts and codes as in nvml.h, independently of what the driver declares. */
#include "fake_nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUCCESS           0
#define INVALID_ARGUMENT  2
#define NOT_SUPPORTED     3
#define NOT_FOUND         6
#define INSUFFICIENT_SIZE 7

typedef struct fake_nvml_gpu *device;

struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
};
struct memory {
    unsigned long long total, free, used;
};
struct attributes {
    unsigned sms, copy, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
    unsigned long long mib;
};
struct sample {
    unsigned pid;
    unsigned long long us;
    unsigned sm, memory, encoder, decoder;
};
struct rates {
    unsigned gpu, memory;
};
struct info2 {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};
struct info3 {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
#if DRIVER == 535
    unsigned long long protected_bytes;
#endif
};

#if DRIVER == 580
struct support {
    unsigned version, supported;
};
struct metric {
    unsigned id;
    int status;
    double value;
    char *names[3];
};
struct metrics {
    unsigned version, n;
    struct gpm_sample *from, *to;
    struct metric v[333];
};
struct gpm_sample {
    device of;
    unsigned number;
};
#endif

/* A function that says one thing of a device. */
#define SAYS(name, type, value, status)                                                            \
    int name(device d, type *out)                                                                  \
    {                                                                                              \
        *out = value;                                                                              \
        return status;                                                                             \
    }

extern struct fake_nvml fake_nvml;
struct fake_nvml fake_nvml;

int nvmlInit_v2(void)
{
    fake_nvml.opened++;
    return SUCCESS;
}

int nvmlShutdown(void)
{
    fake_nvml.closed++;
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = fake_nvml.n;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, device *d)
{
    *d = &fake_nvml.gpus[i];
    return i < fake_nvml.n ? SUCCESS : INVALID_ARGUMENT;
}

static bool is_instance(device d)
{
    return d < fake_nvml.gpus || d >= fake_nvml.gpus + FAKE_NVML_GPUS;
}

static unsigned number(device d)
{
    if (is_instance(d))
        return (unsigned)(d - fake_nvml.instances[0]) / FAKE_NVML_INSTANCES;
    return (unsigned)(d - fake_nvml.gpus);
}

int nvmlDeviceGetName(device d, char *buf, unsigned size)
{
    if (is_instance(d) && !d->name)
        return NOT_SUPPORTED;
    if (is_instance(d))
        snprintf(buf, size, "%s", d->name);
    else
        snprintf(buf, size, "Stand-in %u", number(d));
    return SUCCESS;
}

int nvmlDeviceGetUUID(device d, char *buf, unsigned size)
{
    if (is_instance(d))
        snprintf(buf, size, "%s", d->uuid);
    else
        snprintf(buf, size, "GPU-%08u", number(d));
    return SUCCESS;
}

SAYS(nvmlDeviceGetPciInfo_v3, struct pci, (struct pci){.bus = 0x10 + number(d)}, SUCCESS)

int nvmlDeviceGetMemoryInfo(device d, struct memory *out)
{
    unsigned long long total = is_instance(d) ? d->mib << 20 : 1000;
    *out = (struct memory){.total = total, .free = total * 6 / 10, .used = total * 4 / 10};
    return SUCCESS;
}

int nvmlDeviceGetProcessUtilization(device d, struct sample *out, unsigned *n,
                                    unsigned long long since)
{
    (void)since;
    if (d->mig || is_instance(d))
        return NOT_SUPPORTED;
    if (!d->nsamples)
        return NOT_FOUND;
    unsigned room = out ? *n : 0;
    *n = d->nsamples;
    if (room < *n)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *n; i++)
        out[i] = (struct sample){.pid = d->samples[i].pid, .sm = d->samples[i].percent};
    return SUCCESS;
}

SAYS(nvmlDeviceGetUtilizationRates, struct rates, (struct rates){.gpu = d->percent},
     d->mig || is_instance(d) || d->no_rates ? NOT_SUPPORTED : SUCCESS)

/* Which of its two lists. */
enum which { RUNNING, MPS };

struct to {
    char *out;
    unsigned room, n, size; /* entries of `size` bytes, which begin alike */
};

static void list_add(struct to *to, device d, enum which which)
{
    const struct fake_nvml_process *v = which == MPS ? d->mps : d->running;
    unsigned count = which == MPS ? d->nmps : d->nrunning;
    for (unsigned i = 0; i < count; i++, to->n++) {
        struct info2 x = {v[i].pid, v[i].bytes, ~0U, ~0U};
        if (is_instance(d))
            x = (struct info2){v[i].pid, v[i].bytes, d->gpu_instance, d->compute_instance};
        if (to->n >= to->room)
            continue;
        memset(to->out + to->n * to->size, 0, to->size);
        memcpy(to->out + to->n * to->size, &x, sizeof(x));
    }
}

/* A GPU in MIG mode lists what is in its instances. */
static int list(device d, enum which which, unsigned *n, void *out, unsigned size)
{
    struct to to = {.out = out, .room = *n, .size = size};
    device gpu = &fake_nvml.gpus[number(d)];
    if (!is_instance(d) || !fake_nvml.lists_all)
        list_add(&to, d, which);
    for (unsigned i = 0; i < FAKE_NVML_INSTANCES; i++) {
        device x = &fake_nvml.instances[number(d)][i];
        if (gpu->mig && x->there && (!is_instance(d) || fake_nvml.lists_all))
            list_add(&to, x, which);
    }
    *n = to.n;
    return to.n > to.room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v2(device d, unsigned *n, struct info2 *out)
{
    return list(d, RUNNING, n, out, sizeof(*out));
}

#if DRIVER > 450
int nvmlDeviceGetComputeRunningProcesses_v3(device d, unsigned *n, struct info3 *out)
{
    return list(d, RUNNING, n, out, sizeof(*out));
}

static int list_mps(device d, unsigned *n, void *out, unsigned size)
{
    fake_nvml.asked_mps++;
    d->nmps += fake_nvml.grows;
    return fake_nvml.mps_status ? fake_nvml.mps_status : list(d, MPS, n, out, size);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v2(device d, unsigned *n, struct info2 *out)
{
    return list_mps(d, n, out, sizeof(*out));
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(device d, unsigned *n, struct info3 *out)
{
    return list_mps(d, n, out, sizeof(*out));
}

SAYS(nvmlDeviceGetComputeMode, int, d->compute_mode, SUCCESS)

int nvmlDeviceGetMigMode(device d, unsigned *now, unsigned *pending)
{
    fake_nvml.asked_mode++;
    *now = d->mig;
    *pending = 0;
    return SUCCESS;
}

/* Most that there could be, with free places between. */
SAYS(nvmlDeviceGetMaxMigDeviceCount, unsigned, d->mig ? FAKE_NVML_INSTANCES : 0, SUCCESS)

int nvmlDeviceGetMigDeviceHandleByIndex(device d, unsigned i, device *out)
{
    if (is_instance(d) || i >= FAKE_NVML_INSTANCES)
        return INVALID_ARGUMENT;
    *out = &fake_nvml.instances[number(d)][i];
    return (*out)->there ? SUCCESS : NOT_FOUND;
}

SAYS(nvmlDeviceGetGpuInstanceId, unsigned, d->gpu_instance,
     is_instance(d) ? SUCCESS : NOT_SUPPORTED)
SAYS(nvmlDeviceGetComputeInstanceId, unsigned, d->compute_instance,
     is_instance(d) ? SUCCESS : NOT_SUPPORTED)
SAYS(nvmlDeviceGetAttributes_v2, struct attributes,
     ((struct attributes){.sms = d->sms, .mib = d->mib}), is_instance(d) ? SUCCESS : NOT_SUPPORTED)
#endif

#if DRIVER == 580
int nvmlDeviceGetHandleByUUID(const char *uuid, device *d)
{
    for (*d = fake_nvml.gpus; *d < fake_nvml.gpus + fake_nvml.n; ++*d) {
        char own[80];
        nvmlDeviceGetUUID(*d, own, sizeof(own));
        if (strcmp(own, uuid) == 0)
            return SUCCESS;
    }
    return NOT_FOUND;
}

int nvmlGpmQueryDeviceSupport(device d, struct support *out)
{
    if (out->version != 1)
        return INVALID_ARGUMENT;
    out->supported = !d->no_metrics;
    return SUCCESS;
}

int nvmlGpmSampleAlloc(struct gpm_sample **s)
{
    *s = calloc(1, sizeof(**s));
    return SUCCESS;
}

int nvmlGpmSampleFree(struct gpm_sample *s)
{
    free(s);
    return SUCCESS;
}

int nvmlGpmSampleGet(device d, struct gpm_sample *s)
{
    s->of = d;
    s->number = ++fake_nvml.samples;
    return SUCCESS;
}

int nvmlGpmMetricsGet(struct metrics *m)
{
    if (m->version != 1 || m->n > 32 || m->from->of != m->to->of ||
        m->from->number >= m->to->number)
        return INVALID_ARGUMENT;
    for (unsigned i = 0; i < m->n; i++) {
        double v = m->v[i].id < 32 ? m->from->of->metrics[m->v[i].id] : -1;
        m->v[i].status = v < 0 ? NOT_SUPPORTED : SUCCESS;
        m->v[i].value = v < 0 ? 1e30 : v;
    }
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(device d, int type, unsigned *mhz)
{
    *mhz = type != 1 ? 1 : d->clock_mhz ? d->clock_mhz : 2000;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(device d, int type, unsigned *mhz)
{
    *mhz = type == 1 ? 2000 : 1;
    return SUCCESS;
}
#endif
