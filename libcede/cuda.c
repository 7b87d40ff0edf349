/* libcede: what all calls of libcuda have in common, and what stands in for them; see cuda.h. */
#include "libcede/cuda.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/symbols.h"
#include "base/util.h"
#include "libcede/clock.h"

int cede_cuda_open(struct cuda *cu, unsigned use, struct gpu_error *e)
{
    static const struct {
        unsigned uses;
        struct symbol symbol;
    } calls[] = {
#define X(uses, field, symbol, args) {uses, {symbol, offsetof(struct cuda, field)}},
        CUDA_CALLS(X)
#undef X
    };
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | (use & CUDA_GPUS ? RTLD_LOCAL : RTLD_NOLOAD));
    e->text[0] = '\0';
    for (size_t i = 0; lib && i < ARRAY_SIZE(calls); i++) {
        unsigned uses = calls[i].uses;
        if (uses && !(uses & use))
            continue;
        const char *missing = symbols_find(lib, &calls[i].symbol, 1, cu);
        if (missing && uses) {
            snprintf(e->text, sizeof(e->text), "libcuda.so.1 has no %s: the driver is too old",
                     missing);
            return -ENODEV;
        }
    }
    return lib ? 0 : -ENODEV;
}

int cede_cuda_here(struct cuda *cu, unsigned use, void **context)
{
    struct gpu_error why;
    *context = NULL;
    return cede_cuda_open(cu, use, &why) || cu->ctx_current(context) || !*context ? -ENOSYS : 0;
}

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

/* What is put into a stream has run when the call returns, so an event is the time at which it was
 * put there. */
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

/* An event. */
struct mark {
    void *event; /* of OpenCL; NULL: passed */
    uint64_t ns; /* when it was seen to be passed; until then, when it was put there */
};

static int mark_create(void **e, unsigned flags)
{
    return host_alloc(e, sizeof(struct mark), 0);
}

static int host_event_record(void *e, void *s)
{
    ((struct mark *)e)->ns = cede_clock_now_ns();
    return 0;
}

/* `from` may be of the empty stream, and was passed when it was put there. */
static int mark_elapsed(float *ms, void *from, void *to)
{
    const struct mark *a = from, *b = to;
    *ms = (float)((double)saturating_sub(b->ns, a->ns) / 1e6);
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
    .event_create = mark_create,
    .event_destroy = host_free,
    .event_record = host_event_record,
    .event_query = host_done,
    .event_sync = host_done,
    .event_elapsed = mark_elapsed,
    .clear = host_clear,
    .copy_out = host_copy_out,
    .host_alloc = host_alloc,
    .host_pointer = host_pointer,
    .host_free = host_free,
    .launch = host_launch,
};

/* ---- OpenCL ---------------------------------------------------------------------------------- */

/* libOpenCL is never linked; it dispatches by the queue's own table, so it need not be the copy
 * that the program uses. */
enum { EXECUTION_STATUS = 0x11D3, COMPLETE = 0 }; /* CL/cl.h */

#define CL_CALLS(X)                                                                                \
    X(marker, "clEnqueueMarkerWithWaitList",                                                       \
      (void *queue, uint32_t n, void *const *list, void **event))                                  \
    X(flush, "clFlush", (void *queue))                                                             \
    X(finish, "clFinish", (void *queue))                                                           \
    X(wait, "clWaitForEvents", (uint32_t n, void *const *events))                                  \
    X(info, "clGetEventInfo",                                                                      \
      (void *event, uint32_t what, size_t bytes, void *out, size_t *out_bytes))                    \
    X(release, "clReleaseEvent", (void *event))

static struct cl {
#define X(field, symbol, args) int32_t(*field) args;
    CL_CALLS(X)
#undef X
} cl;
static pthread_once_t cl_once = PTHREAD_ONCE_INIT;
static bool cl_found;

static int cl_error_name(int r, const char **s)
{
    *s = "OpenCL error";
    return 0;
}

static void cl_release(struct mark *m)
{
    if (m->event)
        cl.release(m->event);
    m->event = NULL;
}

static int cl_mark_destroy(void *e)
{
    cl_release(e);
    free(e);
    return 0;
}

static int cl_mark_record(void *e, void *queue)
{
    struct mark *m = e;
    cl_release(m);
    int r = cl.marker(queue, 0, NULL, &m->event) ?: cl.flush(queue);
    m->ns = cede_clock_now_ns();
    return r;
}

static int cl_mark_query(void *e)
{
    struct mark *m = e;
    int32_t status = COMPLETE;
    int r = m->event ? cl.info(m->event, EXECUTION_STATUS, sizeof(status), &status, NULL) : 0;
    if (r || status != COMPLETE)
        return r || status < 0 ? (r ? r : status) : CUDA_NOT_READY;
    if (m->event)
        m->ns = cede_clock_now_ns();
    cl_release(m);
    return 0;
}

static int cl_mark_sync(void *e)
{
    struct mark *m = e;
    if (m->event)
        cl.wait(1, &m->event); /* its error is the event's status, too */
    return cl_mark_query(e);
}

static void cl_find(void)
{
    static const struct symbol calls[] = {
#define X(field, symbol, args) {symbol, offsetof(struct cl, field)},
        CL_CALLS(X)
#undef X
    };
    void *lib = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    cl_found = lib && !symbols_find(lib, calls, ARRAY_SIZE(calls), &cl);
}

int cede_cuda_opencl(struct cuda *cu)
{
    pthread_once(&cl_once, cl_find);
    *cu = (struct cuda){.error_name = cl_error_name,
                        .stream_sync = cl.finish,
                        .event_create = mark_create,
                        .event_destroy = cl_mark_destroy,
                        .event_record = cl_mark_record,
                        .event_query = cl_mark_query,
                        .event_sync = cl_mark_sync,
                        .event_elapsed = mark_elapsed};
    return cl_found ? 0 : -ENOSYS;
}
