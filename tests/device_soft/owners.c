/* Several owners of one group, as the clients of an MPS server are: the engine's rules, one test
 * each, in virtual time. */
#include "engine_rig.h"

static void expect_nothing_until(struct softgpu *e, uint64_t t)
{
    struct softgpu_completion c;
    softgpu_advance(e, t);
    assert_false(softgpu_pop_completion(e, &c));
}

TEST(in_space)
{
    _cleanup_engine_ struct softgpu *e = pool_and_other();
    /* The same stream number of both: they do not wait for each other. */
    submit(e, A, 0, 400 * US, 0.5f, 0);
    submit(e, B, 0, 300 * US, 0.5f, 0);
    submit(e, B, 0, 300 * US, 0.75f, 0); /* fits when A's has ended */
    expect(e, B, 0, 300 * US);
    expect(e, A, 0, 400 * US);
    expect(e, B, 400 * US, 700 * US);
    assert_int_equal(info_of(e, A).busy_ns, 400 * US);
    assert_int_equal(info_of(e, B).busy_ns, 600 * US);

    /* A third one with a group of its own takes turns with both. */
    submit(e, A, 0, 3 * MS, 0.5f, 10 * MS);
    submit(e, B, 0, 3 * MS, 0.5f, 10 * MS);
    submit(e, OTHER, 0, 100 * US, 1, 10 * MS);
    uint64_t in = 11 * MS + BASE + SAVE, back = in + 100 * US + BASE + RESTORE;
    expect(e, OTHER, in, in + 100 * US);
    expect(e, A, 10 * MS, back + 2 * MS);
    expect(e, B, 10 * MS, back + 2 * MS);
}

/* GPU time of each while it lasts, and how often it got the GPU. */
TEST(usage)
{
    _cleanup_engine_ struct softgpu *e = pool_and_other();
    submit(e, A, 0, 10 * MS, 0.5f, 0);
    submit(e, A, 1, 1 * MS, 0.25f, 1 * MS); /* beside the other: no time of its own */
    submit(e, B, 0, 1 * MS, 0.25f, 2 * MS);
    softgpu_advance(e, 2500 * US);
    assert_int_equal(info_of(e, A).busy_ns, 2500 * US);
    assert_int_equal(info_of(e, B).busy_ns, 500 * US);
    submit(e, B, 0, 1 * MS, 0.25f, 5 * MS);
    softgpu_advance(e, 7 * MS);
    assert_int_equal(info_of(e, B).busy_ns, 2 * MS);
    assert_int_equal(info_of(e, A).bursts, 1);
    assert_int_equal(info_of(e, B).bursts, 2); /* two requests */

    submit(e, OTHER, 0, 100 * US, 1, 7 * MS);
    softgpu_advance(e, 100 * MS);
    assert_int_equal(info_of(e, A).busy_ns, 10 * MS);
    assert_int_equal(info_of(e, A).bursts, 2);
    assert_int_equal(info_of(e, B).bursts, 2); /* it had nothing to do then */
    assert_int_equal(info_of(e, OTHER).bursts, 1);
}

TEST(suspend_with_work)
{
    _cleanup_engine_ struct softgpu *e = pool_and_other();
    submit(e, A, 0, 2 * MS, 0.5f, 0);
    submit(e, B, 0, 2 * MS, 0.5f, 0);
    uint64_t off = control(e, A, SOFTGPU_SUSPEND, 0, 0);
    submit(e, OTHER, 0, 100 * US, 1, 5 * MS);
    expect(e, OTHER, 5 * MS, 5 * MS + 100 * US);
    expect_nothing_until(e, 100 * MS);
    assert_int_equal(info_of(e, B).busy_ns, off);
    assert_true(info_of(e, A).suspended);
    assert_false(info_of(e, B).suspended);

    /* Nor does it help to resume the one that is not suspended. */
    control(e, B, SOFTGPU_RESUME, 0, 100 * MS);
    expect_nothing_until(e, 200 * MS);
    uint64_t end = control(e, A, SOFTGPU_RESUME, 0, 200 * MS) + BASE + RESTORE + 2 * MS - off;
    expect(e, A, 0, end);
    expect(e, B, 0, end);
}

TEST(suspend_both)
{
    _cleanup_engine_ struct softgpu *e = pool_and_other();
    submit(e, A, 0, 2 * MS, 0.5f, 0);
    submit(e, B, 0, 2 * MS, 0.5f, 0);
    control(e, A, SOFTGPU_SUSPEND, 0, 0);
    control(e, B, SOFTGPU_SUSPEND, 0, 0);
    control(e, A, SOFTGPU_RESUME, 0, 10 * MS);
    expect_nothing_until(e, 100 * MS);
    uint64_t end = control(e, B, SOFTGPU_RESUME, 0, 100 * MS) + BASE + RESTORE + 2 * MS - SUSPEND;
    expect(e, A, 0, end);
    expect(e, B, 0, end);
}

