/* The work of bench/lease_load.c: kernels of three kinds on a GPU, or naps. */
#ifndef CEDE_BENCH_LEASE_WORK_H
#define CEDE_BENCH_LEASE_WORK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* URGENT is a small product and a small attention after it. SLICED is a part of a long attention,
 * of `count` heads. */
enum work_kind { PRODUCT, COPY, ATTENTION, URGENT, SLICED, KINDS };
extern const char *const work_names[KINDS];

struct work; /* a thread's: its buffers, and what it found */

/* Opens the GPU, or with `cpu` nothing. NULL, or what failed. products: "cublas" where cuBLAS is
 * found (CEDE_CUBLAS may name it), else "own". */
const char *work_start(bool cpu, const char **products);
void work_describe(FILE *f);             /* device and driver, as members of a JSON object */
struct work *work_new(enum work_kind k); /* NULL: no memory, or the driver refused */
/* Makes the GPU's context the calling thread's. */
void work_enter(void);
/* A stream, of the highest priority or an ordinary one; NULL without a GPU, or if it fails. */
void *work_stream(bool high);

/* Queues one operation; 0 or -EIO. count: heads of SLICED; others ignore it. */
int work_put(struct work *w, void *stream, uint64_t count);
int work_wait(void *stream);
/* Whether what is in the buffers is what the host computes; *worst: the largest error. */
bool work_right(struct work *w, double *worst);

/* For cede_pool_kernel(): NULL where the kernel is not known, as of cuBLAS. */
void *work_function(enum work_kind k);
void work_shape(enum work_kind k, unsigned *blocks, unsigned *threads);

/* lease_occupancy.c: libcede's figure of blocks per SM against the driver's. Members of a JSON
 * object; how many differ, or -EIO. */
int occupancy_check(FILE *f, unsigned *cases);

#endif
