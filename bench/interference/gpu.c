/* The suite on an NVIDIA GPU.
 *
 * Both kernels of a pair are made to take the same few milliseconds alone; then both are launched
 * together, and the one beside a much longer run of the other. Every block reports when it ran, on
 * which SM and for how many cycles, so that nothing is timed from the CPU. */
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/symbols.h"
#include "bench/cost.h"
#include "bench/kernels.h"
#include "suite.h"

#define ALONE_MS       4.0  /* at least: of each kernel of a pair */
#define LAP_MS         20.0 /* of a lap: long beside the gap before the next, some 0.1 ms */
#define REPEATS        5
#define WAIT_S         20
#define BLOCKS_MAX     1024U
#define LAPS_FIRST     5  /* whose median a kernel's profile has */
#define CARVEOUT       14 /* percent of the SM's shared memory: the same for all kernels */
#define CARVEOUT_BYTES (32U << 10)
#define SM_GROUP       8U /* SMs that a part of the GPU has a multiple of */

typedef int result_t;
typedef unsigned long long pointer_t;

#define CALLS(X)                                                                                   \
    X(init, "cuInit", (unsigned))                                                                  \
    X(error_text, "cuGetErrorString", (result_t, const char **))                                   \
    X(device_get, "cuDeviceGet", (int *, int))                                                     \
    X(device_name, "cuDeviceGetName", (char *, int, int))                                          \
    X(attribute, "cuDeviceGetAttribute", (int *, int, int))                                        \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int))                                          \
    X(set_current, "cuCtxSetCurrent", (void *))                                                    \
    X(library, "cuLibraryLoadData",                                                                \
      (void **, const void *, void *, void *, unsigned, void *, void *, unsigned))                 \
    X(kernel, "cuLibraryGetKernel", (void **, void *, const char *))                               \
    X(kernel_attribute, "cuKernelGetAttribute", (int *, int, void *, int))                         \
    X(set_attribute, "cuKernelSetAttribute", (int, int, void *, int))                              \
    X(alloc, "cuMemAlloc_v2", (pointer_t *, size_t))                                               \
    X(release, "cuMemFree_v2", (pointer_t))                                                        \
    X(fill, "cuMemsetD32_v2", (pointer_t, unsigned, size_t))                                       \
    X(copy_out, "cuMemcpyDtoH_v2", (void *, pointer_t, size_t))                                    \
    X(stream, "cuStreamCreate", (void **, unsigned))                                               \
    X(query, "cuStreamQuery", (void *))                                                            \
    X(synchronize, "cuCtxSynchronize", (void))                                                     \
    X(launch, "cuLaunchKernel",                                                                    \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,       \
       void **, void **))                                                                          \
    X(resource, "cuDeviceGetDevResource", (int, void *, int))                                      \
    X(split, "cuDevSmResourceSplitByCount",                                                        \
      (void *, unsigned *, const void *, void *, unsigned, unsigned))                              \
    X(describe, "cuDevResourceGenerateDesc", (void **, void *, unsigned))                          \
    X(green, "cuGreenCtxCreate", (void **, void *, int, unsigned))                                 \
    X(green_stream, "cuGreenCtxStreamCreate", (void **, void *, unsigned, int))

static struct {
#define X(field, symbol, args) result_t(*field) args;
    CALLS(X)
#undef X
} cu;

/* From the driver API's reference. */
enum {
    ATTRIBUTE_SMS = 16,
    ATTRIBUTE_L2 = 38,
    ATTRIBUTE_SM_THREADS = 39,
    ATTRIBUTE_SM_SHARED = 81,
    ATTRIBUTE_SM_REGISTERS = 82,
    ATTRIBUTE_SM_BLOCKS = 106,
    KERNEL_SHARED = 1,
    KERNEL_REGISTERS = 4,
    KERNEL_CARVEOUT = 9,
    NON_BLOCKING = 1,
    RESOURCE_IS_SM = 1,
    NOT_READY = 600,
};
#define RESOURCE_BYTES 144 /* of a device resource; after its type and 92 bytes comes its size */

