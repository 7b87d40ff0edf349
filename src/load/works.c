/* See works.h. The kernels themselves are in the folder kernels. */
#include "load/works.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "load/cuda.h"
#include "load/kernels.h"

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

static uint32_t scatter(uint32_t x)
{
    x = (x ^ 61) ^ (x >> 16);
    x *= 9;
    x ^= x >> 4;
    x *= 0x27d4eb2d;
    return x ^ (x >> 15);
}

void works_option(uint32_t i, float *spot, float *strike, float *years)
{
    *spot = 10.0f + (float)(scatter(3 * i) >> 8) * (100.0f / 16777216.0f);
    *strike = 10.0f + (float)(scatter(3 * i + 1) >> 8) * (100.0f / 16777216.0f);
    *years = 0.1f + (float)(scatter(3 * i + 2) >> 8) * (2.0f / 16777216.0f);
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

static int arrays(struct cuda *g, unsigned count, size_t bytes, struct error *err)
{
    int r = cuda_alloc(g, 4 * sizeof(double), "--work", &g->w.number, err);
    for (unsigned i = 0; i < count && !r; i++)
        r = cuda_alloc(g, bytes, "--work", &g->w.v[i], err);
    return r;
}

static int start(struct cuda *g, cu_function f, uint64_t threads, void **params, struct error *err)
{
    unsigned blocks = (unsigned)((threads + THREADS - 1) / THREADS);
    return cuda_check(g, g->cu.launch(f, blocks, 1, 1, THREADS, 1, 1, 0, g->stream, params, NULL),
                      "launch a kernel of --work", err);
}

/* Runs a kernel that adds into `number`, and takes what it made. */
static int added(struct cuda *g, cu_function f, void **params, void *out, size_t bytes,
                 struct error *err)
{
    static const double zero[4] = {0};
    int r = cuda_check(g, g->cu.copy_in_async(g->w.number, zero, sizeof(zero), g->stream),
                       "copy to the GPU", err);
    if (!r)
        r = start(g, f, 1U << 20, params, err);
    if (!r)
        r = cuda_settle(g, "a kernel of --work", err);
    return r ? r : cuda_check(g, g->cu.copy_out(out, g->w.number, bytes), "copy from the GPU", err);
}

static int digest_of(struct cuda *g, cu_pointer words, uint64_t n, uint64_t *out, struct error *err)
{
    void *params[] = {&words, &n, &g->w.number};
    return added(g, g->w.digest, params, out, sizeof(*out), err);
}

/* Option pricing */

static int bs_launch(struct cuda *g, struct error *err)
{
    void *params[] = {&g->w.v[0], &g->w.v[1], &g->w.v[2], &g->w.v[3], &g->w.v[4], &g->w.n};
    g->w.kernels++;
    return start(g, g->w.kernel, g->w.n, params, err);
}

static int bs_digest(struct cuda *g, uint64_t *out, struct error *err)
{
    uint64_t call, put;
    int r = digest_of(g, g->w.v[3], g->w.n, &call, err);
    if (!r)
        r = digest_of(g, g->w.v[4], g->w.n, &put, err);
    *out = r ? 0 : call ^ (put << 1 | put >> 63);
    return r;
}

static int bs_set_up(struct cuda *g, struct error *err)
{
    cu_function fill = NULL;
    g->w.n = OPTIONS;
    int r = cuda_find(g, black_scholes_ptx, "bs_fill", &fill, err);
    if (!r)
        r = cuda_find(g, black_scholes_ptx, "bs_price", &g->w.kernel, err);
    if (!r)
        r = cuda_find(g, digest_ptx, "digest", &g->w.digest, err);
    if (!r)
        r = arrays(g, 5, OPTIONS * sizeof(float), err);
    void *params[] = {&g->w.v[0], &g->w.v[1], &g->w.v[2], &g->w.n};
    if (!r)
        r = start(g, fill, OPTIONS, params, err);
    if (!r)
        r = bs_launch(g, err);
    if (!r)
        r = cuda_settle(g, "a kernel of --work", err);
    return r ? r : bs_digest(g, &g->w.first_digest, err);
}

static int bs_verify(struct cuda *g, struct error *err)
{
    uint64_t digest;
    int r = bs_digest(g, &digest, err);
    if (!r && digest != g->w.first_digest)
        r = error_set(err, -EBADMSG, "the same options got other prices the last time");
    if (r)
        return r;
    _cleanup_free_ float *call = malloc(2 * OPTIONS * sizeof(float));
    if (!call)
        return error_set(err, -ENOMEM, "no memory for %u prices", OPTIONS);
    float *put = call + OPTIONS;
    if (!r)
        r = cuda_check(g, g->cu.copy_out(call, g->w.v[3], OPTIONS * sizeof(float)),
                       "copy from the GPU", err);
    if (!r)
        r = cuda_check(g, g->cu.copy_out(put, g->w.v[4], OPTIONS * sizeof(float)),
                       "copy from the GPU", err);
    for (uint32_t k = 0; k < SAMPLES && !r; k++) {
        uint32_t i = k * (OPTIONS / SAMPLES) + k;
        float s, x, t;
        double c, p;
        works_option(i, &s, &x, &t);
        works_price((double)s, (double)x, (double)t, &c, &p);
        if (!(fabs(c - (double)call[i]) < 1e-4 * (double)s) ||
            !(fabs(p - (double)put[i]) < 1e-4 * (double)s))
            r = error_set(err, -EBADMSG, "option %u is priced %g and %g instead of %g and %g", i,
                          (double)call[i], (double)put[i], c, p);
    }
    return r;
}

/* Fluid dynamics: the state after k kernels is in v[k % 2] */

static int euler_launch(struct cuda *g, struct error *err)
{
    void *params[] = {&g->w.v[g->w.kernels % 2], &g->w.v[1 - g->w.kernels % 2], &g->w.n};
    g->w.kernels++;
    return start(g, g->w.kernel, (uint64_t)g->w.n * g->w.n, params, err);
}

static int euler_sums(struct cuda *g, double sums[4], struct error *err)
{
    void *params[] = {&g->w.v[g->w.kernels % 2], &g->w.number, &g->w.n};
    return added(g, g->w.sums, params, sums, 4 * sizeof(*sums), err);
}

static int euler_digest(struct cuda *g, uint64_t *out, struct error *err)
{
    return digest_of(g, g->w.v[g->w.kernels % 2], 4ULL * g->w.n * g->w.n, out, err);
}

static int euler_fill(struct cuda *g, uint32_t n, struct error *err)
{
    cu_function fill = NULL;
    g->w.n = n;
    g->w.kernels = 0;
    int r = cuda_find(g, euler_ptx, "euler_fill", &fill, err);
    void *params[] = {&g->w.v[0], &g->w.n};
    if (!r)
        r = start(g, fill, (uint64_t)n * n, params, err);
    return r ? r : cuda_settle(g, "a kernel of --work", err);
}

static int euler_set_up(struct cuda *g, struct error *err)
{
    int r = cuda_find(g, euler_ptx, "euler_step", &g->w.kernel, err);
    if (!r)
        r = cuda_find(g, euler_ptx, "euler_sums", &g->w.sums, err);
    if (!r)
        r = cuda_find(g, digest_ptx, "digest", &g->w.digest, err);
    if (!r)
        r = arrays(g, 2, (size_t)CELLS * CELLS * 4 * sizeof(float), err);
    if (!r)
        r = euler_fill(g, CELLS, err);
    return r ? r : euler_sums(g, g->w.first_sums, err);
}

/* A small grid in the same arrays, against the host. */
static int euler_compare(struct cuda *g, struct error *err)
{
    size_t bytes = SMALL * SMALL * 4 * sizeof(float);
    _cleanup_free_ float(*both)[4] = malloc(2 * bytes);
    if (!both)
        return error_set(err, -ENOMEM, "no memory for a grid of %u cells", SMALL * SMALL);
    float(*a)[4] = both, (*b)[4] = both + SMALL * SMALL;
    works_euler_fill(a, SMALL);
    int r = euler_fill(g, SMALL, err);
    for (uint32_t i = 0; i < SMALL_STEPS && !r; i++) {
        works_euler_step((const float(*)[4])a, b, SMALL);
        float(*t)[4] = a;
        a = b;
        b = t;
        r = euler_launch(g, err);
    }
    if (!r)
        r = cuda_settle(g, "a kernel of --work", err);
    if (!r)
        r = cuda_check(g, g->cu.copy_out(b, g->w.v[g->w.kernels % 2], bytes), "copy from the GPU",
                       err);
    for (uint32_t i = 0; i < SMALL * SMALL * 4 && !r; i++) {
        if (!(fabsf(a[i / 4][i % 4] - b[i / 4][i % 4]) < 1e-4f))
            r = error_set(err, -EBADMSG, "cell %u of the small grid has %g instead of %g", i / 4,
                          (double)b[i / 4][i % 4], (double)a[i / 4][i % 4]);
    }
    return r;
}

static int euler_verify(struct cuda *g, struct error *err)
{
    static const char *const what[] = {"mass", "momentum along x", "momentum along y", "energy"};
    double sums[4];
    int r = euler_sums(g, sums, err);
    for (int k = 0; k < 4 && !r; k++) {
        /* Momentum may add up to nothing: its error is compared with the mass. */
        double scale = fmax(fabs(g->w.first_sums[k]), fabs(g->w.first_sums[0]));
        if (!(fabs(sums[k] - g->w.first_sums[k]) <= 1e-3 * scale))
            r = error_set(err, -EBADMSG, "%s went from %g to %g in %llu steps", what[k],
                          g->w.first_sums[k], sums[k], (unsigned long long)g->w.kernels);
    }
    return r ? r : euler_compare(g, err);
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
