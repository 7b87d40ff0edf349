/* Inside libcede: the kernels that a pool knows by name, and the driver's occupancy figures of each
 * for every block size and dynamic shared memory asked for. Under the pool's lock; calls no
 * driver. */
#ifndef CEDE_LIBCEDE_KERNELS_H
#define CEDE_LIBCEDE_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "cede/lease.h"
#include "libcede/gpus.h"

#define KERNEL_NAME_MAX 63
#define PROFILES        1024U /* a power of 2; of two that fall on one slot the later stays */

struct lease_kernel {
    char name[KERNEL_NAME_MAX + 1];
    uint64_t key;   /* changes when it is registered anew */
    void *function; /* NULL: its share is given */
    void *context;  /* that it was loaded in */
    uint32_t share; /* of a GPU's warps in millionths, without a function */
};

struct profile {
    uint64_t key;
    struct gpu_profile p;
};

struct kernels {
    struct lease_kernel v[CEDE_KERNELS_MAX]; /* by the hash of the name, the next free if taken */
    uint64_t keys;
    struct profile profiles[PROFILES];
};

/* -EINVAL: no name, or too long; -ENOSPC. */
int cede_kernels_set(struct kernels *k, const char *name, void *function, void *context,
                     uint32_t share);
const struct lease_kernel *cede_kernels_find(const struct kernels *k,
                                             const char *name); /* or NULL */

/* Of kernel and shape; never 0. */
uint64_t cede_kernels_key(const struct lease_kernel *f, const struct cede_shape *s);
/* False: not known. */
bool cede_kernels_profile(const struct kernels *k, const struct lease_kernel *f,
                          const struct cede_shape *s, struct gpu_profile *out);
void cede_kernels_learn(struct kernels *k, const struct lease_kernel *f, const struct cede_shape *s,
                        const struct gpu_profile *p);

/* Share of a GPU, in millionths, that `blocks` (0: all that fit) take: of its warps, its registers
 * or its shared memory, whichever is scarcest. */
uint32_t cede_profile_share(const struct gpu_profile *p, unsigned blocks);

#endif
