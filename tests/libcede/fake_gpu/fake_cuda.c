/* A stand-in for libcuda.so.1: streams, contexts and modules are counted, launches recorded.
 * Nothing runs but the future map's kernels (fake_streams.c). Knows just the calls that libcede
 * makes. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_gpu.h"

/* The other part may know better: fake_graph.c or fake_streams.c. */
__attribute__((weak)) int fake_graph_launch(void *f, void *stream, void **params)
{
    return -1;
}

__attribute__((weak)) int fake_launch_future(const char *text, unsigned blocks, unsigned threads,
                                             void **params)
{
    return 0;
}

__attribute__((weak)) int fake_fails_to_make(void)
{
    return 0;
}

enum {
    OK = 0,
    BAD_VALUE = 1,
    NO_MEMORY = 2,
    NO_CONTEXT = 201,
    FAILED = 719,
    CAPTURE_UNSUPPORTED = 900
};

struct fake_cuda fake_cuda = {.free_bytes = 1 << 20, .registers = 16};
char fake_contexts[2];
static _Thread_local void *stack[8];
static _Thread_local int depth;

/* Calls that open files or ask the kernel change errno in a real driver. */
static void change_errno(void)
{
    errno = ENOTTY;
}

static void *top(void)
{
    return depth ? stack[depth - 1] : fake_cuda.current;
}

DOES(cuInit, (unsigned flags), change_errno())

CALL(cuGetErrorName, int r, const char **s)
{
    *s = r == NO_MEMORY             ? "CUDA_ERROR_OUT_OF_MEMORY"
         : r == CAPTURE_UNSUPPORTED ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
                                    : NULL;
    return *s ? OK : BAD_VALUE;
}

DOES(cuDeviceGetCount, (int *n), *n = 2)

CALL(cuDeviceGet, int *d, int ordinal)
{
    *d = 40 + ordinal;
    return ordinal == 0 || ordinal == 1 ? OK : BAD_VALUE;
}

DOES(cuDeviceGetName, (char *name, int length, int d), snprintf(name, (size_t)length, "stand-in"))

DOES(cuDriverGetVersion, (int *version), *version = 12000)

CALL(cuDeviceGetAttribute, int *v, int attribute, int d)
{
    *v = attribute == 16    ? 4      /* SMs */
         : attribute == 75  ? 9      /* compute capability */
         : attribute == 81  ? 100000 /* shared memory of an SM */
         : attribute == 12  ? 65536  /* registers of a block */
         : attribute == 82  ? 65536  /* registers of an SM */
         : attribute == 89  ? !fake_cuda.unmanaged
         : attribute == 106 ? 32 /* blocks of an SM */
                            : 1024;
    return d == 40 || d == 41 ? OK : BAD_VALUE;
}

DOES(cuDeviceTotalMem_v2, (unsigned long *bytes, int d), *bytes = 1000)

DOES(cuDeviceGetPCIBusId, (char *s, int len, int d), snprintf(s, (size_t)len, "0000:%02x:00.0", d))

DOES(cuFuncGetAttribute, (int *v, int attribute, void *f),
     *v = attribute == 4   ? fake_cuda.registers
          : attribute == 1 ? fake_cuda.static_bytes
                           : 0)

CALL(cuDevicePrimaryCtxRetain, void **c, int d)
{
    *c = &fake_contexts[d - 40];
    fake_cuda.contexts++;
    return OK;
}

DOES(cuDevicePrimaryCtxRelease_v2, (int d), fake_cuda.contexts--)

DOES(cuCtxGetCurrent, (void **c), *c = top())

CALL(cuCtxPushCurrent_v2, void *c)
{
    if (!c || depth == 8)
        return BAD_VALUE;
    stack[depth++] = c;
    fake_cuda.pushed++;
    return OK;
}

CALL(cuCtxPopCurrent_v2, void **c)
{
    if (!depth) {
        fake_cuda.bad++;
        return NO_CONTEXT;
    }
    *c = stack[--depth];
    fake_cuda.pushed--;
    return OK;
}

CALL(cuCtxGetDevice, int *d)
{
    *d = top() ? 40 + (int)((char *)top() - fake_contexts) : -1;
    return top() ? OK : BAD_VALUE;
}

