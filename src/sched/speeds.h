/* How fast each of several programs goes that share a GPU in space, relative to alone, told from
 * what the GPU does as a whole: what programs do adds up. With the counters of each alone as
 * columns X and those of all together as y, the speeds are the s between 0 and SPEED_MAX that
 * explain y = X s best.
 *
 * Each counter errs in its own way: pipes count instructions exactly; integer work and DRAM traffic
 * depend on caches, which others use too. Programs whose profiles are alike cannot be told apart:
 * `error` says so. Nor is a program known any more that does something else than when it was alone:
 * `misfit` does.
 *
 * Source: the additivity of GPU counters over co-located kernels (requirements N11). Pure
 * arithmetic.
 */
#ifndef CEDE_SCHED_SPEEDS_H
#define CEDE_SCHED_SPEEDS_H

#include <stdint.h>

#include "lib/gpu_parts.h"

#define SPEED_JOBS 8
#define SPEED_MAX  1.1

struct speed {
    double value; /* 1: as alone */
    double error; /* one standard deviation; more than SPEED_ERROR_MAX: says nothing */
};

/* profiles, together: shares of what each part can do. n: 1 to SPEED_JOBS. misfit (may be NULL):
 * how much worse they explain `together` than counters err, 1: not at all. sum (may be NULL): of
 * all speeds, which is known of programs that cannot be told apart, too. */
void speeds_estimate(const double profiles[][GPU_PARTS], uint32_t n,
                     const double together[GPU_PARTS], struct speed *out, struct speed *sum,
                     double *misfit);

#endif
