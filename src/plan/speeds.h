/* Estimates the speed, relative to alone, of each of several programs that share a GPU in space, by
 * the GPU's counters, because loads add up. With the counters of each program alone as columns X
 * and those of all together as y, the speeds are the s between 0 and SPEED_MAX that explain y = X s
 * best.
 *
 * Counters have different errors: pipes count instructions exactly; integer work and DRAM traffic
 * depend on caches, which others use too. If profiles are alike, programs cannot be told apart, and
 * `error` is large. If a program does something else than when it was alone, `misfit` is large.
 *
 * Source: the additivity of GPU counters over co-located kernels (requirements N11). Pure
 * arithmetic.
 */
#ifndef CEDE_PLAN_SPEEDS_H
#define CEDE_PLAN_SPEEDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/gpu_parts.h"

#define SPEED_JOBS    8
#define SPEED_MAX     1.1
#define SPEED_NOTHING 0.003 /* speeds_work() up to which a program did not work */

struct speed {
    double value; /* 1: as alone */
    double error; /* standard deviation; above SPEED_ERROR_MAX the value is not known */
};

static inline bool speed_known(struct speed s)
{
    return s.error <= SPEED_ERROR_MAX;
}

/* profiles, together: load of each part, 0 to 1. n: 1 to SPEED_JOBS. prior: what is known of the
 * speeds otherwise, with errors above 0; NULL: nothing, which is 0.5 +- 0.5. misfit (may be NULL):
 * deviation from `together` relative to the counters' errors, 1 at least. sum (may be NULL): of all
 * speeds, which may be known even if the programs cannot be told apart. */
void speeds_estimate(const double profiles[][GPU_PARTS], uint32_t n,
                     const double together[GPU_PARTS], const struct speed *prior, struct speed *out,
                     struct speed *sum, double *misfit);

/* The sum of all parts. */
double speeds_work(const double parts[GPU_PARTS]);

#endif
