/* Inside libcede: the calls that leases make of the vendor's libraries, which are opened at run
 * time. Knows no policy. All functions may be called from several threads at once. */
#ifndef CEDE_LIBCEDE_GPUS_H
#define CEDE_LIBCEDE_GPUS_H

#include <stddef.h>
#include <stdint.h>

#include "libcede/pure/occupancy.h"

struct cede_gpus;

/* A text for people, where a call fails. */
struct gpu_error {
    char text[128];
};

/* -ENODEV: no driver, or no GPU. -ENOMEM. *out is NULL then. */
int cede_gpus_open(struct cede_gpus **out, struct gpu_error *e);
void cede_gpus_close(struct cede_gpus *g);

unsigned cede_gpus_count(const struct cede_gpus *g);
uint64_t cede_gpus_memory(const struct cede_gpus *g, unsigned device); /* bytes; 0: not known */
/* What is free now, whichever program has the rest. 0 or -EIO. */
int cede_gpus_free(struct cede_gpus *g, unsigned device, uint64_t *bytes);

/* A stream in the device's primary context. level 0: the driver's ordinary priority; each more is
 * one higher, as far as the driver goes. 0 or -EIO. */
int cede_gpus_stream(struct cede_gpus *g, unsigned device, unsigned level, void **out,
                     struct gpu_error *e);
void cede_gpus_stream_end(struct cede_gpus *g, unsigned device, void *stream);

/* The calling thread's current context, to which a function that it has just loaded belongs. NULL:
 * none. */
void *cede_gpus_context(const struct cede_gpus *g);

/* A function's occupancy figures, asked in its context (NULL: the first device's primary context).
 * 0 or -EIO. */
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

#endif