/* The function is a number: blocks an SM; with 16 it is of the second GPU. */
CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *blocks, void *f, int threads, size_t shared)
{
    fake_cuda.bad += top() != &fake_contexts[(uintptr_t)f / 16];
    fake_cuda.occupancy_asked++;
    *blocks = shared > 1000 ? 0 : (int)((uintptr_t)f % 16);
    return OK;
}

/* A stream knows its context. */
CALL(cuStreamCreateWithPriority, void **s, unsigned flags, int priority)
{
    fake_cuda.bad += !top() || flags != 1 || priority > 0 || priority < -5;
    change_errno();
    if (fake_cuda.fail_streams)
        return NO_MEMORY;
    struct fake_stream *made = calloc(1, sizeof(*made));
    made->context = top();
    *s = made;
    fake_cuda.last_priority = priority;
    fake_cuda.streams++;
    fake_cuda.streams_made++;
    return OK;
}

CALL(cuStreamCreate, void **s, unsigned flags)
{
    int r = cuStreamCreateWithPriority(s, 1, 0);
    if (r == OK)
        ((struct fake_stream *)*s)->blocking = !flags;
    return r;
}

CALL(cuStreamDestroy_v2, void *s)
{
    fake_cuda.bad += !top() || ((struct fake_stream *)s)->context != top();
    change_errno();
    free(s);
    fake_cuda.streams--;
    return OK;
}

CALL(cuCtxGetStreamPriorityRange, int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return top() ? OK : NO_CONTEXT;
}

CALL(cuModuleLoadData, void **m, const void *image)
{
    if (!strstr(image, ".visible .entry"))
        return BAD_VALUE;
    fake_cuda.modules++;
    *m = strdup(image);
    return OK;
}

CALL(cuModuleUnload, void *m)
{
    fake_cuda.modules--;
    free(m);
    return OK;
}

/* A function is its name's place in the module's text. */
CALL(cuModuleGetFunction, void **f, void *m, const char *name)
{
    *f = strstr(m, name);
    return *f ? OK : BAD_VALUE;
}

CALL(cuMemHostAlloc, void **p, size_t bytes, unsigned flags)
{
    if (fake_fails_to_make())
        return NO_MEMORY;
    fake_cuda.pinned++;
    *p = malloc(bytes);
    return OK;
}

DOES(cuMemHostGetDevicePointer_v2, (unsigned long long *d, void *p, unsigned flags),
     *d = (unsigned long long)(uintptr_t)p)

CALL(cuMemFreeHost, void *p)
{
    fake_cuda.pinned--;
    free(p);
    return OK;
}

CALL(cuLaunchKernel, void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
     unsigned bz, unsigned shared, void *stream, void **params, void **extra)
{
    struct timespec t;
    int r = fake_graph_launch(f, stream, params);
    if (r >= 0)
        return r;
    if (fake_cuda.fail_launch && --fake_cuda.fail_launch == 0)
        return FAILED;
    if (top() && gy * gz * by * bz == 1 && fake_launch_future(f, gx, bx, params))
        return OK;
    if (gx * gy * gz * bx * by * bz != 1 || !top() || fake_cuda.n == 256)
        return BAD_VALUE;
    clock_gettime(CLOCK_MONOTONIC, &t);
    struct fake_launch *l = &fake_cuda.launch[fake_cuda.n];
    *l = (struct fake_launch){.context = top(),
                              .stream = stream,
                              .at_ns = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec};
    memcpy(l->kernel, f, strcspn(f, "("));
    volatile uint32_t *words = (volatile uint32_t *)(uintptr_t) * (unsigned long long *)params[0];
    l->words = words;
    l->number = *(uint32_t *)params[1];
    if (strcmp(l->kernel, "cede_tail") == 0) {
        words[2] = fake_cuda.busy ? words[2] : l->number; /* at once: nothing here runs for long */
    } else {
        l->limit_ns = *(uint64_t *)params[2];
        l->keep_ns = *(uint64_t *)params[3];
    }
    __atomic_store_n(&fake_cuda.n, fake_cuda.n + 1, __ATOMIC_RELEASE);
    return OK;
}