TEST(suspend_without_work)
{
    _cleanup_engine_ struct softgpu *e = pool_and_other();
    control(e, B, SOFTGPU_SUSPEND, 0, 0);
    submit(e, A, 0, 2 * MS, 0.5f, 1 * MS);
    expect(e, A, 1 * MS, 3 * MS);
    submit(e, A, 0, 2 * MS, 0.5f, 4 * MS);
    submit(e, B, 0, 1 * MS, 0.5f, 5 * MS); /* from here on nobody runs */
    expect_nothing_until(e, 100 * MS);
    uint64_t on = control(e, B, SOFTGPU_RESUME, 0, 100 * MS) + BASE + RESTORE / 2;
    expect(e, A, 4 * MS, on + 1 * MS);
    expect(e, B, on, on + 1 * MS);
}

TEST(one_timeslice)
{
    _cleanup_engine_ struct softgpu *e = pool_and_other();
    uint32_t n;
    control(e, B, SOFTGPU_TIMESLICE, 40000, 0);
    softgpu_advance(e, 1 * MS);
    assert_int_equal(info_of(e, A).timeslice_us, 40000);
    assert_int_equal(info_of(e, B).timeslice_us, 40000);
    assert_int_equal(info_of(e, OTHER).timeslice_us, 1000);
    assert_int_equal(softgpu_reserve(e, 4, 1), 0);
    assert_int_equal(softgpu_group_join(e, B, 1 * MS, &n), 0);
    assert_int_equal(info_of(e, n).timeslice_us, 40000);

    submit(e, A, 0, 50 * MS, 1, 2 * MS);
    submit(e, OTHER, 0, 100 * US, 1, 2 * MS);
    expect(e, OTHER, 42 * MS + BASE + SAVE, 42 * MS + BASE + SAVE + 100 * US);
}

/* One owner ends: what is its own goes, in mid-kernel, and what is the others' runs on. */
TEST(test_remove)
{
    _cleanup_engine_ struct softgpu *e = pool_and_other();
    struct softgpu_completion c;
    uint32_t n;
    submit(e, A, 0, 10 * MS, 0.5f, 0);
    submit(e, A, 0, 10 * MS, 0.5f, 0);
    submit(e, B, 0, 3 * MS, 0.5f, 0);
    submit(e, B, 1, 1 * MS, 1, 0); /* behind A's kernel, for want of room */
    submit(e, A, 2, 5 * MS, 1, 0);
    control(e, A, SOFTGPU_SUSPEND, 0, 2 * MS);
    assert_int_equal(softgpu_group_remove(e, A, 2 * MS + 100 * US), 0);
    assert_int_equal(softgpu_group_info(e, A, &(struct softgpu_group_info){0}), -EINVAL);
    assert_int_equal(softgpu_group_join(e, A, 0, &n), -EINVAL);
    expect(e, B, 0, 3 * MS);
    expect(e, B, 3 * MS, 4 * MS);
    assert_int_equal(softgpu_next_event_ns(e), SOFTGPU_NEVER);

    /* The one that made the group is gone, its number is another's, and the group goes on. */
    assert_int_equal(softgpu_group_join(e, B, 5 * MS, &n), 0);
    assert_int_equal(n, A);
    submit(e, A, 0, 1 * MS, 0.5f, 5 * MS);
    submit(e, B, 0, 1 * MS, 0.5f, 5 * MS);
    expect(e, A, 5 * MS, 6 * MS);
    expect(e, B, 5 * MS, 6 * MS);

    /* Completions that nobody took go with their owner. */
    submit(e, A, 0, 1 * MS, 0.5f, 7 * MS);
    submit(e, B, 0, 1 * MS, 0.5f, 7 * MS);
    softgpu_advance(e, 9 * MS);
    assert_int_equal(softgpu_group_remove(e, A, 9 * MS), 0);
    expect(e, B, 7 * MS, 8 * MS);
    assert_int_equal(softgpu_group_remove(e, B, 9 * MS), 0);
    assert_false(softgpu_pop_completion(e, &c));

    /* With the last one the group is gone: a new one has nothing of it. */
    assert_int_equal(softgpu_group_add(e, 9 * MS, &n), 0);
    assert_int_equal(info_of(e, n).busy_ns, 0);
    assert_int_equal(info_of(e, n).timeslice_us, 1000);
}

