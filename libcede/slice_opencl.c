/* libcede: marks of slices in an OpenCL queue; see slice_gpu.h. Times are as the host sees them, so
 * that no queue has to be made with profiling. libOpenCL is never linked; it dispatches by the
 * queue's own table, so it need not be the copy that the program uses. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/symbols.h"
#include "base/util.h"
#include "libcede/clock.h"
#include "libcede/slice_gpu.h"

enum { EXECUTION_STATUS = 0x11D3, COMPLETE = 0 }; /* CL/cl.h */

#define SLICE_CL_CALLS(X)                                                                          \
    X(marker, "clEnqueueMarkerWithWaitList",                                                       \
      (void *queue, uint32_t n, void *const *list, void **event))                                  \
    X(flush, "clFlush", (void *queue))                                                             \
    X(finish, "clFinish", (void *queue))                                                           \
    X(wait, "clWaitForEvents", (uint32_t n, void *const *events))                                  \
    X(info, "clGetEventInfo",                                                                      \
      (void *event, uint32_t what, size_t bytes, void *out, size_t *out_bytes))                    \
    X(release, "clReleaseEvent", (void *event))

struct slice_cl_mark {
    void *event; /* NULL: passed */
    uint64_t ns; /* when it was seen to be passed; until then, when it was put there */
};

struct slice_gpu {
    void *queue;
#define X(field, symbol, args) int32_t(*field) args;
    SLICE_CL_CALLS(X)
#undef X
    unsigned n;
    struct slice_cl_mark marks[];
};

static void slice_cl_release(struct slice_gpu *g, unsigned i)
{
    if (g->marks[i].event)
        g->release(g->marks[i].event);
    g->marks[i].event = NULL;
}

static int slice_cl_open(unsigned marks, void **stream, struct slice_gpu **out, struct gpu_error *e)
{
    static const struct symbol calls[] = {
#define X(field, symbol, args) {symbol, offsetof(struct slice_gpu, field)},
        SLICE_CL_CALLS(X)
#undef X
    };
    *out = NULL;
    void *lib = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return -ENOSYS;
    struct slice_gpu *g = calloc(1, sizeof(*g) + marks * sizeof(g->marks[0]));
    if (!g || symbols_find(lib, calls, ARRAY_SIZE(calls), g)) {
        dlclose(lib);
        int r = g ? -ENOSYS : -ENOMEM;
        free(g);
        return r;
    }
    g->queue = *stream;
    g->n = marks;
    *out = g;
    return 0;
}

static void slice_cl_close(struct slice_gpu *g)
{
    g->finish(g->queue);
    for (unsigned i = 0; i < g->n; i++)
        slice_cl_release(g, i);
    free(g);
}

static int slice_cl_mark(struct slice_gpu *g, unsigned i, struct gpu_error *e)
{
    slice_cl_release(g, i);
    int r = g->marker(g->queue, 0, NULL, &g->marks[i].event);
    if (r == 0)
        r = g->flush(g->queue);
    g->marks[i].ns = cede_clock_now_ns();
    if (r == 0)
        return 0;
    snprintf(e->text, sizeof(e->text), "cannot put a marker into the OpenCL queue: error %d", r);
    return -EIO;
}

static int slice_cl_passed(struct slice_gpu *g, unsigned i, struct gpu_error *e)
{
    struct slice_cl_mark *m = &g->marks[i];
    int32_t status = COMPLETE;
    int r = m->event ? g->info(m->event, EXECUTION_STATUS, sizeof(status), &status, NULL) : 0;
    if (r || status < 0) {
        snprintf(e->text, sizeof(e->text), "a slice failed: OpenCL error %d", r ? r : status);
        return -EIO;
    }
    if (status != COMPLETE)
        return 0;
    if (m->event)
        m->ns = cede_clock_now_ns();
    slice_cl_release(g, i);
    return 1;
}

static int slice_cl_wait(struct slice_gpu *g, unsigned i, struct gpu_error *e)
{
    if (g->marks[i].event)
        g->wait(1, &g->marks[i].event); /* its error is the event's status, too */
    int r = slice_cl_passed(g, i, e);
    if (r == 0)
        snprintf(e->text, sizeof(e->text), "OpenCL does not wait for a slice");
    return r == 1 ? 0 : -EIO;
}

/* `from` may be of the empty stream, and was passed when it was put there. */
static uint64_t slice_cl_elapsed_ns(struct slice_gpu *g, unsigned from, unsigned to)
{
    return saturating_sub(g->marks[to].ns, g->marks[from].ns);
}

const struct slice_gpu_ops cede_slice_opencl = {
    .open = slice_cl_open,
    .close = slice_cl_close,
    .mark = slice_cl_mark,
    .passed = slice_cl_passed,
    .wait = slice_cl_wait,
    .elapsed_ns = slice_cl_elapsed_ns,
};
