/* See works.h. The kernels themselves are in the folder kernels. */
#include "bench/load/works.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load/cuda.h"
#include "bench/load/kernels.h"

#define THREADS     256U
#define OPTIONS     (16U << 20)
#define SAMPLES     4096U
#define RATE        0.03
#define VOLATILITY  0.25
#define CELLS       4096U /* on a side */
#define SMALL       64U   /* the grid that is compared with the host's */
#define SMALL_STEPS 10U
#define GAMMA       1.4f
#define STEP        0.1f

/* ---- the host's side ---- */

static uint32_t works_scatter(uint32_t x)
{
    x = (x ^ 61) ^ (x >> 16);
    x *= 9;
    x ^= x >> 4;
    x *= 0x27d4eb2d;
    return x ^ (x >> 15);
}

void works_option(uint32_t i, float *spot, float *strike, float *years)
{
    *spot = 10.0f + (float)(works_scatter(3 * i) >> 8) * (100.0f / 16777216.0f);
    *strike = 10.0f + (float)(works_scatter(3 * i + 1) >> 8) * (100.0f / 16777216.0f);
    *years = 0.1f + (float)(works_scatter(3 * i + 2) >> 8) * (2.0f / 16777216.0f);
}

void works_price(double spot, double strike, double years, double *call, double *put)
{
    double width = VOLATILITY * sqrt(years), later = strike * exp(-RATE * years);
    double d1 = (log(spot / strike) + (RATE + 0.5 * VOLATILITY * VOLATILITY) * years) / width;
    double n1 = 0.5 * erfc(-d1 * M_SQRT1_2), n2 = 0.5 * erfc(-(d1 - width) * M_SQRT1_2);
    *call = spot * n1 - later * n2;
    *put = later * (1 - n2) - spot * (1 - n1);
}

void works_euler_fill(float (*cells)[4], uint32_t n)
{
    for (uint32_t i = 0; i < n * n; i++) {
        uint32_t row = i / n;
        float x = ((float)(i % n) + 0.5f) / (float)n, y = ((float)row + 0.5f) / (float)n;
        float inner = y > 0.25f && y < 0.75f ? 1.0f : 0.0f;
        float rho = 1.0f + inner, u = 0.5f - inner, v = 0.05f * sinf(12.566371f * x);
        cells[i][0] = rho;
        cells[i][1] = rho * u;
        cells[i][2] = rho * v;
        cells[i][3] = 2.5f / (GAMMA - 1.0f) + 0.5f * rho * (u * u + v * v);
    }
}

/* Through the face from a to b; axis 1: along x, 2: along y. */
static void flux(const float a[4], const float b[4], int axis, float f[4])
{
    float pa = (GAMMA - 1.0f) * (a[3] - 0.5f * (a[1] * a[1] + a[2] * a[2]) / a[0]);
    float pb = (GAMMA - 1.0f) * (b[3] - 0.5f * (b[1] * b[1] + b[2] * b[2]) / b[0]);
    float ua = a[axis] / a[0], ub = b[axis] / b[0];
    float fastest =
        fmaxf(fabsf(ua) + sqrtf(GAMMA * pa / a[0]), fabsf(ub) + sqrtf(GAMMA * pb / b[0]));
    for (int k = 0; k < 4; k++) {
        float ea = k == 3 ? pa : 0, eb = k == 3 ? pb : 0, push = k == axis ? pa + pb : 0;
        f[k] = 0.5f * ((a[k] + ea) * ua + (b[k] + eb) * ub - fastest * (b[k] - a[k]) + push);
    }
}

void works_euler_step(const float (*from)[4], float (*to)[4], uint32_t n)
{
    for (uint32_t i = 0; i < n * n; i++) {
        uint32_t x = i % n, y = i / n;
        float w[4], e[4], s[4], t[4];
        flux(from[y * n + (x ? x - 1 : n - 1)], from[i], 1, w);
        flux(from[i], from[y * n + (x + 1 < n ? x + 1 : 0)], 1, e);
        flux(from[(y ? y - 1 : n - 1) * n + x], from[i], 2, s);
        flux(from[i], from[(y + 1 < n ? y + 1 : 0) * n + x], 2, t);
        for (int k = 0; k < 4; k++)
            to[i][k] = from[i][k] - STEP * (e[k] - w[k] + t[k] - s[k]);
    }
}

