/* A stand-in for libcuda.so.1 as leases use it: streams and contexts that are counted. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "fake_gpu.h"

#define CALL(name, ...)                                                                            \
    int name(__VA_ARGS__);                                                                         \
    int name(__VA_ARGS__)

enum { OK = 0, BAD_VALUE = 1, NO_MEMORY = 2 };

extern struct fake_cuda fake_cuda;
struct fake_cuda fake_cuda;
extern char fake_contexts[2];
char fake_contexts[2];
static _Thread_local int current[8], depth;

CALL(cuInit, unsigned flags)
{
    return OK;
}

CALL(cuGetErrorName, int r, const char **s)
{
    *s = r == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : NULL;
    return *s ? OK : BAD_VALUE;
}

CALL(cuDeviceGetCount, int *n)
{
    *n = 2;
    return OK;
}

CALL(cuDeviceGet, int *d, int ordinal)
{
    *d = 40 + ordinal;
    return OK;
}

CALL(cuDeviceGetAttribute, int *v, int attribute, int d)
{
    *v = attribute == 16 ? 4 : 1024;
    return d == 40 || d == 41 ? OK : BAD_VALUE;
}

CALL(cuDeviceTotalMem_v2, size_t *bytes, int d)
{
    *bytes = 1000;
    return OK;
}

CALL(cuDeviceGetPCIBusId, char *s, int len, int d)
{
    snprintf(s, (size_t)len, "0000:%02x:00.0", d);
    return OK;
}

CALL(cuDevicePrimaryCtxRetain, void **c, int d)
{
    *c = &fake_contexts[d - 40];
    fake_cuda.contexts++;
    return OK;
}

CALL(cuDevicePrimaryCtxRelease_v2, int d)
{
    fake_cuda.contexts--;
    return OK;
}

CALL(cuCtxPushCurrent_v2, void *c)
{
    current[depth++] = (int)((char *)c - fake_contexts);
    return OK;
}

CALL(cuCtxPopCurrent_v2, void **c)
{
    fake_cuda.bad += depth < 1;
    *c = &fake_contexts[current[--depth]];
    return OK;
}

CALL(cuCtxGetCurrent, void **c)
{
    *c = depth ? &fake_contexts[current[depth - 1]] : NULL;
    return OK;
}

CALL(cuCtxGetDevice, int *d)
{
    *d = depth ? 40 + current[depth - 1] : -1;
    return depth ? OK : BAD_VALUE;
}

/* A stream knows its device. */
CALL(cuStreamCreateWithPriority, void **s, unsigned flags, int priority)
{
    fake_cuda.bad += depth < 1 || flags != 1 || priority > 0 || priority < -5;
    if (fake_cuda.fail_streams)
        return NO_MEMORY;
    *s = malloc(1);
    *(char *)*s = (char)current[depth - 1];
    fake_cuda.last_priority = priority;
    fake_cuda.streams++;
    fake_cuda.streams_made++;
    return OK;
}

CALL(cuStreamDestroy_v2, void *s)
{
    fake_cuda.bad += depth < 1 || *(char *)s != current[depth - 1];
    free(s);
    fake_cuda.streams--;
    return OK;
}

/* The function is a number: blocks an SM; with 16 it is of the second GPU. */
CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *blocks, void *f, int threads, size_t shared)
{
    fake_cuda.bad += depth < 1 || current[depth - 1] != (int)((uintptr_t)f / 16);
    fake_cuda.occupancy_asked++;
    *blocks = shared > 1000 ? 0 : (int)((uintptr_t)f % 16);
    return OK;
}
