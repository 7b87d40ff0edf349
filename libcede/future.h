/* Inside libcede: what the overlap loop needs of a future map beyond cede/future.h. */
#ifndef CEDE_LIBCEDE_FUTURE_H
#define CEDE_LIBCEDE_FUTURE_H

#include <errno.h>
#include <stdbool.h>

#include "cede/future.h"
#include "libcede/cuda.h"
#include "libcede/future_kernels.h"

extern const char cede_future_ptx[]; /* cede_future.ptx */

bool cede_future_on_gpu(const struct cede_futures *f);

/* Puts a copy of n slots into the stream. 0 or -EIO. */
int cede_future_copy_out(struct cede_futures *f, void *stream, int64_t symbol, unsigned n,
                         struct future_slot *to, struct gpu_error *e);

/* The value of a symbol in a copy of its slot. 0, or -ENODATA: it has none. */
static inline int future_value(const struct future_slot *s, int64_t symbol, int64_t *value)
{
    *value = s->value;
    return (int64_t)s->tag == -symbol ? 0 : -ENODATA;
}

#endif
