/* A stand-in for libnvidia-ml.so.1 as bench and doctor ask it: one GPU for all programs, which has
 * so many MIG instances as FAKE_NVML_MIG in the environment says. */
#include <stdio.h>
#include <stdlib.h>

#define CALL(name, ...)                                                                            \
    int name(__VA_ARGS__);                                                                         \
    int name(__VA_ARGS__)

CALL(nvmlInit_v2, void)
{
    return 0;
}

CALL(nvmlShutdown, void)
{
    return 0;
}

CALL(nvmlDeviceGetCount_v2, unsigned *n)
{
    *n = 1;
    return 0;
}

CALL(nvmlDeviceGetHandleByIndex_v2, unsigned i, void **gpu)
{
    static int it;
    *gpu = &it;
    return i == 0 ? 0 : 2;
}

CALL(nvmlDeviceGetName, void *gpu, char *buf, unsigned size)
{
    snprintf(buf, size, "NVIDIA GPU");
    return 0;
}

CALL(nvmlDeviceGetUUID, void *gpu, char *buf, unsigned size)
{
    snprintf(buf, size, "GPU-0");
    return 0;
}

/* These two nobody asks for. */
CALL(nvmlDeviceGetPciInfo_v3, void *gpu, void *out)
{
    return 3;
}

CALL(nvmlDeviceGetMemoryInfo, void *gpu, void *out)
{
    return 3;
}

CALL(nvmlDeviceGetMigMode, void *gpu, unsigned *now, unsigned *pending)
{
    *now = *pending = getenv("FAKE_NVML_MIG") != NULL;
    return 0;
}

/* Every second place is free. */
CALL(nvmlDeviceGetMaxMigDeviceCount, void *gpu, unsigned *n)
{
    const char *instances = getenv("FAKE_NVML_MIG");
    *n = instances ? 2 * (unsigned)atoi(instances) : 0;
    return 0;
}

CALL(nvmlDeviceGetMigDeviceHandleByIndex, void *gpu, unsigned i, void **instance)
{
    *instance = gpu;
    return i % 2 ? 6 : 0;
}

CALL(nvmlDeviceGetComputeMode, void *gpu, unsigned *mode)
{
    *mode = 0;
    return 0;
}

CALL(nvmlDeviceGetClockInfo, void *gpu, unsigned kind, unsigned *mhz)
{
    *mhz = 1000 * kind; /* 1: SM, 2: memory */
    return 0;
}

CALL(nvmlDeviceGetMaxClockInfo, void *gpu, unsigned kind, unsigned *mhz)
{
    *mhz = 1000 * kind + 500;
    return 0;
}