/* ---- the GPU's ---- */

static void works_arrays(struct cuda *g, unsigned count, size_t bytes)
{
    CUDA(g, "allocate GPU memory for --work", mem_alloc, &g->w.number, 4 * sizeof(double));
    for (unsigned i = 0; i < count; i++)
        CUDA(g, "allocate GPU memory for --work", mem_alloc, &g->w.v[i], bytes);
}

static int works_launch(struct cuda *g, cu_function f, uint64_t threads, void **params)
{
    return cuda_launch(g, f, (unsigned)((threads + THREADS - 1) / THREADS), THREADS, params);
}

static int works_settle(struct cuda *g)
{
    return cuda_settle(g, "a kernel of --work");
}

static int works_copy_out(struct cuda *g, void *to, cu_pointer from, size_t bytes)
{
    return CUDA(g, "copy from the GPU", copy_out, to, from, bytes);
}

/* Runs a kernel that adds into `number`, and takes what it made. */
static int works_added(struct cuda *g, cu_function f, void **params, void *out, size_t bytes)
{
    static const double zero[4] = {0};
    cuda_copy_in(g, g->w.number, zero, sizeof(zero));
    works_launch(g, f, 1U << 20, params);
    works_settle(g);
    return works_copy_out(g, out, g->w.number, bytes);
}

static uint64_t works_digest(struct cuda *g, cu_pointer words, uint64_t n)
{
    uint64_t digest = 0;
    void *params[] = {&words, &n, &g->w.number};
    works_added(g, g->w.digest, params, &digest, sizeof(digest));
    return digest;
}

/* Option pricing */

static int bs_launch(struct cuda *g)
{
    void *params[] = {&g->w.v[0], &g->w.v[1], &g->w.v[2], &g->w.v[3], &g->w.v[4], &g->w.n};
    g->w.kernels++;
    return works_launch(g, g->w.kernel, g->w.n, params);
}

static int bs_digest(struct cuda *g, uint64_t *out)
{
    uint64_t call = works_digest(g, g->w.v[3], g->w.n), put = works_digest(g, g->w.v[4], g->w.n);
    *out = call ^ (put << 1 | put >> 63);
    return g->s.failed;
}

static void bs_set_up(struct cuda *g)
{
    void *params[] = {&g->w.v[0], &g->w.v[1], &g->w.v[2], &g->w.n};
    cu_function fill = cuda_find(g, black_scholes_ptx, "bs_fill");
    g->w.kernel = cuda_find(g, black_scholes_ptx, "bs_price");
    g->w.digest = cuda_find(g, digest_ptx, "digest");
    g->w.n = OPTIONS;
    works_arrays(g, 5, OPTIONS * sizeof(float));
    works_launch(g, fill, OPTIONS, params);
    bs_launch(g);
    works_settle(g);
    bs_digest(g, &g->w.first_digest);
}

static int bs_verify(struct cuda *g)
{
    uint64_t digest;
    if (bs_digest(g, &digest) == 0 && digest != g->w.first_digest)
        return error_set(g->s.err, -EBADMSG, "the same options got other prices the last time");
    _cleanup_free_ float *call = calloc(2 * OPTIONS, sizeof(float));
    if (!call)
        return error_set(g->s.err, -ENOMEM, "no memory for %u prices", OPTIONS);
    float *put = call + OPTIONS;
    works_copy_out(g, call, g->w.v[3], OPTIONS * sizeof(float));
    works_copy_out(g, put, g->w.v[4], OPTIONS * sizeof(float));
    for (uint32_t k = 0; k < SAMPLES && !g->s.failed; k++) {
        uint32_t i = k * (OPTIONS / SAMPLES) + k;
        float s, x, t;
        double c, p;
        works_option(i, &s, &x, &t);
        works_price((double)s, (double)x, (double)t, &c, &p);
        if (!(fabs(c - (double)call[i]) < 1e-4 * (double)s) ||
            !(fabs(p - (double)put[i]) < 1e-4 * (double)s))
            return error_set(g->s.err, -EBADMSG,
                             "option %u is priced %g and %g instead of %g and %g", i,
                             (double)call[i], (double)put[i], c, p);
    }
    return g->s.failed; // NOLINT(clang-analyzer-unix.Malloc): _cleanup_
}

