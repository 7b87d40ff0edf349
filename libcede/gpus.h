/* Inside libcede: what leases ask of the vendor's libraries, opened at run time. Knows no policy.
 * All of it may be called from several threads at once. */
#ifndef CEDE_LIBCEDE_GPUS_H
#define CEDE_LIBCEDE_GPUS_H

#include <stddef.h>
#include <stdint.h>

struct cede_gpus;

/* NULL in *out and -ENODEV: no driver, or no GPU; -ENOMEM. `why`: what the driver said. */
int cede_gpus_open(struct cede_gpus **out, char *why, size_t size);
void cede_gpus_close(struct cede_gpus *g);

unsigned cede_gpus_count(const struct cede_gpus *g);
uint64_t cede_gpus_memory(const struct cede_gpus *g, unsigned device); /* bytes; 0: not known */

/* In the device's primary context. level: 0 is the driver's ordinary priority, each more is one
 * higher; the driver takes what it has. 0 or -EIO with why. */
int cede_gpus_stream(struct cede_gpus *g, unsigned device, unsigned level, void **out, char *why,
                     size_t size);
void cede_gpus_stream_end(struct cede_gpus *g, unsigned device, void *stream);

/* The calling thread's context, which is that of a function that it has just loaded; NULL: none. */
void *cede_gpus_context(const struct cede_gpus *g);

/* What the driver says of a function in its context (NULL: the first device's primary one). 0 or
 * -EIO with why. */
struct gpu_profile {
    uint32_t threads, blocks_per_sm, sms, threads_per_sm;
};
int cede_gpus_profile(struct cede_gpus *g, void *context, void *function, unsigned threads,
                      unsigned shared_bytes, struct gpu_profile *out, char *why, size_t size);

/* Percent of the last sampling period in which something ran; -ENOTSUP: not known. */
int cede_gpus_utilization(struct cede_gpus *g, unsigned device, unsigned *percent);

#endif
