/* libcede: slices without a GPU; see slice_gpu.h. What is put into the stream has run when the
 * program's function returns, so a mark is the clock's time. */
#include <errno.h>
#include <stdlib.h>

#include "libcede/clock.h"
#include "libcede/slice_gpu.h"

struct slice_gpu {
    uint64_t unused;
    uint64_t ns[]; /* of each mark */
};

static int slice_none_open(unsigned marks, void **stream, struct slice_gpu **out,
                           struct gpu_error *e)
{
    *out = calloc(1, sizeof(**out) + marks * sizeof((*out)->ns[0]));
    return *out ? 0 : -ENOMEM;
}

static void slice_none_close(struct slice_gpu *g)
{
    free(g);
}

static int slice_none_mark(struct slice_gpu *g, unsigned i, struct gpu_error *e)
{
    g->ns[i] = cede_clock_now_ns();
    return 0;
}

static int slice_none_passed(struct slice_gpu *g, unsigned i, struct gpu_error *e)
{
    return 1;
}

static int slice_none_wait(struct slice_gpu *g, unsigned i, struct gpu_error *e)
{
    return 0;
}

static uint64_t slice_none_elapsed_ns(struct slice_gpu *g, unsigned from, unsigned to)
{
    return saturating_sub(g->ns[to], g->ns[from]);
}

const struct slice_gpu_ops cede_slice_none = {
    .open = slice_none_open,
    .close = slice_none_close,
    .mark = slice_none_mark,
    .passed = slice_none_passed,
    .wait = slice_none_wait,
    .elapsed_ns = slice_none_elapsed_ns,
};
