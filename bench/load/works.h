/* What cede-load computes besides spinning (--work): programs of the kind that a GPU server runs,
 * with results that are checked. Sizes are fixed; a kernel takes about `kernel_us` on an H200,
 * which is what its time counts as wherever it runs, and what it takes on the software GPU. */
#ifndef CEDE_BENCH_LOAD_WORKS_H
#define CEDE_BENCH_LOAD_WORKS_H

#include <stdint.h>

#include "base/util.h"

struct cuda;

struct load_work {
    const char *name;
    double kernel_us;
    /* In the current context, on the kernels' stream, and waited for. Errors are g->s.failed. */
    void (*set_up)(struct cuda *g);
    int (*launch)(struct cuda *g);
    /* With nothing in flight: 0, or -EBADMSG with what is wrong. */
    int (*verify)(struct cuda *g);
    /* One number of all bits of the result: the same for the same count of kernels. */
    int (*digest)(struct cuda *g, uint64_t *out);
};

/* NULL: there is none of that name. */
const struct load_work *load_work(const char *name);

/* The same on the host, for checking. */
void works_option(uint32_t i, float *spot, float *strike, float *years);
void works_price(double spot, double strike, double years, double *call, double *put);
/* n x n cells of density, momentum x, momentum y, energy; one step from one array to the other. */
void works_euler_fill(float (*cells)[4], uint32_t n);
void works_euler_step(const float (*from)[4], float (*to)[4], uint32_t n);

#endif
