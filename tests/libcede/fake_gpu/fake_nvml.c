/* A stand-in for libnvidia-ml.so.1 as leases use it. */
#include <stdlib.h>

#include "fake_gpu.h"

extern struct fake_nvml fake_nvml;
struct fake_nvml fake_nvml;

struct rates {
    unsigned gpu, memory;
};

struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned instances[2];
};

GIVES(nvmlInit_v2, (void), 0)
GIVES(nvmlShutdown, (void), 0)

CALL(nvmlDeviceGetHandleByPciBusId_v2, const char *bus, void **d)
{
    long n = strtol(bus + 5, NULL, 16) - 40;
    *d = n == 0 || n == 1 ? &fake_nvml.percent[n] : NULL;
    return *d ? 0 : 6;
}

CALL(nvmlDeviceGetUtilizationRates, void *d, struct rates *out)
{
    fake_nvml.asked++;
    out->gpu = (unsigned)*(atomic_int *)d;
    return 0;
}

CALL(nvmlDeviceGetComputeRunningProcesses_v3, void *d, unsigned *n, struct process *v)
{
    unsigned there = d == &fake_nvml.percent[0] ? fake_nvml.processes : 0, most = *n;
    *n = there;
    if (most < there)
        return 7; /* insufficient size */
    for (unsigned i = 0; i < there; i++)
        v[i] = (struct process){fake_nvml.process[i].pid, fake_nvml.process[i].bytes, {0, 0}};
    return 0;
}
