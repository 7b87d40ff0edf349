/* A stand-in for libcuda.so.1, so that libcede's leads are tested without a GPU: it runs nothing
 * and records what it is asked to run. Knows just the calls that libcede makes. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_cuda.h"

#define CALL(name, ...)                                                                            \
    int name(__VA_ARGS__);                                                                         \
    int name(__VA_ARGS__)

enum { OK = 0, BAD_VALUE = 1, NO_CONTEXT = 201, FAILED = 719 };

static struct fake_cuda gpu;
static _Thread_local void *stack[8];
static _Thread_local int depth;

struct fake_cuda *fake_cuda(void)
{
    return &gpu;
}

static void *top(void)
{
    return depth ? stack[depth - 1] : gpu.current;
}

CALL(cuCtxGetCurrent, void **c)
{
    *c = top();
    return OK;
}

CALL(cuCtxPushCurrent_v2, void *c)
{
    if (!c || depth == 8)
        return BAD_VALUE;
    stack[depth++] = c;
    __atomic_add_fetch(&gpu.pushed, 1, __ATOMIC_RELAXED);
    return OK;
}

CALL(cuCtxPopCurrent_v2, void **c)
{
    if (!depth)
        return NO_CONTEXT;
    *c = stack[--depth];
    __atomic_sub_fetch(&gpu.pushed, 1, __ATOMIC_RELAXED);
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
    gpu.modules++;
    *m = strdup(image);
    return OK;
}

CALL(cuModuleUnload, void *m)
{
    gpu.modules--;
    free(m);
    return OK;
}

/* A function is its name's place in the module's text. */
CALL(cuModuleGetFunction, void **f, void *m, const char *name)
{
    *f = strstr(m, name);
    return *f ? OK : BAD_VALUE;
}

CALL(cuStreamCreateWithPriority, void **s, unsigned flags, int priority)
{
    if (flags != 1 || priority != -5)
        return BAD_VALUE;
    gpu.streams++;
    *s = malloc(1);
    return OK;
}

CALL(cuStreamSynchronize, void *s)
{
    return OK;
}

CALL(cuStreamDestroy_v2, void *s)
{
    gpu.streams--;
    free(s);
    return OK;
}

CALL(cuMemHostAlloc, void **p, size_t bytes, unsigned flags)
{
    gpu.pinned++;
    *p = malloc(bytes);
    return OK;
}

CALL(cuMemHostGetDevicePointer_v2, unsigned long long *d, void *p, unsigned flags)
{
    *d = (unsigned long long)(uintptr_t)p;
    return OK;
}

CALL(cuMemFreeHost, void *p)
{
    gpu.pinned--;
    free(p);
    return OK;
}

CALL(cuLaunchKernel, void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
     unsigned bz, unsigned shared, void *stream, void **params, void **extra)
{
    struct timespec t;
    if (gpu.fail_launch && --gpu.fail_launch == 0)
        return FAILED;
    if (gx * gy * gz * bx * by * bz != 1 || !top() || gpu.n == 256)
        return BAD_VALUE;
    clock_gettime(CLOCK_MONOTONIC, &t);
    struct fake_launch *l = &gpu.launch[gpu.n];
    *l = (struct fake_launch){.context = top(),
                              .stream = stream,
                              .at_ns = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec};
    memcpy(l->kernel, f, strcspn(f, "("));
    volatile uint32_t *words = (volatile uint32_t *)(uintptr_t) * (unsigned long long *)params[0];
    l->words = words;
    l->number = *(uint32_t *)params[1];
    if (strcmp(l->kernel, "cede_tail") == 0) {
        words[2] = gpu.busy ? words[2] : l->number; /* at once: nothing here runs for long */
    } else {
        l->limit_ns = *(uint64_t *)params[2];
        l->keep_ns = *(uint64_t *)params[3];
    }
    __atomic_store_n(&gpu.n, gpu.n + 1, __ATOMIC_RELEASE);
    return OK;
}
