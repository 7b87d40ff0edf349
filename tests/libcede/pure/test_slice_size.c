/* How large slices get: kernels of any speed, slices that took much longer than others, clocks that
 * jump, and numbers at the ends of the range. */
#include "../../random.h"
#include "../fixture.h"
#include "base/util.h"
#include "libcede/pure/slice_size.h"

#define TARGET_NS 500000.0
#define MANY      (1ULL << 62)

/* A slice on a GPU that takes launch_ns and each_ns for an element; its time. */
static double run(struct slice_size *s, double launch_ns, double each_ns)
{
    uint64_t n = cede_slice_size_next(s, MANY);
    double ns = launch_ns + (double)n * each_ns;
    cede_slice_size_add(s, n, 1, (uint64_t)ns);
    return ns;
}

static struct slice_size begun(uint64_t multiple)
{
    struct slice_size s;
    cede_slice_size_begin(&s, (uint64_t)TARGET_NS, multiple, 0);
    return s;
}

/* From nothing known, whatever the kernel: never more than twice the target on the way, and then
 * as long as it. */
TEST(finds_the_target)
{
    static const double each[] = {0.0003, 0.01, 1, 37, 1000, 90000, 500000};
    for (size_t i = 0; i < ARRAY_SIZE(each); i++) {
        struct slice_size s = begun(1);
        for (int k = 0; k < 60; k++)
            assert_true(run(&s, 4000, each[i]) < 2.1 * TARGET_NS);
        for (int k = 0; k < 10; k++) {
            double ns = run(&s, 4000, each[i]);
            assert_true(ns > 0.8 * TARGET_NS && ns < 1.1 * TARGET_NS);
        }
    }
}

/* An element that takes longer than the target: one at a time. */
TEST(one_at_least)
{
    for (uint64_t least = 1; least <= 256; least += 255) {
        struct slice_size s = begun(least);
        for (int k = 0; k < 20; k++) {
            assert_int_equal(cede_slice_size_next(&s, MANY), least);
            run(&s, 0, least == 1 ? 3 * TARGET_NS : TARGET_NS);
        }
    }
}

/* Two slices of seven in which another program had the GPU for 2 ms, or during which the clock
 * jumped by years, change nothing. */
TEST(outliers)
{
    static const uint64_t wrong[] = {0, 1, 2500000, 1ULL << 40, UINT64_MAX};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct slice_size s = begun(1);
        for (int k = 0; k < 40; k++)
            run(&s, 0, 100);
        for (int k = 0; k < 50; k++) {
            assert_int_equal(cede_slice_size_next(&s, MANY), 5000);
            if (k % 7 < 2)
                cede_slice_size_add(&s, 5000, 1, wrong[i]);
            else
                run(&s, 0, 100);
        }
    }
}

/* The kernel is ten times as slow from some element on, or as fast: eight slices later the target
 * is met again. */
TEST(follows)
{
    for (int faster = 0; faster < 2; faster++) {
        struct slice_size s = begun(1);
        for (int k = 0; k < 40; k++)
            run(&s, 0, 100);
        double each = faster ? 10 : 1000;
        for (int k = 0; k < 8; k++)
            run(&s, 0, each);
        double ns = run(&s, 0, each);
        assert_true(ns > 0.9 * TARGET_NS && ns < 1.1 * TARGET_NS);
    }
}

/* Slices of which each second one is ten times as slow by nature: the target holds on average. */
TEST(unequal)
{
    struct slice_size s = begun(1);
    double sum = 0;
    for (int k = 0; k < 240; k++) {
        double ns = run(&s, 0, k % 2 ? 100 : 1000);
        sum += k < 40 ? 0 : ns;
    }
    assert_true(sum / 200 > 0.7 * TARGET_NS && sum / 200 < 1.5 * TARGET_NS);
}

/* Several that were measured together are as large as the mean of them. */
TEST(together)
{
    struct slice_size s = begun(1);
    cede_slice_size_add(&s, 40, 4, 0);
    assert_int_equal(cede_slice_size_next(&s, MANY), 20);
    for (int k = 0; k < 20; k++)
        cede_slice_size_add(&s, 10000, 2, 1000000);
    assert_int_equal(cede_slice_size_next(&s, MANY), 5000);
}

/* Whatever the times: within the bounds, at most twice the largest of late, the same twice. */
TEST(bounds)
{
    static const uint64_t multiples[] = {1, 7, 256, 1ULL << 63, UINT64_MAX};
    for (unsigned round = 0; round < 2000; round++) {
        state = round;
        struct slice_size s, twin;
        uint64_t m = multiples[rnd(5)], target = rnd(2) ? 1 : 1 + rnd(1000000000);
        uint64_t counts[SLICE_SAMPLES] = {0};
        uint64_t first = rnd(2) ? 0 : rnd(UINT64_MAX);
        cede_slice_size_begin(&s, target, m, first);
        cede_slice_size_begin(&twin, target, m, first);
        for (int k = 0; k < 100; k++) {
            uint64_t left = 1 + rnd(rnd(2) ? 1000 : UINT64_MAX - 1);
            uint64_t n = cede_slice_size_next(&s, left);
            assert_true(n >= 1 && n <= left);
            assert_true(n == left || n % m == 0);
            uint64_t largest = 0;
            for (unsigned i = 0; i < SLICE_SAMPLES; i++)
                largest = max_u64(largest, min_u64(counts[i], MANY / 2));
            if (k > 0 && m == 1)
                assert_true(n <= 2 * largest);
            counts[k % (int)SLICE_SAMPLES] = n;
            uint64_t took = rnd(3) ? rnd(1000000) : rnd(2) ? 0 : rnd(UINT64_MAX);
            cede_slice_size_add(&s, n, 1, took);
            cede_slice_size_add(&twin, n, 1, took);
            assert_int_equal(s.next, twin.next);
        }
    }
}
