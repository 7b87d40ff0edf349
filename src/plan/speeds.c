/* See speeds.h. */
#include "plan/speeds.h"

#include <math.h>

#define STEPS     2000
#define CONVERGED 1e-6

/* The error of each counter: the least, and a part of its value. From 49 pairs and triples of nine
 * programs on an H200. */
static const struct {
    double least, part;
} errs[GPU_PARTS] = {
    [PART_INTEGER] = {0.002, 0.1},       [PART_TENSOR_FP64] = {0.0003, 0.03},
    [PART_TENSOR_FP16] = {0.0003, 0.03}, [PART_TENSOR_INTEGER] = {0.0003, 0.03},
    [PART_FP64] = {0.0003, 0.03},        [PART_FP32] = {0.0003, 0.03},
    [PART_FP16] = {0.0003, 0.03},        [PART_DRAM] = {0.003, 0.1},
};

/* Without observations. By it, programs that cannot be told apart get equal speeds. */
static const struct speed no_prior[SPEED_JOBS] = {[0 ... SPEED_JOBS - 1] = {0.5, 0.5}};

/* The normal equations of the weighted least squares. */
struct normal {
    uint32_t n;
    double a[SPEED_JOBS][SPEED_JOBS], b[SPEED_JOBS];
};

static double weight_of(unsigned part, double y)
{
    double sigma = errs[part].least + errs[part].part * fmax(y, 0);
    return 1 / (sigma * sigma);
}

static void normal_equations(const double profiles[][GPU_PARTS], uint32_t n, const double *y,
                             const struct speed *prior, struct normal *e)
{
    *e = (struct normal){.n = n};
    for (uint32_t i = 0; i < n; i++) {
        for (unsigned p = 0; p < GPU_PARTS; p++) {
            double w = weight_of(p, y[p]) * profiles[i][p];
            e->b[i] += w * y[p];
            for (uint32_t k = 0; k < n; k++)
                e->a[i][k] += w * profiles[k][p];
        }
        const double w = 1 / (prior[i].error * prior[i].error);
        e->a[i][i] += w;
        e->b[i] += w * prior[i].value;
    }
}

/* Coordinate descent: sets one unknown after the other to its optimum between the bounds. */
static void descend(const struct normal *e, struct speed *s)
{
    for (uint32_t i = 0; i < e->n; i++)
        s[i].value = 0.5;
    for (unsigned step = 0; step < STEPS; step++) {
        double moved = 0;
        for (uint32_t i = 0; i < e->n; i++) {
            double rest = e->b[i];
            for (uint32_t k = 0; k < e->n; k++)
                rest -= k == i ? 0 : e->a[i][k] * s[k].value;
            double v = fmin(fmax(rest / e->a[i][i], 0), SPEED_MAX);
            moved = fmax(moved, fabs(v - s[i].value));
            s[i].value = v;
        }
        if (moved < CONVERGED)
            return;
    }
}

/* The diagonal of the inverse has the variances of the unknowns; the sum of all its elements is the
 * variance of their sum. Gauss-Jordan; the matrix is symmetric and, by the prior, positive. */
static void variances(const struct normal *e, struct speed *s, struct speed *sum)
{
    double a[SPEED_JOBS][2 * SPEED_JOBS] = {{0}};
    uint32_t n = e->n;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < n; k++)
            a[i][k] = e->a[i][k];
        a[i][n + i] = 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        double pivot = a[i][i]; /* above 0, by the prior */
        for (uint32_t k = 0; k < 2 * n; k++)
            a[i][k] /= pivot;
        for (uint32_t r = 0; r < n; r++) {
            double by = a[r][i];
            for (uint32_t k = 0; r != i && k < 2 * n; k++)
                a[r][k] -= by * a[i][k];
        }
    }
    *sum = (struct speed){0};
    for (uint32_t i = 0; i < n; i++) {
        s[i].error = sqrt(fmax(a[i][n + i], 0));
        sum->value += s[i].value;
        for (uint32_t k = 0; k < n; k++)
            sum->error += a[i][n + k];
    }
    sum->error = sqrt(fmax(sum->error, 0));
}

void speeds_estimate(const double profiles[][GPU_PARTS], uint32_t n,
                     const double together[GPU_PARTS], const struct speed *prior, struct speed *out,
                     struct speed *sum, double *misfit)
{
    struct normal e;
    struct speed total;
    normal_equations(profiles, n, together, prior ? prior : no_prior, &e);
    descend(&e, out);
    variances(&e, out, &total);
    double squares = 0;
    for (unsigned p = 0; p < GPU_PARTS; p++) {
        double left = together[p];
        for (uint32_t i = 0; i < n; i++)
            left -= profiles[i][p] * out[i].value;
        squares += left * left * weight_of(p, together[p]);
    }
    double apart = sqrt(squares / (n < GPU_PARTS ? GPU_PARTS - n : 1));
    for (uint32_t i = 0; i < n; i++)
        out[i].error *= fmax(apart, 1);
    total.error *= fmax(apart, 1);
    if (sum)
        *sum = total;
    if (misfit)
        *misfit = fmax(apart, 1);
}

double speeds_work(const double parts[GPU_PARTS])
{
    double sum = 0;
    for (unsigned p = 0; p < GPU_PARTS; p++)
        sum += parts[p];
    return sum;
}