/* The one that keeps the group from running is gone. */
TEST(remove_suspended)
{
    _cleanup_engine_ struct softgpu *e = pool_and_other();
    submit(e, A, 0, 2 * MS, 0.5f, 0);
    submit(e, B, 0, 2 * MS, 0.25f, 0);
    control(e, A, SOFTGPU_SUSPEND, 0, 0);
    expect_nothing_until(e, 50 * MS);
    assert_int_equal(softgpu_group_remove(e, A, 50 * MS), 0);
    /* Restored is what is left. */
    expect(e, B, 0, 50 * MS + BASE + RESTORE / 4 + 2 * MS - SUSPEND);

    /* What was preempted is all gone: there is nothing to restore. */
    uint32_t n;
    assert_int_equal(softgpu_group_join(e, B, 60 * MS, &n), 0);
    submit(e, n, 0, 2 * MS, 0.5f, 60 * MS);
    control(e, n, SOFTGPU_SUSPEND, 0, 60 * MS);
    expect_nothing_until(e, 70 * MS);
    assert_int_equal(softgpu_group_remove(e, n, 70 * MS), 0);
    submit(e, B, 0, 1 * MS, 1, 70 * MS);
    expect(e, B, 70 * MS, 71 * MS);
}

/* More streams than the group has: some are shared, and each owner's keep their order. */
TEST(many_streams)
{
    _cleanup_engine_ struct softgpu *e = pool_and_other();
    uint64_t cookies[2][SOFTGPU_STREAMS] = {{0}};
    struct softgpu_completion c;
    unsigned completed = 0;
    for (unsigned i = 0; i < 3 * 2 * SOFTGPU_STREAMS; i++) {
        struct softgpu_kernel k = {i / 2 % SOFTGPU_STREAMS, 100 * US, 0.01f, 0, 0, 0, 0};
        k.cookie = i / (2 * SOFTGPU_STREAMS);
        assert_int_equal(softgpu_submit(e, i % 2 ? B : A, &k, 0), 0);
    }
    softgpu_advance(e, 600 * US); /* two owners a stream, three kernels each */
    for (; softgpu_pop_completion(e, &c); completed++)
        assert_int_equal(c.cookie, cookies[c.group][c.stream]++);
    assert_int_equal(completed, 3 * 2 * SOFTGPU_STREAMS);

    /* A stream that is shared loses one owner's kernels alone. */
    for (unsigned i = 0; i < SOFTGPU_STREAMS; i++) {
        submit(e, A, i, 1 * MS, 0.01f, 1 * MS);
        submit(e, B, i, 1 * MS, 0.01f, 1 * MS);
    }
    assert_int_equal(softgpu_group_remove(e, A, 1500 * US), 0);
    softgpu_advance(e, 3 * MS);
    for (completed = 0; softgpu_pop_completion(e, &c); completed++)
        assert_int_equal(c.group, B);
    assert_int_equal(completed, SOFTGPU_STREAMS);
    assert_int_equal(softgpu_next_event_ns(e), SOFTGPU_NEVER);
}

/* Of what waits the higher priority's begins first; what runs is not interrupted. */
TEST(test_priority)
{
    _cleanup_engine_ struct softgpu *e = pool_and_other();
    assert_int_equal(softgpu_client(e, B, 0, true), 0);
    for (uint32_t s = 0; s < 3; s++)
        submit(e, B, s, 300 * US, 1, 0);
    submit(e, A, 0, 50 * US, 1, 100 * US);
    expect(e, B, 0, 300 * US);
    expect(e, A, 300 * US, 350 * US);
    expect(e, B, 350 * US, 650 * US);
    expect(e, B, 650 * US, 950 * US);
}

/* Half of the SMs: a kernel takes twice as long, one at a time, and leaves room for others. */
TEST(limit)
{
    _cleanup_engine_ struct softgpu *e = pool_and_other();
    assert_int_equal(softgpu_client(e, B, 101, false), -EINVAL);
    assert_int_equal(softgpu_client(e, NUMBERS, 50, false), -EINVAL);
    assert_int_equal(softgpu_client(e, B, 50, false), 0);
    submit(e, B, 0, 300 * US, 1, 0);
    submit(e, B, 1, 100 * US, 0.5f, 0);
    submit(e, A, 0, 50 * US, 0.5f, 100 * US);
    submit(e, A, 0, 50 * US, 1, 100 * US);
    expect(e, A, 100 * US, 150 * US);
    expect(e, B, 0, 600 * US);
    expect(e, B, 600 * US, 700 * US); /* the older */
    expect(e, A, 700 * US, 750 * US);
}
