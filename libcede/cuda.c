/* libcede: what all calls of the driver have in common, and the host in place of a GPU; see cuda.h.
 * What is put into a stream of the host has run when the call returns, so an event is the time at
 * which it was put there. */
#include "libcede/cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcede/clock.h"

int cede_cuda_failed(const struct cuda *cu, int r, const char *what, struct gpu_error *e)
{
    const char *name = NULL;
    if (r == 0 || r == HOST_NO_MEMORY)
        return r ? -ENOMEM : 0;
    cu->error_name(r, &name);
    snprintf(e->text, sizeof(e->text), "cannot %s: %s (%d)", what, name ? name : "unknown error",
             r);
    return -EIO;
}

int cede_cuda_pinned(const struct cuda *cu, size_t bytes, void **out, uint64_t *address,
                     struct gpu_error *e)
{
    int r =
        cede_cuda_failed(cu, cu->host_alloc(out, bytes, CUDA_HOST_PORTABLE | CUDA_HOST_DEVICEMAP),
                         "allocate pinned memory", e);
    if (r)
        return r;
    memset(*out, 0, bytes);
    return address
               ? cede_cuda_failed(cu, cu->host_pointer(address, *out, 0), "map pinned memory", e)
               : 0;
}

int cede_cuda_passed(const struct cuda *cu, void *event, struct gpu_error *e)
{
    int r = cu->event_query(event);
    return r == CUDA_NOT_READY ? 0 : r ? cede_cuda_failed(cu, r, "run a step", e) : 1;
}

uint64_t cede_cuda_elapsed_ns(const struct cuda *cu, void *from, void *to)
{
    float ms = 0;
    if (cu->event_elapsed(&ms, from, to) || !(ms > 0))
        return 0;
    return (uint64_t)((double)(ms < 1e12F ? ms : 1e12F) * 1e6 + 0.5); /* a clock may jump */
}

/* ---- the host -------------------------------------------------------------------------------- */

static int host_done(void *unused)
{
    return 0;
}

static int host_stream_create(void **s, unsigned flags, int priority)
{
    *s = NULL;
    return 0;
}

static int host_alloc(void **p, size_t bytes, unsigned flags)
{
    *p = calloc(1, bytes);
    return *p ? 0 : HOST_NO_MEMORY;
}

static int host_free(void *p)
{
    free(p);
    return 0;
}

static int host_pointer(uint64_t *address, void *p, unsigned flags)
{
    *address = (uint64_t)(uintptr_t)p;
    return 0;
}

static int host_event_create(void **e, unsigned flags)
{
    return host_alloc(e, sizeof(uint64_t), 0);
}

static int host_event_record(void *e, void *s)
{
    *(uint64_t *)e = cede_clock_now_ns();
    return 0;
}

static int host_event_elapsed(float *ms, void *from, void *to)
{
    *ms = (float)((double)saturating_sub(*(uint64_t *)to, *(uint64_t *)from) / 1e6);
    return 0;
}

static int host_memory(uint64_t *address, size_t bytes)
{
    void *p;
    int r = host_alloc(&p, bytes, 0);
    return r ? r : host_pointer(address, p, 0);
}

static int host_memory_free(uint64_t address)
{
    return host_free((void *)(uintptr_t)address);
}

static int host_clear(uint64_t address, unsigned char value, size_t bytes)
{
    memset((void *)(uintptr_t)address, value, bytes);
    return 0;
}

static int host_copy_out(void *to, uint64_t from, size_t bytes, void *s)
{
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return 0;
}

static int host_launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                       unsigned bz, unsigned shared_bytes, void *s, void **params, void **extra)
{
    for (uint32_t i = 0; i < gx * bx; i++)
        ((host_kernel)f)(i, params);
    return 0;
}

const struct cuda cede_cuda_host = {
    .alloc = host_memory,
    .dealloc = host_memory_free,
    .stream_create = host_stream_create,
    .stream_destroy = host_done,
    .stream_sync = host_done,
    .event_create = host_event_create,
    .event_destroy = host_free,
    .event_record = host_event_record,
    .event_query = host_done,
    .event_sync = host_done,
    .event_elapsed = host_event_elapsed,
    .clear = host_clear,
    .copy_out = host_copy_out,
    .host_alloc = host_alloc,
    .host_pointer = host_pointer,
    .host_free = host_free,
    .launch = host_launch,
};
