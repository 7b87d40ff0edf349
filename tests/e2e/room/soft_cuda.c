/* A libcuda.so.1 whose GPU is the software GPU, as far as cede/memory.h calls it: memory is taken
 * and given back there. The context is opened when it is first retained. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/registry.h"
#include "gpu/soft/client.h"

#define CALL(name, ...)                                                                            \
    int name(__VA_ARGS__);                                                                         \
    int name(__VA_ARGS__)

enum { OK = 0, NO_MEMORY = 2, NO_DEVICE = 100, FAILED = 999 };
enum { BLOCKS = 16 };

static struct soft_client *client;
static struct device_driver *driver;
static int64_t blocks[BLOCKS]; /* bytes; an address is an index and one */

CALL(cuInit, unsigned flags)
{
    struct error err;
    return device_open("soft", NULL, &driver, &err) == 0 ? OK : NO_DEVICE;
}

CALL(cuGetErrorName, int r, const char **s)
{
    *s = r == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
    return OK;
}

CALL(cuDeviceGet, int *d, int ordinal)
{
    *d = ordinal;
    return ordinal ? NO_DEVICE : OK;
}

CALL(cuDeviceGetAttribute, int *v, int attribute, int d)
{
    *v = 0;
    return OK;
}

CALL(cuDeviceTotalMem_v2, size_t *bytes, int d)
{
    struct gpu_info g;
    int r = driver->ops->info(driver, 0, &g);
    *bytes = r ? 0 : g.memory_bytes;
    return r ? FAILED : OK;
}

CALL(cuDeviceGetPCIBusId, char *s, int length, int d)
{
    return FAILED;
}

CALL(cuDevicePrimaryCtxRetain, void **c, int d)
{
    *c = &client;
    return client || soft_client_open(NULL, 0, NULL, &client) == 0 ? OK : FAILED;
}

CALL(cuDevicePrimaryCtxRelease_v2, int d)
{
    return OK;
}

CALL(cuCtxPushCurrent_v2, void *c)
{
    return OK;
}

CALL(cuCtxPopCurrent_v2, void **c)
{
    return OK;
}

CALL(cuMemGetInfo_v2, size_t *available, size_t *all)
{
    struct error err;
    uint64_t bytes = 0;
    int r = driver->ops->memory_free(driver, 0, &bytes, &err);
    *available = bytes;
    return r ? FAILED : cuDeviceTotalMem_v2(all, 0);
}

CALL(cuMemAlloc_v2, unsigned long long *address, size_t bytes)
{
    unsigned i = 0;
    while (i < BLOCKS && blocks[i])
        i++;
    if (i == BLOCKS || soft_client_alloc(client, (int64_t)bytes) < 0)
        return NO_MEMORY;
    blocks[i] = (int64_t)bytes;
    *address = i + 1;
    return OK;
}

CALL(cuMemFree_v2, unsigned long long address)
{
    int r = soft_client_alloc(client, -blocks[address - 1]);
    blocks[address - 1] = 0;
    return r ? FAILED : OK;
}

CALL(cuStreamCreateWithPriority, void **s, unsigned flags, int priority)
{
    return FAILED;
}

CALL(cuStreamDestroy_v2, void *s)
{
    return FAILED;
}

CALL(cuStreamSynchronize, void *s)
{
    return FAILED;
}
