/* See fake_nvml.h. Built once for each age of the library, by DRIVER: 450, without lists of MPS
 * clients; 535 (up to .86), in which the third version of a list has larger entries; 580.
 * Functions, layouts and codes as in nvml.h, independently of what the driver declares. */
#include "fake_nvml.h"

#include <stdio.h>
#include <string.h>

#define SUCCESS           0
#define INVALID_ARGUMENT  2
#define NOT_SUPPORTED     3
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

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned i, device *d);
int nvmlDeviceGetName(device d, char *buf, unsigned size);
int nvmlDeviceGetUUID(device d, char *buf, unsigned size);
int nvmlDeviceGetPciInfo_v3(device d, struct pci *out);
int nvmlDeviceGetMemoryInfo(device d, struct memory *out);
int nvmlDeviceGetComputeRunningProcesses_v2(device d, unsigned *n, struct info2 *out);
int nvmlDeviceGetComputeRunningProcesses_v3(device d, unsigned *n, struct info3 *out);
int nvmlDeviceGetMPSComputeRunningProcesses_v2(device d, unsigned *n, struct info2 *out);
int nvmlDeviceGetMPSComputeRunningProcesses_v3(device d, unsigned *n, struct info3 *out);

extern struct fake_nvml fake_nvml;
struct fake_nvml fake_nvml;

int nvmlInit_v2(void)
{
    return SUCCESS;
}

int nvmlShutdown(void)
{
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

static unsigned number(device d)
{
    return (unsigned)(d - fake_nvml.gpus);
}

int nvmlDeviceGetName(device d, char *buf, unsigned size)
{
    snprintf(buf, size, "Stand-in %u", number(d));
    return SUCCESS;
}

int nvmlDeviceGetUUID(device d, char *buf, unsigned size)
{
    snprintf(buf, size, "GPU-%08u", number(d));
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(device d, struct pci *out)
{
    memset(out, 0, sizeof(*out));
    out->bus = 0x10 + number(d);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(device d, struct memory *out)
{
    (void)d;
    *out = (struct memory){.total = 1000, .free = 600, .used = 400};
    return SUCCESS;
}

/* Entries of `size` bytes, which begin alike. */
static int list(const struct fake_nvml_process *v, unsigned count, unsigned *n, void *out,
                unsigned size)
{
    unsigned room = *n;
    *n = count;
    if (count > room)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < count; i++) {
        struct info2 x = {v[i].pid, v[i].bytes, ~0U, ~0U};
        memset((char *)out + i * size, 0, size);
        memcpy((char *)out + i * size, &x, sizeof(x));
    }
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v2(device d, unsigned *n, struct info2 *out)
{
    return list(d->running, d->nrunning, n, out, sizeof(*out));
}

#if DRIVER > 450
int nvmlDeviceGetComputeRunningProcesses_v3(device d, unsigned *n, struct info3 *out)
{
    return list(d->running, d->nrunning, n, out, sizeof(*out));
}

static int list_mps(device d, unsigned *n, void *out, unsigned size)
{
    fake_nvml.asked_mps++;
    return fake_nvml.mps_status ? fake_nvml.mps_status : list(d->mps, d->nmps, n, out, size);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v2(device d, unsigned *n, struct info2 *out)
{
    return list_mps(d, n, out, sizeof(*out));
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(device d, unsigned *n, struct info3 *out)
{
    return list_mps(d, n, out, sizeof(*out));
}
#endif
