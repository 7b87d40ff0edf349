/* The part of the stand-in for libcuda that has memory: allocations and managed ranges share what
 * the GPU has with other processes, which a test sets. Built with FAKE_OLD it is a driver before
 * CUDA 12.2, whose prefetching takes a device's number. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fake_gpu.h"

enum { OK = 0, BAD_VALUE = 1, NO_MEMORY = 2 };
enum { TOTAL = 1000 };

struct location {
    int type, id;
};

extern struct fake_memory fake_memory;
struct fake_memory fake_memory;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t available(void)
{
    uint64_t taken = fake_memory.others + fake_memory.allocated_bytes;
    return taken < TOTAL ? TOTAL - taken : 0;
}

CALL(cuMemGetInfo_v2, size_t *free_bytes, size_t *all)
{
    fake_memory.asked++;
    pthread_mutex_lock(&lock);
    *free_bytes = available();
    *all = TOTAL;
    pthread_mutex_unlock(&lock);
    return OK;
}

/* Each allocation says how large it is. */
CALL(cuMemAlloc_v2, unsigned long long *address, size_t bytes)
{
    void *context = NULL;
    cuCtxGetCurrent(&context);
    fake_cuda.bad += !context;
    if (fake_memory.fail_allocations && fake_memory.fail_allocations-- > 0)
        return NO_MEMORY;
    pthread_mutex_lock(&lock);
    int r = bytes <= available() ? OK : NO_MEMORY;
    if (r == OK) {
        size_t *made = malloc(sizeof(*made));
        *made = bytes;
        *address = (unsigned long long)(uintptr_t)made;
        fake_memory.allocated_bytes += bytes;
        fake_cuda.allocated++;
    } else {
        fake_memory.refused++;
    }
    pthread_mutex_unlock(&lock);
    return r;
}

CALL(cuMemFree_v2, unsigned long long address)
{
    size_t *made = (size_t *)(uintptr_t)address;
    pthread_mutex_lock(&lock);
    fake_memory.allocated_bytes -= *made;
    fake_cuda.allocated--;
    pthread_mutex_unlock(&lock);
    free(made);
    return OK;
}

DOES(cuStreamSynchronize, (void *s), fake_memory.synchronized++)

CALL(cuDeviceGetUuid_v2, unsigned char uuid[16], int d)
{
    for (int i = 0; i < 16; i++)
        uuid[i] = (unsigned char)(d + i);
    return OK;
}

static int prefetch(unsigned long long address, size_t bytes, int d, void *stream)
{
    fake_cuda.bad += !stream || d != 40;
    if (!address)
        return BAD_VALUE;
    fake_memory.prefetched += bytes;
    return OK;
}

CALL(cuMemPrefetchAsync, unsigned long long address, size_t bytes, int d, void *stream)
{
    fake_memory.old_calls++;
    return prefetch(address, bytes, d, stream);
}

CALL(cuMemAdvise, unsigned long long address, size_t bytes, int advice, int d)
{
    fake_memory.old_calls++;
    fake_cuda.bad += d != 40;
    fake_memory.advised |= 1 << advice;
    return OK;
}

#ifndef FAKE_OLD
CALL(cuMemPrefetchAsync_v2, unsigned long long address, size_t bytes, struct location to,
     unsigned flags, void *stream)
{
    fake_cuda.bad += to.type != 1 || flags;
    return prefetch(address, bytes, to.id, stream);
}

CALL(cuMemAdvise_v2, unsigned long long address, size_t bytes, int advice, struct location where)
{
    fake_cuda.bad += where.type != 1 || where.id != 40;
    fake_memory.advised |= 1 << advice;
    return OK;
}
#endif
