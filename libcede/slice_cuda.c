/* libcede: marks of slices in a CUDA stream, and where there is no GPU; see slice_gpu.h. */
#include <errno.h>
#include <stdlib.h>

#include "libcede/clock.h"
#include "libcede/slice_gpu.h"
#include "libcede/step_gpu.h"

struct slice_gpu {
    struct step_gpu *gpu;
    void *stream, *own; /* own: to be destroyed */
    unsigned marks;
    void *events[];
};

static void slice_cuda_close(struct slice_gpu *g)
{
    if (!g)
        return;
    if (g->stream)
        cede_step_gpu_drain(g->gpu, g->stream);
    for (unsigned i = 0; i < g->marks; i++) {
        if (g->events[i])
            cede_step_gpu_event_end(g->gpu, g->events[i]);
    }
    if (g->own)
        cede_step_gpu_stream_end(g->gpu, g->own);
    cede_step_gpu_close(g->gpu);
    free(g);
}

static int slice_cuda_open(unsigned marks, void **stream, struct slice_gpu **out,
                           struct gpu_error *e)
{
    *out = NULL;
    struct slice_gpu *g = calloc(1, sizeof(*g) + marks * sizeof(g->events[0]));
    if (!g)
        return -ENOMEM;
    g->marks = marks;
    int r = cede_step_gpu_open(&g->gpu, false, e);
    if (r == 0 && !*stream)
        r = cede_step_gpu_stream(g->gpu, &g->own, e);
    for (unsigned i = 0; r == 0 && i < marks; i++)
        r = cede_step_gpu_event(g->gpu, true, &g->events[i], e);
    if (r) {
        slice_cuda_close(g);
        return r;
    }
    g->stream = g->own ? g->own : *stream;
    *stream = g->stream;
    *out = g;
    return 0;
}

static int slice_cuda_mark(struct slice_gpu *g, unsigned i, struct gpu_error *e)
{
    return cede_step_gpu_record(g->gpu, g->events[i], g->stream, e);
}

static int slice_cuda_passed(struct slice_gpu *g, unsigned i, struct gpu_error *e)
{
    return cede_step_gpu_done(g->gpu, g->events[i], e);
}

static int slice_cuda_wait(struct slice_gpu *g, unsigned i, struct gpu_error *e)
{
    return cede_step_gpu_wait(g->gpu, g->events[i], e);
}

static uint64_t slice_cuda_elapsed_ns(struct slice_gpu *g, unsigned from, unsigned to)
{
    int64_t ns = cede_step_gpu_elapsed_ns(g->gpu, g->events[from], g->events[to]);
    return ns > 0 ? (uint64_t)ns : 0;
}

const struct slice_gpu_ops cede_slice_cuda = {
    .open = slice_cuda_open,
    .close = slice_cuda_close,
    .mark = slice_cuda_mark,
    .passed = slice_cuda_passed,
    .wait = slice_cuda_wait,
    .elapsed_ns = slice_cuda_elapsed_ns,
};
