/* Slowdowns that are predicted (plan/interference.h), against what the reference measured on an
 * H100 and an RTX 3090: every number of its tables and of the text. */
#include "../test.h"
#include "base/util.h"
#include "plan/interference.h"

#include <math.h>

#define WITHIN 0.1 /* requirement N11 */

#define KB 1000

static const struct gpu_shape h100 = {.sms = 132,
                                      .sm_threads = 2048,
                                      .sm_blocks = 32,
                                      .sm_registers = 65536,
                                      .sm_shared_bytes = 233472,
                                      .sm_l1_bytes = 256 << 10,
                                      .l2_bytes = 50 << 20};
static const struct gpu_shape rtx3090 = {.sms = 82,
                                         .sm_threads = 1536,
                                         .sm_blocks = 16,
                                         .sm_registers = 65536,
                                         .sm_l1_bytes = 128 << 10,
                                         .l2_bytes = 6 << 20};

#define IPC(n) [RESOURCE_ISSUE] = (n) / 4.0

/* ---- kernels of the reference ---- */

/* clang-format off */
#define SLEEP(n)     {.blocks = (n), .threads = 1024, .us = 1, .use = {IPC(0.2)}}
#define COPY         {.blocks = 132, .threads = 1024, .us = 1, \
                      .use = {IPC(0.61), [RESOURCE_DRAM] = 0.5}}
#define MUL(t, ipc)  {.blocks = 132, .threads = (t), .us = 1, .use = {IPC(ipc)}}
#define MUL64(ipc, pipe) \
    {.blocks = 132, .threads = 128, .us = 1, .use = {IPC(ipc), [RESOURCE_FP64] = (pipe) / 100}}
/* On SMs of its own. */
#define APART(n, dram) \
    {.blocks = (n), .threads = 1024, .us = 1, .use = {IPC(0.61), [RESOURCE_DRAM] = (dram) / 100}}
/* Arrays that it copies again and again; hit: that has hits in L2 alone. */
#define COPY_L2(kb, hit) \
    {.blocks = 66, .threads = 1024, .us = 1, .l2_hit = (hit), .l2_bytes = 2 * (kb) * KB, \
     .use = {IPC(0.61), [RESOURCE_L2] = 0.9, [RESOURCE_DRAM] = 0.9 * (1 - (hit))}}
#define COPY_L1(kb) \
    {.blocks = 132, .threads = 64, .us = 1, .use = {IPC(0.1)}, .l1_hit = 1, .l2_hit = 1, \
     .l1_bytes = 2 * (kb) * KB}
#define BOTH(k)      {k, k}
/* clang-format on */

