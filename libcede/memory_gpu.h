/* Inside libcede: the calls that cede/memory.h makes of libcuda and libnvidia-ml, which are opened
 * at run time. Knows no policy. All functions may be called from several threads at once. */
#ifndef CEDE_LIBCEDE_MEMORY_GPU_H
#define CEDE_LIBCEDE_MEMORY_GPU_H

#include "cede/memory.h"
#include "libcede/gpus.h"

struct memory_gpu;

/* -ENODEV: no driver, or no such GPU. -EIO, -ENOMEM. *out is NULL then. */
int cede_memory_gpu_open(int device, struct memory_gpu **out, struct gpu_error *e);
void cede_memory_gpu_close(struct memory_gpu *g);

uint64_t cede_memory_gpu_total(const struct memory_gpu *g);
/* As the daemon's "visible" takes it: "GPU-...", or "": not known. */
const char *cede_memory_gpu_uuid(const struct memory_gpu *g);

int cede_memory_gpu_free(struct memory_gpu *g, uint64_t *bytes, struct gpu_error *e); /* 0, -EIO */
/* -ENOMEM: the driver has too little. -EIO. */
int cede_memory_gpu_allocate(struct memory_gpu *g, uint64_t bytes, uint64_t *address,
                             struct gpu_error *e);
int cede_memory_gpu_release(struct memory_gpu *g, uint64_t address, struct gpu_error *e);

/* Why no range can be moved on this GPU; NULL: it can. */
const char *cede_memory_gpu_unmanaged(const struct memory_gpu *g);
/* Advice, as far as the driver knows it. 0 or -EIO. */
int cede_memory_gpu_advise(struct memory_gpu *g, const struct cede_range *range,
                           struct gpu_error *e);
/* Begins to move a range to the GPU, in *stream, which is made if it is NULL. 0 or -EIO. */
int cede_memory_gpu_prefetch(struct memory_gpu *g, const struct cede_range *range, void **stream,
                             struct gpu_error *e);
/* Waits for all that was begun in it, and destroys it. 0 or -EIO. */
int cede_memory_gpu_finish(struct memory_gpu *g, void *stream, struct gpu_error *e);

/* The processes, in no order, without names. How many there are, of which at most n were written.
 * -ENOTSUP. */
int cede_memory_gpu_users(struct memory_gpu *g, struct cede_memory_user *users, unsigned n);

#endif
