/* A program's profile: the use of the GPU by each of its kernels, from a file in JSON
 * (cede-json(5), A PROFILE) that bench/interference/ncu_profile.py makes of a profiler's table. */
#ifndef CEDE_CLI_PROFILE_H
#define CEDE_CLI_PROFILE_H

#include "base/util.h"
#include "plan/interference.h"

#define PROFILE_KERNELS 2000 /* at most */

struct profile {
    char name[64]; /* of the program */
    struct gpu_shape gpu;
    double busy; /* part of its time in which one of its kernels runs; 0: not known */
    struct kernel_profile *uses; /* one for each kernel */
    uint32_t n;
};

/* 0, or -errno. */
int profile_load(const char *path, struct profile *out, struct error *err);
void profile_free(struct profile *p);

#endif
