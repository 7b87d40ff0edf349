/* A stand-in for libcuda.so.1, so that cede-load's NVIDIA back end is tested without a GPU: one
 * small device that takes real time for a kernel and does the kernel's arithmetic. Knows just the
 * calls that cede-load makes. FAKE_CUDA in the environment says what shall go wrong. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/load/kernels.h"

#define CALL(name, ...)                                                                            \
    int name(__VA_ARGS__);                                                                         \
    int name(__VA_ARGS__)

enum { STEPS_PER_US = 20, LAUNCH_NS = 5000, THREADS_MAX = 4 * 256 };
enum { OK = 0, BAD_VALUE = 1, NO_MEMORY = 2, NO_GPU = 100, BAD_GPU = 101, NOT_READY = 600 };

static struct {
    uint64_t busy_until_ns; /* of the one stream that cede-load makes */
    uint64_t launches;
    int contexts, events;
    uint64_t event_ns[2048];
} gpu;

static bool fault(const char *what)
{
    const char *s = getenv("FAKE_CUDA");
    return s && strcmp(s, what) == 0;
}

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

CALL(cuInit, unsigned flags)
{
    return fault("no-gpu") ? NO_GPU : OK;
}

CALL(cuGetErrorName, int r, const char **s)
{
    *s = r == NO_GPU ? "CUDA_ERROR_NO_DEVICE" : NULL;
    return *s ? OK : BAD_VALUE;
}

CALL(cuGetErrorString, int r, const char **s)
{
    *s = NULL;
    return BAD_VALUE;
}

CALL(cuDeviceGet, int *d, int ordinal)
{
    *d = ordinal;
    return ordinal == 0 ? OK : BAD_GPU;
}

CALL(cuDeviceGetAttribute, int *v, int attribute, int d)
{
    *v = 2;
    return attribute == 16 || attribute == 63 ? OK : BAD_VALUE; /* 63: HIP's number */
}

CALL(cuCtxCreate_v2, void **c, unsigned flags, int d)
{
    if (fault("second-context") && gpu.contexts == 1)
        return NO_MEMORY;
    gpu.contexts++;
    *c = malloc(1);
    return OK;
}

/* The last context that goes checks that nothing was left running. */
CALL(cuCtxDestroy_v2, void *c)
{
    free(c);
    if (--gpu.contexts == 0 && !fault("hang") && !fault("dead") && gpu.busy_until_ns > now_ns())
        abort();
    return OK;
}

CALL(cuModuleLoadData, void **m, const void *image)
{
    *m = NULL;
    const char *const known[] = {spin_ptx, spin_hip, hold_ptx};
    size_t i = 0;
    while (i < 3 && strcmp(image, known[i]) != 0)
        i++;
    return i < 3 ? OK : 218;
}

CALL(cuModuleGetFunction, void **f, void *m, const char *name)
{
    static const char *const names[] = {SPIN_ENTRY, HOLD_FILL, HOLD_CHECK};
    for (size_t i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            *f = (void *)(uintptr_t)i; /* 0 is the spinning kernel */
            return OK;
        }
    }
    return 500;
}

CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *blocks, void *f, int threads, size_t shared)
{
    *blocks = 2;
    return threads == (int)SPIN_THREADS ? OK : BAD_VALUE;
}

static void *arena(size_t bytes)
{
    static void *blocks[8]; /* still reachable at exit: no leak */
    static size_t n;
    return n < 8 ? blocks[n++] = calloc(1, bytes) : NULL;
}

CALL(cuMemAlloc_v2, unsigned long long *p, size_t bytes)
{
    *p = fault("memory") ? 0 : (uintptr_t)arena(bytes);
    return *p ? OK : NO_MEMORY;
}

CALL(cuMemAllocHost_v2, void **p, size_t bytes)
{
    *p = arena(bytes);
    return *p ? OK : NO_MEMORY;
}

static void *at(unsigned long long p)
{
    return (void *)(uintptr_t)p;
}

CALL(cuMemcpyDtoH_v2, void *dst, unsigned long long src, size_t bytes)
{
    memcpy(dst, at(src), bytes);
    return OK;
}

CALL(cuMemcpyHtoDAsync_v2, unsigned long long dst, const void *src, size_t bytes, void *s)
{
    memcpy(at(dst), src, bytes);
    return OK;
}

CALL(cuMemcpyDtoHAsync_v2, void *dst, unsigned long long src, size_t bytes, void *s)
{
    memcpy(dst, at(src), bytes);
    if (fault("copy"))
        ((char *)dst)[bytes - 1] ^= 1;
    return OK;
}

CALL(cuStreamCreate, void **s, unsigned flags)
{
    *s = NULL;
    return OK;
}

CALL(cuStreamQuery, void *s)
{
    if (fault("dead") && gpu.launches > 3)
        return 719;
    return now_ns() >= gpu.busy_until_ns ? OK : NOT_READY;
}

CALL(cuEventCreate, void **e, unsigned flags)
{
    *e = &gpu.event_ns[gpu.events++];
    return gpu.events <= 1024 ? OK : NO_MEMORY;
}

CALL(cuEventRecord, void *e, void *s)
{
    uint64_t now = now_ns();
    *(uint64_t *)e = gpu.busy_until_ns > now ? gpu.busy_until_ns : now;
    return OK;
}

CALL(cuEventQuery, void *e)
{
    return now_ns() >= *(uint64_t *)e ? OK : NOT_READY;
}

/* Kernel 1 fills, 2 counts what differs. */
static int hold(uintptr_t kernel, void **params)
{
    unsigned long long words, n, wrong;
    memcpy(&words, params[0], sizeof(words));
    memcpy(&n, params[1], sizeof(n));
    memcpy(&wrong, params[2], sizeof(wrong));
    uint32_t *w = at(words);
    if (kernel == 2 && fault("forget")) /* three words */
        memset(w + n - 3, 0, 3 * sizeof(*w));
    for (unsigned long long i = 0; i < n; i++) {
        if (kernel == 1)
            w[i] = HOLD_WORD(i);
        else
            *(uint32_t *)at(wrong) += w[i] != HOLD_WORD(i);
    }
    return OK;
}

CALL(cuLaunchKernel, void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
     unsigned bz, unsigned shared, void *s, void **params, void **extra)
{
    unsigned long long state;
    uint32_t iters, mul = 1, add = 0;
    if (f)
        return hold((uintptr_t)f, params);
    memcpy(&state, params[0], sizeof(state));
    memcpy(&iters, params[1], sizeof(iters));
    if (gx * bx > THREADS_MAX || gy * gz * by * bz != 1)
        return BAD_VALUE;
    if (fault("skip") && gpu.launches == 10) /* one step too few, once */
        iters--;
    for (uint32_t i = 0; i < iters; i++) {
        mul *= SPIN_MUL;
        add = add * SPIN_MUL + SPIN_ADD;
    }
    uint32_t *x = at(state);
    for (unsigned i = 0; i < gx * bx; i++)
        x[i] = x[i] * mul + add;
    uint64_t now = now_ns();
    uint64_t start = gpu.busy_until_ns > now ? gpu.busy_until_ns : now + LAUNCH_NS;
    gpu.busy_until_ns = start + (uint64_t)iters * 1000 / STEPS_PER_US;
    if (fault("hang") && gpu.launches == 10)
        gpu.busy_until_ns = start + 3600ULL * 1000000000;
    gpu.launches++;
    return OK;
}