static const struct row {
    const char *name;
    const struct gpu_shape *gpu;
    struct kernel_profile pair[2];
    double slowdown, speedup; /* 0: not told. The slowdown is the second's */
    enum resource limit;
} rows[] = {
    {"sleeping, 132 blocks", &h100, BOTH(SLEEP(132)), 1, 2, RESOURCE_NONE},
    {"sleeping, 264 blocks", &h100, BOTH(SLEEP(264)), 2, 1, RESOURCE_BLOCKS},
    {"L2: arrays of 22.5 MB", &h100, BOTH(COPY_L2(22500, 0.24)), 1.79, 0, RESOURCE_L2},
    {"DRAM: 33 blocks", &h100, BOTH(APART(33, 21.33)), 1.06, 0, RESOURCE_DRAM},
    {"DRAM: 66 blocks", &h100, BOTH(APART(66, 40.12)), 1.14, 0, RESOURCE_DRAM},
    {"DRAM: 99 blocks", &h100, BOTH(APART(66, 55.06)), 1.23, 0, RESOURCE_DRAM},
    {"DRAM: 132 blocks", &h100, BOTH(APART(66, 69.18)), 1.36, 0, RESOURCE_DRAM},
    {"DRAM: 10 blocks", &rtx3090, BOTH(APART(10, 24.48)), 1.06, 0, RESOURCE_DRAM},
    {"DRAM: 20 blocks", &rtx3090, BOTH(APART(20, 45.34)), 1.27, 0, RESOURCE_DRAM},
    {"DRAM: 40 blocks", &rtx3090, BOTH(APART(40, 71.96)), 1.61, 0, RESOURCE_DRAM},
    {"DRAM: 80 blocks", &rtx3090, BOTH(APART(41, 90.69)), 1.91, 0, RESOURCE_DRAM},
    {"issue: IPC 1.08", &h100, {MUL(128, 1.08), COPY}, 0, 1.915, RESOURCE_NONE},
    {"issue: IPC 2.06", &h100, {MUL(128, 2.06), COPY}, 0, 1.896, RESOURCE_NONE},
    {"issue: IPC 2.9", &h100, {MUL(128, 2.9), COPY}, 0, 1.893, RESOURCE_NONE},
    {"issue: IPC 3.45", &h100, {MUL(128, 3.45), COPY}, 0, 1.65, RESOURCE_ISSUE},
    {"issue: IPC 4", &h100, {MUL(256, 4), COPY}, 0, 1.001, RESOURCE_ISSUE},
    {"FP64: 25 %", &h100, BOTH(MUL64(0.51, 24.96)), 0, 1.988, RESOURCE_NONE},
    {"FP64: 49 %", &h100, BOTH(MUL64(1.02, 49.32)), 0, 1.977, RESOURCE_NONE},
    {"FP64: 73 %", &h100, BOTH(MUL64(1.53, 72.99)), 0, 1.356, RESOURCE_FP64},
    {"FP64: 97 %", &h100, BOTH(MUL64(2.01, 96.59)), 0, 1.018, RESOURCE_FP64},
    {"product of 4 MB", &h100,
     BOTH(((struct kernel_profile){
         .blocks = 128, .threads = 128, .us = 1, .use = {IPC(3), [RESOURCE_FP32] = 0.6}})),
     1.7, 0, RESOURCE_ISSUE},
    {"intensity says yes", &h100, {MUL(1024, 4), COPY}, 0, 1, RESOURCE_ISSUE},
    {"occupancy says yes", &h100, BOTH(MUL(128, 3.45)), 1.85, 0, RESOURCE_ISSUE},
};

static bool close_to(double value, double measured)
{
    return measured == 0 || fabs(value - measured) <= WITHIN * measured;
}

/* Whether two kernels may run together: with 22 of 23 right it is better than by arithmetic
 * intensity (15) and by occupancy (9). */
static bool fits(double slowdown, double speedup)
{
    return slowdown > 0 ? slowdown <= 1.1 : speedup >= 1.8;
}

TEST(test_reference)
{
    int wrong = 0, wrong_fits = 0;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct row *r = &rows[i];
        struct interference got;
        interference_estimate(r->gpu, r->pair, &got);
        bool right = close_to(got.slowdown[1], r->slowdown) && close_to(got.speedup, r->speedup) &&
                     got.limit[1] == r->limit;
        printf("%-24s slowdown %.3f (%.3f)  speedup %.3f (%.3f)  %s%s\n", r->name, got.slowdown[1],
               r->slowdown, got.speedup, r->speedup, resource_name(got.limit[1]),
               right ? "" : "  <-- WRONG");
        wrong += !right;
        wrong_fits += fits(r->slowdown, r->speedup) !=
                      fits(r->slowdown > 0 ? got.slowdown[1] : 0, got.speedup);
    }
    assert_int_equal(wrong, 0);
    assert_true(wrong_fits <= 1);
}

/* What it says in words: small arrays do not disturb each other, and two kernels whose arrays fill
 * L1 alone are no faster together than one after the other. */
