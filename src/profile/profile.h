/* What the kernels of a program use of a GPU: from a profiler's tables, or kept in a file.
 *
 * A profile has every kernel of the program once for each size of launch, with the mean of its
 * calls. The file is JSON (cede-json(5), profile). */
#ifndef CEDE_PROFILE_PROFILE_H
#define CEDE_PROFILE_PROFILE_H

#include <stdbool.h>
#include <stdio.h>

#include "lib/util.h"
#include "sched/interference.h"

#define PROFILE_KERNELS 2000 /* at most */

struct profile_kernel {
    char name[96]; /* cut */
    uint64_t calls;
};

struct profile {
    char name[64]; /* of the program */
    struct gpu_shape gpu;
    double busy; /* part of its time in which one of its kernels runs; 0: not known */
    struct profile_kernel *kernels;
    struct kernel_profile *uses; /* of each */
    uint32_t n;
};

/* From `ncu --csv`, of either page. path: for messages. 0, or -errno. */
int profile_from_ncu(FILE *f, const char *path, struct profile *out, struct error *err);

/* 0, or -errno. */
int profile_save(const struct profile *p, const char *path, struct error *err);
int profile_load(const char *path, struct profile *out, struct error *err);
void profile_free(struct profile *p);

/* One call more of this kernel, which took use->us. 0, -ENOMEM, or -E2BIG. */
int profile_add(struct profile *p, const char *name, const struct kernel_profile *use);
/* After the last: the shares of the time, the longest first. */
void profile_finish(struct profile *p);

/* Sets what is not known of it from the compute capability, such as 90 for 9.0. -ENODEV: not known
 * of that either, or how many SMs. */
int profile_complete_gpu(struct gpu_shape *g, unsigned capability);

#endif
