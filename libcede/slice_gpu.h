/* Inside libcede: the stream in which slices run. Knows only marks in it, numbered by the caller,
 * and when they were passed. One of three: CUDA (over step_cuda.c), OpenCL, or none, where all that
 * is put into the stream has run at once, and the clock says how long it took. */
#ifndef CEDE_LIBCEDE_SLICE_GPU_H
#define CEDE_LIBCEDE_SLICE_GPU_H

#include <stdint.h>

#include "libcede/gpus.h"

struct slice_gpu;

struct slice_gpu_ops {
    /* *stream: the program's, or NULL: one is made. -ENOSYS, -EIO or -ENOMEM; *out is NULL then. */
    int (*open)(unsigned marks, void **stream, struct slice_gpu **out, struct gpu_error *e);
    /* Waits for what is in the stream, so that the program may free what it uses. */
    void (*close)(struct slice_gpu *g);
    /* 0 or -EIO. */
    int (*mark)(struct slice_gpu *g, unsigned i, struct gpu_error *e);
    /* 1: passed; 0: not yet; -EIO: what was in front of it has failed. */
    int (*passed)(struct slice_gpu *g, unsigned i, struct gpu_error *e);
    int (*wait)(struct slice_gpu *g, unsigned i, struct gpu_error *e); /* 0 or -EIO */
    /* Between two that were passed; 0 where that is not known. */
    uint64_t (*elapsed_ns)(struct slice_gpu *g, unsigned from, unsigned to);
};

extern const struct slice_gpu_ops cede_slice_cuda, cede_slice_opencl, cede_slice_none;

#endif
