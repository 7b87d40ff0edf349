/* Inside libcede: the GPUs of this machine, as leases and cede/memory.h use them: libcuda's and
 * libnvidia-ml's calls. Knows no policy. A device's primary context is retained when it is first
 * needed. All functions may be called from several threads at once; they return 0 or -EIO, unless
 * they say otherwise. */
#ifndef CEDE_LIBCEDE_GPUS_H
#define CEDE_LIBCEDE_GPUS_H

#include "cede/memory.h"
#include "libcede/cuda.h"
#include "libcede/pure/occupancy.h"

struct cede_gpus;

/* For memory: that device alone, which is number 0 in what follows. For leases, with -1: all.
 * -ENODEV: no driver, or no GPU. -ENOMEM. *out is NULL then. */
int cede_gpus_open_one(int ordinal, struct cede_gpus **out, struct gpu_error *e);
void cede_gpus_close(struct cede_gpus *g);

unsigned cede_gpus_count(const struct cede_gpus *g);
struct gpu_facts {
    uint64_t memory_bytes; /* 0: not known */
    const char *unmanaged; /* why no range can be moved on it; NULL: it can */
    char uuid[48];         /* as the daemon's "visible" takes it: "GPU-...", or "": not known */
};
const struct gpu_facts *cede_gpus_facts(const struct cede_gpus *g, unsigned device);
/* What is free now, whichever program has the rest. */
int cede_gpus_available(struct cede_gpus *g, unsigned device, uint64_t *bytes, struct gpu_error *e);

/* ---- leases ---------------------------------------------------------------------------------- */

/* A stream in the device's primary context. level 0: the driver's ordinary priority; each more is
 * one higher, as far as the driver goes. */
int cede_gpus_stream(struct cede_gpus *g, unsigned device, unsigned level, void **out,
                     struct gpu_error *e);
void cede_gpus_stream_end(struct cede_gpus *g, unsigned device, void *stream);

/* The calling thread's current context, to which a function that it has just loaded belongs. NULL:
 * none. */
void *cede_gpus_context(const struct cede_gpus *g);

/* A function's occupancy figures, asked in its context (NULL: the first device's primary context).
 */
struct gpu_profile {
    uint32_t threads, blocks_per_sm, sms;
    uint32_t registers;    /* per thread */
    uint32_t shared_bytes; /* per block: static, dynamic */
    struct sm_limits sm;
};
int cede_gpus_profile(struct cede_gpus *g, void *context, void *function, unsigned threads,
                      unsigned shared_bytes, struct gpu_profile *out, struct gpu_error *e);

/* Percent of NVML's last sampling period in which any kernel ran. -ENOTSUP: not known. */
int cede_gpus_utilization(struct cede_gpus *g, unsigned device, unsigned *percent);

/* ---- memory: of cede_gpus_open_one() --------------------------------------------------------- */

/* -ENOMEM: the driver has too little. */
int cede_gpus_allocate(struct cede_gpus *g, uint64_t bytes, uint64_t *address, struct gpu_error *e);
int cede_gpus_deallocate(struct cede_gpus *g, uint64_t address, struct gpu_error *e);

/* Advice, as far as the driver knows it. */
int cede_gpus_advise(struct cede_gpus *g, const struct cede_range *range, struct gpu_error *e);
/* Begins to move a range to the GPU, in *stream, which is made if it is NULL. */
int cede_gpus_prefetch(struct cede_gpus *g, const struct cede_range *range, void **stream,
                       struct gpu_error *e);
/* Waits for all that was begun in it, and destroys it. */
int cede_gpus_finish(struct cede_gpus *g, void *stream, struct gpu_error *e);

/* The processes, in no order, without names. How many there are, of which at most n were written.
 * -ENOTSUP. */
int cede_gpus_users(struct cede_gpus *g, struct cede_memory_user *users, unsigned n);

#endif