/* Fluid dynamics: the state after k kernels is in v[k % 2] */

static int euler_launch(struct cuda *g)
{
    void *params[] = {&g->w.v[g->w.kernels % 2], &g->w.v[1 - g->w.kernels % 2], &g->w.n};
    g->w.kernels++;
    return works_launch(g, g->w.kernel, (uint64_t)g->w.n * g->w.n, params);
}

static int euler_sums(struct cuda *g, double sums[4])
{
    void *params[] = {&g->w.v[g->w.kernels % 2], &g->w.number, &g->w.n};
    return works_added(g, g->w.sums, params, sums, 4 * sizeof(*sums));
}

static int euler_digest(struct cuda *g, uint64_t *out)
{
    *out = works_digest(g, g->w.v[g->w.kernels % 2], 4ULL * g->w.n * g->w.n);
    return g->s.failed;
}

static void euler_fill(struct cuda *g, uint32_t n)
{
    void *params[] = {&g->w.v[0], &g->w.n};
    g->w.n = n;
    g->w.kernels = 0;
    works_launch(g, cuda_find(g, euler_ptx, "euler_fill"), (uint64_t)n * n, params);
    works_settle(g);
}

static void euler_set_up(struct cuda *g)
{
    g->w.kernel = cuda_find(g, euler_ptx, "euler_step");
    g->w.sums = cuda_find(g, euler_ptx, "euler_sums");
    g->w.digest = cuda_find(g, digest_ptx, "digest");
    works_arrays(g, 2, (size_t)CELLS * CELLS * 4 * sizeof(float));
    euler_fill(g, CELLS);
    euler_sums(g, g->w.first_sums);
}

/* A small grid in the same arrays, against the host. */
static int euler_compare(struct cuda *g)
{
    size_t bytes = SMALL * SMALL * 4 * sizeof(float);
    _cleanup_free_ float(*both)[4] = calloc(2, bytes);
    if (!both)
        return error_set(g->s.err, -ENOMEM, "no memory for a grid of %u cells", SMALL * SMALL);
    float(*a)[4] = both, (*b)[4] = both + SMALL * SMALL;
    works_euler_fill(a, SMALL);
    euler_fill(g, SMALL);
    for (uint32_t i = 0; i < SMALL_STEPS; i++) {
        works_euler_step((const float(*)[4])a, b, SMALL);
        float(*t)[4] = a;
        a = b;
        b = t;
        euler_launch(g);
    }
    works_settle(g);
    works_copy_out(g, b, g->w.v[g->w.kernels % 2], bytes);
    for (uint32_t i = 0; i < SMALL * SMALL * 4 && !g->s.failed; i++) {
        if (!(fabsf(a[i / 4][i % 4] - b[i / 4][i % 4]) < 1e-4f))
            return error_set(g->s.err, -EBADMSG, "cell %u of the small grid has %g instead of %g",
                             i / 4, (double)b[i / 4][i % 4], (double)a[i / 4][i % 4]);
    }
    return g->s.failed;
}

static int euler_verify(struct cuda *g)
{
    static const char *const what[] = {"mass", "momentum along x", "momentum along y", "energy"};
    double sums[4] = {0};
    euler_sums(g, sums);
    for (int k = 0; k < 4 && !g->s.failed; k++) {
        /* Momentum may add up to nothing: its error is compared with the mass. */
        double scale = fmax(fabs(g->w.first_sums[k]), fabs(g->w.first_sums[0]));
        if (!(fabs(sums[k] - g->w.first_sums[k]) <= 1e-3 * scale))
            return error_set(g->s.err, -EBADMSG, "%s went from %g to %g in %llu steps", what[k],
                             g->w.first_sums[k], sums[k], (unsigned long long)g->w.kernels);
    }
    return euler_compare(g);
}

static const struct load_work works[] = {
    {"blackscholes", 300, bs_set_up, bs_launch, bs_verify, bs_digest},
    {"euler", 400, euler_set_up, euler_launch, euler_verify, euler_digest},
};

const struct load_work *load_work(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(works); i++) {
        if (strcmp(works[i].name, name) == 0)
            return &works[i];
    }
    return NULL;
}
