/* Inside libcede: the calls that the overlap loop, the future map and slices make of libcuda, which
 * is opened at run time. Knows neither steps nor symbols. All calls are for the CUDA context that
 * was current in cede_step_gpu_open(), and need it current. A file of its own so that tests can put
 * a GPU in virtual time in its place. */
#ifndef CEDE_LIBCEDE_STEP_GPU_H
#define CEDE_LIBCEDE_STEP_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libcede/gpus.h"

extern const char cede_future_ptx[]; /* cede_future.ptx */

struct step_gpu;

/* kernels: those of cede_future.ptx are used. -ENOSYS: no CUDA, or no current context; -EIO;
 * -ENOMEM. *out is NULL then. */
int cede_step_gpu_open(struct step_gpu **out, bool kernels, struct gpu_error *e);
void cede_step_gpu_close(struct step_gpu *g);

/* ---- all below: 0 or -EIO, unless they say otherwise ---- */

int cede_step_gpu_stream(struct step_gpu *g, void **out, struct gpu_error *e);
void cede_step_gpu_stream_end(struct step_gpu *g, void *stream);

/* Waits until all that is in the stream has run, or has failed. */
void cede_step_gpu_drain(struct step_gpu *g, void *stream);

/* blocking: a wait for it sleeps. */
int cede_step_gpu_event(struct step_gpu *g, bool blocking, void **out, struct gpu_error *e);
void cede_step_gpu_event_end(struct step_gpu *g, void *event);
int cede_step_gpu_record(struct step_gpu *g, void *event, void *stream, struct gpu_error *e);
/* 1: what was in the stream in front of it has run; 0: not yet. */
int cede_step_gpu_done(struct step_gpu *g, void *event, struct gpu_error *e);
int cede_step_gpu_wait(struct step_gpu *g, void *event, struct gpu_error *e);
/* Of two events that are done; 0 if the driver cannot tell. */
int64_t cede_step_gpu_elapsed_ns(struct step_gpu *g, void *from, void *to);

/* Memory of the GPU, all 0. */
int cede_step_gpu_memory(struct step_gpu *g, size_t bytes, uint64_t *address, struct gpu_error *e);
void cede_step_gpu_memory_end(struct step_gpu *g, uint64_t address);
/* Memory of the host, all 0, and its address on the GPU. */
int cede_step_gpu_pinned(struct step_gpu *g, size_t bytes, void **out, uint64_t *address,
                         struct gpu_error *e);
void cede_step_gpu_pinned_end(struct step_gpu *g, void *p);
int cede_step_gpu_copy_out(struct step_gpu *g, void *to, uint64_t from, size_t bytes, void *stream,
                           struct gpu_error *e);

/* A kernel of cede_future.ptx with n threads. */
enum future_kernel { FUTURE_PLACE, FUTURE_STORE, FUTURE_RESOLVE, FUTURE_KERNELS };
int cede_step_gpu_launch(struct step_gpu *g, enum future_kernel k, unsigned n, void **params,
                         void *stream, struct gpu_error *e);

#endif