#define DO(call, ...)                                                                              \
    do {                                                                                           \
        result_t r_ = cu.call(__VA_ARGS__);                                                        \
        if (r_)                                                                                    \
            die(#call, r_);                                                                        \
    } while (0)

static void die(const char *what, result_t r)
{
    const char *text = NULL;
    cu.error_text(r, &text);
    fprintf(stderr, "bench_interference: %s: error %d (%s)\n", what, r, text ? text : "?");
    exit(1);
}

/* ---- kernels ---- */

static const struct kind {
    const char *name;
    double per_step; /* warp instructions of a thread's step; copy: of one word; 0: a product */
    double bytes;    /* to and from memory, of a word */
    enum use pipe;   /* that most of them use; USE_ISSUE: none */
    double issued;   /* of a product: instructions for each multiplication, by its code */
} kinds[] = {
    {"sleep", 3, 0, USE_ISSUE, 0},       {"copy", 5.5, 8, USE_ISSUE, 0},
    {"mul1", 32 + 4, 0, USE_FP32, 0},    {"mul2", 64 + 4, 0, USE_FP32, 0},
    {"mul3", 96 + 4, 0, USE_FP32, 0},    {"mul4", 128 + 4, 0, USE_FP32, 0},
    {"double1", 32 + 4, 0, USE_FP64, 0}, {"double2", 64 + 4, 0, USE_FP64, 0},
    {"double3", 96 + 4, 0, USE_FP64, 0}, {"double4", 128 + 4, 0, USE_FP64, 0},
    {"product", 0, 0, USE_FP32, 1.25},   {"prefetch", 0, 0, USE_FP32, 1.12},
};

struct run {
    const struct kind *kind;
    struct contender c;
    void *function, *stream;
    pointer_t report, in, out;
    uint64_t words, steps;
    double alone_ms; /* of all steps */
    int registers, shared;
};

struct block_report {
    uint64_t start_ns, end_ns, cycles;
    uint32_t sm, sink;
};

struct timing {
    double start_ms, end_ms; /* since the first block of anybody */
    double cycles;           /* mean of its blocks */
    unsigned sms;            /* that it ran on */
};

static int device;
static void *library, *streams[2], *parts[2];
static struct block_report *reports[2];

static const struct kind *kind_of(const char *name)
{
    size_t i = 0;
    while (strcmp(kinds[i].name, name) != 0)
        i++;
    return &kinds[i];
}

static struct run prepare(const struct contender *c, int which, bool part)
{
    char name[32];
    struct run r = {
        .kind = kind_of(c->kernel), .c = *c, .stream = part ? parts[which] : streams[which]};
    uint64_t unit = 4ULL * c->threads, floats = 1 << 20;
    snprintf(name, sizeof(name), "contend_%s", c->kernel);
    DO(kernel, &r.function, library, name);
    DO(kernel_attribute, &r.registers, KERNEL_REGISTERS, r.function, device);
    DO(kernel_attribute, &r.shared, KERNEL_SHARED, r.function, device);
    DO(set_attribute, KERNEL_CARVEOUT, c->driver_divides ? -1 : CARVEOUT, r.function, device);
    if (c->bytes) {
        r.words = (c->bytes / 8 / c->blocks + unit - 1) / unit * unit;
        floats = r.words * c->blocks;
    }
    DO(alloc, &r.report, BLOCKS_MAX * sizeof(struct block_report));
    DO(alloc, &r.in, floats * 4);
    DO(alloc, &r.out, floats * 4);
    DO(fill, r.in, 0x3f800000, floats); /* 1.0 */
    DO(synchronize);
    return r;
}

static void give_back(struct run *r)
{
    DO(release, r->report);
    DO(release, r->in);
    DO(release, r->out);
}

static void start(struct run *r, uint64_t steps)
{
    void *params[] = {&r->report, &steps, &r->in, &r->out, &r->words};
    DO(launch, r->function, r->c.blocks, 1, 1, r->c.threads, 1, 1, 0, r->stream, params, NULL);
}

static void wait_for(struct run *r)
{
    uint64_t until = monotonic_ns() + WAIT_S * NSEC_PER_SEC;
    result_t q;
    while ((q = cu.query(r->stream)) == NOT_READY && monotonic_ns() < until)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    if (q)
        die(q == NOT_READY ? "a kernel has not ended within 20 s" : "a kernel", q);
}

/* Of what has ended, in ms since zero; 0: since its own first block. */
static struct timing timing_of(struct run *r, int which, uint64_t *zero_ns)
{
    struct block_report *v = reports[which];
    bool seen[SM_NUMBERS] = {false};
    uint64_t first = UINT64_MAX, last = 0;
    struct timing t = {.sms = 0};
    DO(copy_out, v, r->report, r->c.blocks * sizeof(*v));
    for (unsigned i = 0; i < r->c.blocks; i++) {
        first = min_u64(first, v[i].start_ns);
        last = max_u64(last, v[i].end_ns);
        t.cycles += (double)v[i].cycles / r->c.blocks;
        t.sms += !seen[v[i].sm % SM_NUMBERS];
        seen[v[i].sm % SM_NUMBERS] = true;
    }
    *zero_ns = *zero_ns ? *zero_ns : first;
    t.start_ms = ((double)first - (double)*zero_ns) / 1e6;
    t.end_ms = ((double)last - (double)*zero_ns) / 1e6;
    return t;
}

/* ---- measuring ---- */

static struct timing run_alone(struct run *r, int which, uint64_t steps)
{
    uint64_t zero = 0;
    start(r, steps);
    wait_for(r);
    return timing_of(r, which, &zero);
}

static double step_ms(struct run *r, int which)
{
    double ms = 0;
    uint64_t steps = 1;
    run_alone(r, which, 1); /* loads it */
    while ((ms = run_alone(r, which, steps).end_ms) < ALONE_MS / 4)
        steps *= 4;
    return ms / (double)steps;
}

/* Sets the number of steps, and how long they take. */
static void measure_alone(struct run *r, int which, double one_step_ms, double ms,
                          struct timing *last)
{
    double v[REPEATS];
    r->steps = max_u64(1, (uint64_t)(ms / one_step_ms + 0.5));
    for (int i = 0; i < REPEATS; i++) {
        *last = run_alone(r, which, r->steps);
        v[i] = last->end_ms;
    }
    r->alone_ms = cost_median(v, REPEATS);
}

/* The shortest time of whole steps that is ALONE_MS at least. A step of a copy is a pass through
 * all of its arrays, 2.4 ms on an H200: two kernels take the same time only if both take such a
 * multiple.
 */
static double common_ms(double one_step_ms)
{
    return ceil(ALONE_MS / one_step_ms) * one_step_ms;
}

/* Both once, started together: until both have ended. */
static double measure_both(struct run r[2])
{
    double v[REPEATS];
    for (int i = 0; i < REPEATS; i++) {
        uint64_t zero = 0;
        start(&r[0], r[0].steps);
        start(&r[1], r[1].steps);
        wait_for(&r[0]);
        wait_for(&r[1]);
        struct timing a = timing_of(&r[0], 0, &zero), b = timing_of(&r[1], 1, &zero);
        v[i] = fmax(a.end_ms, b.end_ms) - fmin(a.start_ms, b.start_ms);
    }
    return cost_median(v, REPEATS);
}

/* The duration of one beside a long run of the other. hidden: how much of it the other ran. */
static double measure_beside(struct run r[2], int which, double *hidden)
{
    double v[REPEATS], least = 1;
    for (int i = 0; i < REPEATS; i++) {
        uint64_t zero = 0;
        start(&r[!which], r[!which].steps * SUITE_LONGER);
        nanosleep(&(struct timespec){.tv_nsec = (long)(r[!which].alone_ms * 5e5)}, NULL);
        start(&r[which], r[which].steps);
        wait_for(&r[which]);
        wait_for(&r[!which]);
        struct timing own = timing_of(&r[which], which, &zero);
        struct timing other = timing_of(&r[!which], !which, &zero);
        v[i] = own.end_ms - fmin(own.start_ms, other.start_ms + r[!which].alone_ms / 2);
        least = fmin(least, (fmin(own.end_ms, other.end_ms) - own.start_ms) /
                                fmax(own.end_ms - own.start_ms, 1e-6));
    }
    *hidden = least;
    return cost_median(v, REPEATS);
}

/* ---- what is known of a kernel ---- */

/* How much of an H200's caches a copy alone goes through before its speed falls, and until it is
 * that of the next level. */
#define L1_FULL  0.9
#define L1_EMPTY 1.85
#define L2_FULL  0.7
#define L2_EMPTY 1.0

static double part_below(double x, double full, double empty)
{
    return fmin(1, fmax(0, (empty - x) / (empty - full)));
}

/* What the driver makes shared memory of an SM for a kernel that uses so much itself, as seen on an
 * H200 by who may begin beside whom. */
static uint32_t driver_division(const struct run *r)
{
    return r->shared > 7 << 10  ? 64U << 10 /* prefetch: 13 KB each of 4 blocks, by the same rule */
           : r->shared          ? 32U << 10 /* product: 7 KB each of 4 blocks */
           : r->c.threads > 512 ? 4U << 10
           : r->c.threads > 256 ? 16U << 10
                                : 32U << 10;
}

static struct kernel_profile profile_of(const struct stage *g, const struct run *r,
                                        const struct timing *t)
{
    double ms = r->alone_ms, warps = (double)r->c.threads / 32,
           per_sm = fmax(1, (double)r->c.blocks / g->shape.sms);
    double steps = (double)r->steps * (r->c.bytes ? (double)r->words / r->c.threads : 1);
    double issue = r->kind->per_step * steps * warps * per_sm / t->cycles / 4;
    double bytes = r->kind->bytes * (double)r->words * r->c.blocks * (double)r->steps;
    double gbps = bytes / ms / 1e6, set = 8.0 * (double)r->words;
    struct kernel_profile k = {.blocks = r->c.blocks,
                               .threads = r->c.threads,
                               .registers = (uint32_t)r->registers,
                               .shared_bytes = (uint32_t)r->shared,
                               .division = r->c.driver_divides ? driver_division(r) : 0,
                               .us = ms * 1e3};
    if (r->kind->per_step <= 0) { /* product, prefetch */
        k.use[USE_FP32] =
            1024.0 * 1024 * 1024 / 32 * (double)r->steps / g->shape.sms / t->cycles / 4;
        issue = k.use[USE_FP32] * r->kind->issued;
    }
    k.use[USE_ISSUE] = fmin(issue, 1);
    if (r->kind->pipe == USE_FP64) /* half as wide as the others; four more are the loop's */
        k.use[USE_FP64] = fmin(1, 2 * issue * (1 - 4 / r->kind->per_step));
    if (r->c.bytes) {
        double in_l1 = set * ceil((double)r->c.blocks / g->shape.sms) / g->shape.sm_l1_bytes;
        double in_l2 = set * r->c.blocks / (double)g->shape.l2_bytes;
        k.l1_bytes = (uint64_t)set;
        k.l2_bytes = (uint64_t)(set * r->c.blocks);
        k.l1_hit = part_below(in_l1, L1_FULL, L1_EMPTY);
        k.l2_hit = part_below(in_l2, L2_FULL, L2_EMPTY);
        k.use[USE_DRAM] = fmin(1, gbps / g->dram_gbps * (1 - k.l2_hit));
        k.use[USE_L2] = gbps / g->dram_gbps;
    }
    return k;
}

static void meet(const struct stage *s, const struct contender pair[2], bool apart, struct met *out)
{
    struct run r[2];
    double steps_ms[2];
    for (int i = 0; i < 2; i++) {
        r[i] = prepare(&pair[i], i, apart);
        steps_ms[i] = step_ms(&r[i], i);
    }
    for (int i = 0; i < 2; i++) {
        struct timing t;
        measure_alone(&r[i], i, steps_ms[i], common_ms(fmax(steps_ms[0], steps_ms[1])), &t);
        out->k[i] = profile_of(s, &r[i], &t);
        out->k[i].sms = apart ? s->part_sms : 0;
    }
    out->speedup = (r[0].alone_ms + r[1].alone_ms) / measure_both(r);
    for (int i = 0; i < 2; i++)
        out->slowdown[i] = measure_beside(r, i, &out->covered[i]) / r[i].alone_ms;
    give_back(&r[0]);
    give_back(&r[1]);
}

/* How the blocks of the last launch were spread. */
static void spread_of(const struct run *r, int which, struct laps *out)
{
    uint64_t first[SM_NUMBERS] = {0}, last[SM_NUMBERS] = {0};
    for (unsigned i = 0; i < r->c.blocks; i++) {
        const struct block_report *b = &reports[which][i];
        unsigned sm = b->sm % SM_NUMBERS;
        first[sm] = out->sm_blocks[sm]++ ? min_u64(first[sm], b->start_ns) : b->start_ns;
        last[sm] = max_u64(last[sm], b->end_ns);
        out->sm_busy_ms[sm] = (double)(last[sm] - first[sm]) / 1e6;
    }
}

static void run_laps(const struct stage *s, const struct contender *c, uint64_t *fixed_steps,
                     double seconds, struct laps *out)
{
    struct run r = prepare(c, 0, false);
    const uint64_t until = monotonic_ns() + (uint64_t)(seconds * 1e9);
    double first_ms[LAPS_FIRST] = {0};
    struct timing t;
    r.steps = *fixed_steps;
    if (!r.steps) {
        double one = step_ms(&r, 0);
        r.steps = max_u64(1, (uint64_t)(LAP_MS / one + 0.5));
    }
    while (out->n < LAPS_MAX && (out->n < LAPS_FIRST || monotonic_ns() < until)) {
        uint64_t zero = 0;
        start(&r, r.steps);
        wait_for(&r);
        t = timing_of(&r, 0, &zero);
        if (out->n < LAPS_FIRST)
            first_ms[out->n] = t.end_ms;
        out->start_ns[out->n] = zero;
        out->end_ns[out->n++] = zero + (uint64_t)(t.end_ms * 1e6);
    }
    spread_of(&r, 0, out);
    r.alone_ms = cost_median(first_ms, LAPS_FIRST);
    out->k = profile_of(s, &r, &t);
    *fixed_steps = r.steps;
    give_back(&r);
}

/* ---- set-up ---- */

static uint32_t attribute(int which)
{
    int v = 0;
    DO(attribute, &v, which, device);
    return (uint32_t)v;
}

static uint32_t half_of(const struct stage *s)
{
    return s->shape.sms / 2 / SM_GROUP * SM_GROUP;
}

/* Two halves of the SMs, if the driver has such contexts: not for each client of an MPS server. */
static void make_parts(const struct stage *s)
{
    _Alignas(8) char whole[RESOURCE_BYTES], rest[RESOURCE_BYTES], half[2 * RESOURCE_BYTES];
    unsigned n = 2;
    for (int i = 0; i < 2; i++)
        DO(stream, &streams[i], NON_BLOCKING);
    if (!cu.green || !half_of(s) || cu.resource(device, whole, RESOURCE_IS_SM))
        return;
    if (cu.split(half, &n, whole, rest, 0, half_of(s)) || n < 2)
        return;
    for (int i = 0; i < 2; i++) {
        void *description, *context;
        if (cu.describe(&description, half + i * RESOURCE_BYTES, 1) ||
            cu.green(&context, description, device, 1) ||
            cu.green_stream(&parts[i], context, NON_BLOCKING, 0)) {
            parts[0] = NULL;
            return;
        }
    }
}

static void set_up(struct stage *s)
{
    static const struct symbol calls[] = {
#define X(field, symbol, args) {symbol, offsetof(__typeof__(cu), field)},
        CALLS(X)
#undef X
    };
    void *lib = dlopen("libcuda.so.1", RTLD_NOW), *context;
    const char *missing = lib ? symbols_find(lib, calls, ARRAY_SIZE(calls), &cu) : "libcuda.so.1";
    if (missing) {
        fprintf(stderr, "bench_interference: there is no %s: a newer NVIDIA driver is needed\n",
                missing);
        exit(1);
    }
    DO(init, 0);
    DO(device_get, &device, 0);
    DO(device_name, s->name, sizeof(s->name), device);
    DO(retain, &context, device);
    DO(set_current, context);
    DO(library, &library, contend_ptx, NULL, NULL, 0, NULL, NULL, 0);
    s->shape = (struct gpu_shape){.sms = attribute(ATTRIBUTE_SMS),
                                  .sm_threads = attribute(ATTRIBUTE_SM_THREADS),
                                  .sm_blocks = attribute(ATTRIBUTE_SM_BLOCKS),
                                  .sm_registers = attribute(ATTRIBUTE_SM_REGISTERS),
                                  .sm_shared_bytes = attribute(ATTRIBUTE_SM_SHARED),
                                  .sm_l1_bytes =
                                      attribute(ATTRIBUTE_SM_SHARED) + (28U << 10) - CARVEOUT_BYTES,
                                  .l2_bytes = attribute(ATTRIBUTE_L2)};
    for (int i = 0; i < 2; i++)
        reports[i] = calloc(BLOCKS_MAX, sizeof(*reports[i]));
    make_parts(s);
}

/* A copy of all SMs, with two blocks each. */
static double most_gbps(const struct stage *s, uint64_t bytes)
{
    struct contender c = {
        .kernel = "copy", .blocks = 2 * s->shape.sms, .threads = 1024, .bytes = bytes};
    struct run r = prepare(&c, 0, false);
    struct timing t;
    double one = step_ms(&r, 0);
    measure_alone(&r, 0, one, common_ms(one), &t);
    give_back(&r);
    return 8.0 * (double)r.words * c.blocks * (double)r.steps / r.alone_ms / 1e6;
}

void stage_gpu(struct stage *s)
{
    *s = (struct stage){.meet = meet, .run_laps = run_laps};
    set_up(s);
    s->dram_gbps = most_gbps(s, 8000ULL * 1000 * 1000);
    s->l2_gbps = most_gbps(s, s->shape.l2_bytes / 4);
    s->part_sms = parts[0] ? half_of(s) : 0;
}
