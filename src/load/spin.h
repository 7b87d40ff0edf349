/* Inside cede-load: what the back ends on real devices share about the spinning kernel (ptx.h has
 * its arithmetic): seeds, check of the result, measuring the loop's speed. Knows no device. */
#ifndef CEDE_LOAD_SPIN_H
#define CEDE_LOAD_SPIN_H

#include "load/ops.h"

/* Scattered, so that no two threads look alike. */
static inline uint32_t spin_seed(uint32_t thread)
{
    return thread * 2654435761U + 1;
}

/* state[i] has to be what `steps` steps make of thread i's seed. -EBADMSG with the first wrong. */
int spin_check(const uint32_t *state, uint32_t threads, uint64_t steps, struct error *err);

/* One kernel from launch to end, as the host sees it. */
typedef int (*spin_timed)(void *arg, uint32_t iterations, double *us, struct error *err);

/* Sets iterations_per_us and host_overhead_us. Of SPIN_RUNS runs, from the fastest, the time of
 * number `rank` counts: a stray interruption only ever makes a run longer. */
enum { SPIN_RUNS = 24 };
int spin_calibrate(struct load_gpu *g, spin_timed timed, void *arg, unsigned rank,
                   struct error *err);
/* Iterations of a kernel of that many microseconds; -ERANGE beyond 2^32. */
int spin_iterations(const struct load_gpu *g, double kernel_us, uint32_t *out, struct error *err);

#endif
