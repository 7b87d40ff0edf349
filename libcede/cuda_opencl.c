/* libcede: marks in an OpenCL queue; see cuda.h. libOpenCL is never linked; it dispatches by the
 * queue's own table, so it need not be the copy that the program uses. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/symbols.h"
#include "base/util.h"
#include "libcede/clock.h"
#include "libcede/cuda.h"

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

struct cl_mark {
    void *event; /* NULL: passed */
    uint64_t ns; /* when it was seen to be passed; until then, when it was put there */
};

static int cl_error_name(int r, const char **s)
{
    *s = "OpenCL error";
    return 0;
}

static int cl_mark_create(void **e, unsigned flags)
{
    *e = calloc(1, sizeof(struct cl_mark));
    return *e ? 0 : HOST_NO_MEMORY;
}

static void cl_release(struct cl_mark *m)
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
    struct cl_mark *m = e;
    cl_release(m);
    int r = cl.marker(queue, 0, NULL, &m->event);
    m->ns = cede_clock_now_ns();
    return r ? r : cl.flush(queue);
}

static int cl_mark_query(void *e)
{
    struct cl_mark *m = e;
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
    struct cl_mark *m = e;
    if (m->event)
        cl.wait(1, &m->event); /* its error is the event's status, too */
    return cl_mark_query(e);
}

/* `from` may be of the empty stream, and was passed when it was put there. */
static int cl_mark_elapsed(float *ms, void *from, void *to)
{
    const struct cl_mark *a = from, *b = to;
    *ms = (float)((double)saturating_sub(b->ns, a->ns) / 1e6);
    return 0;
}

static int cl_finish(void *queue)
{
    return cl.finish(queue);
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
    *cu = (struct cuda){.error_name = cl_error_name,
                        .stream_sync = cl_finish,
                        .event_create = cl_mark_create,
                        .event_destroy = cl_mark_destroy,
                        .event_record = cl_mark_record,
                        .event_query = cl_mark_query,
                        .event_sync = cl_mark_sync,
                        .event_elapsed = cl_mark_elapsed};
    pthread_once(&cl_once, cl_find);
    return cl_found ? 0 : -ENOSYS;
}