TEST(caches)
{
    static const struct kernel_profile l2[2] = BOTH(COPY_L2(5000, 1)), few[2] = BOTH(COPY_L1(32)),
                                       many[2] = BOTH(COPY_L1(120));
    struct interference got;
    interference_estimate(&h100, l2, &got);
    assert_true(got.slowdown[0] < 1.1);
    interference_estimate(&h100, few, &got);
    assert_true(got.speedup > 1.5);
    interference_estimate(&h100, many, &got);
    assert_true(got.speedup <= 1 && got.limit[0] == RESOURCE_L1);
    /* Far more than fits, whose size is known: what misses anyway misses beside another, too. */
    struct kernel_profile stream[2] = BOTH(APART(66, 69.18));
    for (int i = 0; i < 2; i++) {
        stream[i].use[RESOURCE_L2] = stream[i].use[RESOURCE_DRAM];
        stream[i].l2_bytes = 8000000000ULL;
        stream[i].l1_bytes = stream[i].l2_bytes / 66;
    }
    interference_estimate(&h100, stream, &got);
    assert_true(got.slowdown[0] > 1.3 && got.limit[0] == RESOURCE_DRAM);
}

/* A sixteenth of the SMs, by its occupancy. */
TEST(fewer_sms)
{
    static const struct kernel_profile mul = MUL(128, 3.45), sleeps = SLEEP(132);
    assert_true(close_to(interference_of_fewer_sms(&h100, &mul, 8), 15.8));
    assert_true(fabs(interference_of_fewer_sms(&h100, &mul, 132) - 1) < 1e-9);
    assert_true(fabs(interference_of_fewer_sms(&h100, &sleeps, 66) - 1) < 1e-9);
    assert_true(fabs(interference_of_fewer_sms(&h100, &sleeps, 33) - 2) < 1e-9);
}

/* Half of the time the one kernel, half of the time the other. */
TEST(programs)
{
    static const struct kernel_profile one[] = {MUL64(2.01, 96.59)};
    struct kernel_profile two[] = {MUL64(2.01, 96.59), SLEEP(132)}, alone = one[0];
    struct interference got;
    alone.share = 1;
    two[0].share = two[1].share = 0.5;
    interference_of_programs(&h100, (struct program_kernels[]){{&alone, 1, 0}, {two, 2, 0}}, 0,
                             &got);
    /* While the one does its work once, the other is at both of its kernels once. */
    assert_true(fabs(got.slowdown[0] - 1.485) < 0.02);
    assert_true(fabs(got.slowdown[1] - 1.485) < 0.02);
    assert_int_equal(got.limit[0], RESOURCE_FP64);
    assert_int_equal(got.limit[1], RESOURCE_FP64);
    /* Each on half of the SMs: what computes takes twice as long, what sleeps does not. */
    interference_of_programs(&h100, (struct program_kernels[]){{&alone, 1, 0}, {two, 2, 0}}, 66,
                             &got);
    assert_true(fabs(got.slowdown[0] - 1.97) < 0.05);
    assert_true(fabs(got.slowdown[1] - (0.5 * 1.97 + 0.5)) < 0.05);
    assert_int_equal(got.limit[0], RESOURCE_BLOCKS);
}

TEST(test_gaps)
{
    static const struct {
        double busy[2], both[2], slowdown[2];
    } cases[] = {
        {{1, 1}, {2, 2}, {2, 2}},       {{0, 0}, {3, 1.5}, {3, 1.5}}, /* not known: no gaps */
        {{0.5, 1}, {2, 2}, {1.5, 1.5}}, /* there for 2/3 of the time then, which is 1 / 1.5 */
        {{1, 1e-9}, {2, 2}, {1, 1}},    {{0.5, 0.5}, {1, 1}, {1, 1}},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        double got[2];
        interference_with_gaps(cases[i].busy, cases[i].both, got);
        for (int k = 0; k < 2; k++)
            assert_true(fabs(got[k] - cases[i].slowdown[k]) < 1e-3);
    }
    /* Two that have gaps do more in turns than one of them alone, and less than twice as much. */
    double got[2];
    interference_with_gaps((double[2]){0.6, 0.6}, (double[2]){2, 2}, got);
    assert_true(1 / got[0] + 1 / got[1] > 1.2 && 1 / got[0] + 1 / got[1] < 1.7);
}
