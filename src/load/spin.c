/* See spin.h. */
#include "load/spin.h"

#include <errno.h>
#include <math.h>

int spin_check(const uint32_t *state, uint32_t threads, uint64_t steps, struct error *err)
{
    struct load_map m = load_chain(steps);
    uint32_t wrong = 0, first = 0;
    for (uint32_t i = threads; i-- > 0;) {
        if (state[i] != spin_seed(i) * m.mul + m.add) {
            wrong++;
            first = i;
        }
    }
    return wrong ? error_set(err, -EBADMSG,
                             "%u of %u threads did not do exactly their work (thread %u has %08x "
                             "instead of %08x)",
                             wrong, threads, first, state[first], spin_seed(first) * m.mul + m.add)
                 : 0;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double ranked(double *v, unsigned rank)
{
    qsort(v, SPIN_RUNS, sizeof(*v), compare);
    return v[rank];
}

/* The loop's speed is the slope between a short and a long kernel, which leaves out what launching
 * and synchronising cost; that is the intercept. */
int spin_calibrate(struct load_gpu *g, spin_timed timed, void *arg, unsigned rank,
                   struct error *err)
{
    double us = 0, rough = 1, shorts[SPIN_RUNS], longs[SPIN_RUNS];
    uint64_t warm_ns = monotonic_ns() + 250 * NSEC_PER_MSEC; /* clocks ramp up from idle */
    for (uint32_t n = 20000; monotonic_ns() < warm_ns;) {
        int r = timed(arg, n, &us, err);
        if (r)
            return r;
        rough = (double)n / us;
        if (us < 500 && n < UINT32_MAX / 2) /* long compared with the overhead */
            n *= 2;
    }
    uint32_t n1 = (uint32_t)fmin(fmax(rough * 200, 100), 1e9);
    uint32_t n2 = (uint32_t)fmin(fmax(rough * 1200, 1000), 4e9);
    for (int i = 0; i < SPIN_RUNS; i++) {
        int r = timed(arg, n1, &shorts[i], err);
        if (!r)
            r = timed(arg, n2, &longs[i], err);
        if (r)
            return r;
    }
    double t1 = ranked(shorts, rank), t2 = ranked(longs, rank);
    if (t2 <= t1)
        return error_set(err, -EIO,
                         "calibration failed: %u iterations took %.1f us, %u took %.1f us: keep "
                         "other work off the GPU meanwhile, or give --iterations-per-us",
                         n1, t1, n2, t2);
    g->iterations_per_us = (double)(n2 - n1) / (t2 - t1);
    g->host_overhead_us = fmax(0, t1 - (double)n1 / g->iterations_per_us);
    return 0;
}

int spin_iterations(const struct load_gpu *g, double kernel_us, uint32_t *out, struct error *err)
{
    double n = fmax(1, round(kernel_us * g->iterations_per_us));
    if (n > UINT32_MAX)
        return error_set(err, -ERANGE,
                         "a kernel of %g us would be %g iterations, more than 2^32: ask for less",
                         kernel_us, n);
    *out = (uint32_t)n;
    return 0;
}
