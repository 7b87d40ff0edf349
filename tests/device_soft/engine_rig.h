/* What the tests of the software GPU's engine share: an engine in which every time can be worked
 * out by hand, and calls that fail the test when they fail. A copy in the test that uses it. */
#ifndef TESTS_DEVICE_SOFT_ENGINE_RIG_H
#define TESTS_DEVICE_SOFT_ENGINE_RIG_H

#include "../test.h"
#include "clean.h"

#define US 1000ULL
#define MS 1000000ULL

#define BASE    (100 * US)
#define SAVE    (20 * US)
#define RESTORE (10 * US)
#define SUSPEND (600 * US)

#define HELPER static __attribute__((unused))

/* Round numbers, no host overhead. */
static const struct softgpu_params plain = {
    .switch_ns = BASE,
    .save_ns = SAVE,
    .restore_ns = RESTORE,
    .timeslice_us = 1000,
    .timeslice_call_idle_ns = 100 * US,
    .timeslice_call_busy_ns = 300 * US,
    .suspend_call_ns = SUSPEND,
    .resume_call_ns = 300 * US,
    .block_switch_ns = 80 * US,
    .block_limit_ns = 5000 * MS,
    .preempt_call_ns = 700 * US,
};

/* With so many groups, numbered from 0. */
HELPER struct softgpu *engine(uint32_t groups)
{
    struct softgpu *e = NULL;
    uint32_t g;
    assert_int_equal(softgpu_new(&plain, groups, 4096, &e), 0);
    for (uint32_t i = 0; i < groups; i++) {
        assert_int_equal(softgpu_group_add(e, 0, &g), 0);
        assert_int_equal(g, i);
    }
    return e;
}

/* Numbers: two owners of one group, as clients of an MPS server are, and one with a group of its
 * own. */
enum { A, B, OTHER, NUMBERS };

HELPER struct softgpu *pool_and_other(void)
{
    struct softgpu *e = NULL;
    uint32_t n;
    assert_int_equal(softgpu_new(&plain, NUMBERS, 4096, &e), 0);
    assert_int_equal(softgpu_group_add(e, 0, &n), 0);
    assert_int_equal(n, A);
    assert_int_equal(softgpu_group_join(e, A, 0, &n), 0);
    assert_int_equal(n, B);
    assert_int_equal(softgpu_group_add(e, 0, &n), 0);
    assert_int_equal(n, OTHER);
    return e;
}

HELPER void submit(struct softgpu *e, uint32_t owner, uint32_t stream, uint64_t duration_ns,
                   float fraction, uint64_t at_ns)
{
    struct softgpu_kernel k = {stream, duration_ns, fraction, 0, 0, 0, 0};
    assert_int_equal(softgpu_submit(e, owner, &k, at_ns), 0);
}

/* When it is done. */
HELPER uint64_t control(struct softgpu *e, uint32_t owner, enum softgpu_call call, uint32_t value,
                        uint64_t at_ns)
{
    uint64_t done;
    assert_int_equal(softgpu_control(e, owner, call, value, at_ns, &done), 0);
    return done;
}

/* The next completion, advancing as far as needed. */
HELPER struct softgpu_completion next(struct softgpu *e)
{
    struct softgpu_completion c;
    while (!softgpu_pop_completion(e, &c)) {
        uint64_t t = softgpu_next_event_ns(e);
        assert_true(t != SOFTGPU_NEVER);
        softgpu_advance(e, t);
    }
    return c;
}

#define expect(e, owner, start, end)                                                               \
    do {                                                                                           \
        struct softgpu_completion c_ = next(e);                                                    \
        assert_int_equal(c_.group, owner);                                                         \
        assert_int_equal(c_.start_ns, start);                                                      \
        assert_int_equal(c_.end_ns, end);                                                          \
    } while (0)

HELPER struct softgpu_group_info info_of(const struct softgpu *e, uint32_t owner)
{
    struct softgpu_group_info i;
    assert_int_equal(softgpu_group_info(e, owner, &i), 0);
    return i;
}

#endif
