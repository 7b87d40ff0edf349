/* The library that nvml.c opens, and that gpm.c and doctor use too. */
#ifndef CEDE_GPU_NVIDIA_NVML_H
#define CEDE_GPU_NVIDIA_NVML_H

#include "gpu/nvidia/nvidia.h"

typedef void *nvml_device;
typedef void *gpm_sample;
struct nvml_pci_info;
struct nvml_memory;
struct nvml_process_info;
struct nvml_sample;
struct nvml_rates;
struct nvml_attributes;
struct gpm_support;
struct gpm_metrics;

/* Two samples of the counters of one of our devices. */
struct gpm_gpu {
    char uuid[NV_UUID_BYTES]; /* the device's index may change */
    nvml_device device;
    bool supported, sampled;
    gpm_sample from, to;
    uint64_t ns;  /* time of `from` */
    double clock; /* at that time, as a share of the highest */
};

/* The library's calls: member, name, arguments. First those without which it is not used, */
#define NVML_NEEDED(X)                                                                             \
    X(init, nvmlInit_v2, (void))                                                                   \
    X(shutdown, nvmlShutdown, (void))                                                              \
    X(count, nvmlDeviceGetCount_v2, (unsigned *n))                                                 \
    X(by_index, nvmlDeviceGetHandleByIndex_v2, (unsigned i, nvml_device *d))                       \
    X(name, nvmlDeviceGetName, (nvml_device d, char *buf, unsigned size))                          \
    X(uuid, nvmlDeviceGetUUID, (nvml_device d, char *buf, unsigned size))                          \
    X(pci, nvmlDeviceGetPciInfo_v3, (nvml_device d, struct nvml_pci_info * out))                   \
    X(memory, nvmlDeviceGetMemoryInfo, (nvml_device d, struct nvml_memory * out))
/* then those of which each may be missing; lists of MPS clients came with driver 470. The _v2 of
 * both lists has the same entries in every library so far, but the _v3 of 535.43 to 535.86 has
 * larger ones and is used only where there is no _v2, */
#define NVML_OPTIONAL(X)                                                                           \
    X(running, nvmlDeviceGetComputeRunningProcesses_v2, NVML_LIST)                                 \
    X(running_v3, nvmlDeviceGetComputeRunningProcesses_v3, NVML_LIST)                              \
    X(mps, nvmlDeviceGetMPSComputeRunningProcesses_v2, NVML_LIST)                                  \
    X(mps_v3, nvmlDeviceGetMPSComputeRunningProcesses_v3, NVML_LIST)                               \
    X(samples, nvmlDeviceGetProcessUtilization,                                                    \
      (nvml_device d, struct nvml_sample * out, unsigned *n, unsigned long long since))            \
    X(rates, nvmlDeviceGetUtilizationRates, (nvml_device d, struct nvml_rates * out))              \
    X(compute_mode, nvmlDeviceGetComputeMode, (nvml_device d, int *mode))                          \
    X(mig_mode, nvmlDeviceGetMigMode, (nvml_device d, unsigned *now, unsigned *pending))           \
    X(mig_count, nvmlDeviceGetMaxMigDeviceCount, (nvml_device d, unsigned *most))                  \
    X(mig_by_index, nvmlDeviceGetMigDeviceHandleByIndex,                                           \
      (nvml_device d, unsigned i, nvml_device *instance))                                          \
    X(gpu_instance, nvmlDeviceGetGpuInstanceId, (nvml_device d, unsigned *id))                     \
    X(compute_instance, nvmlDeviceGetComputeInstanceId, (nvml_device d, unsigned *id))             \
    X(attributes, nvmlDeviceGetAttributes_v2, (nvml_device d, struct nvml_attributes * out))       \
    X(clock, nvmlDeviceGetClockInfo, (nvml_device d, int type, unsigned *mhz))                     \
    X(clock_most, nvmlDeviceGetMaxClockInfo, (nvml_device d, int type, unsigned *mhz))
/* and those for gpm.c, of which all are needed: since driver 525, on Hopper. */
#define NVML_GPM(X)                                                                                \
    X(by_uuid, nvmlDeviceGetHandleByUUID, (const char *uuid, nvml_device *d))                      \
    X(gpm_support, nvmlGpmQueryDeviceSupport, (nvml_device d, struct gpm_support * out))           \
    X(gpm_alloc, nvmlGpmSampleAlloc, (gpm_sample * s))                                             \
    X(gpm_free, nvmlGpmSampleFree, (gpm_sample s))                                                 \
    X(gpm_take, nvmlGpmSampleGet, (nvml_device d, gpm_sample s))                                   \
    X(gpm_metrics, nvmlGpmMetricsGet, (struct gpm_metrics * m))
#define NVML_LIST (nvml_device d, unsigned *n, struct nvml_process_info *out)

#define NVML_COMPUTEMODE_DEFAULT 0 /* several processes may have the GPU at a time */

struct nvml {
    void *lib;
    bool has_gpm;
    struct gpm_gpu gpm[DEVICE_GPUS_MAX];
#define X(member, symbol, arguments) int(*member) arguments;
    NVML_NEEDED(X)
    NVML_OPTIONAL(X)
    NVML_GPM(X)
#undef X
};

/* The number of indices of a GPU's MIG instances, some of which may be free; 0: MIG mode is off. */
unsigned nvml_instance_indices(struct nvml *n, nvml_device gpu);

/* Called before the library is closed. */
void gpm_close(struct nvml *n);

#endif
