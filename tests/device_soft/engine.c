/* The rules of the software GPU's engine, one test each, in virtual time. */
#include "engine_rig.h"

/* A host that runs ahead: launches have their own times, in the order of their stream, and those
 * whose time has passed count as launched now. */
TEST(launch_times)
{
    _cleanup_engine_ struct softgpu *e = engine(1);
    static const uint64_t at_us[] = {30, 40, 35, 0};
    for (size_t i = 0; i < 4; i++) {
        struct softgpu_kernel k = {0, 4 * US, 1, i, 0, 0, at_us[i] * US};
        assert_int_equal(softgpu_submit(e, 0, &k, 10 * US), 0);
    }
    static const uint64_t submit_us[] = {30, 40, 35, 10}, start_us[] = {30, 40, 44, 48};
    for (size_t i = 0; i < 4; i++) {
        struct softgpu_completion c = next(e);
        assert_int_equal(c.cookie, i);
        assert_int_equal(c.submit_ns, submit_us[i] * US);
        assert_int_equal(c.start_ns, start_us[i] * US);
    }
}

TEST(alone)
{
    _cleanup_engine_ struct softgpu *e = engine(2);
    submit(e, 0, 0, 5 * MS, 1, 0); /* longer than its slice: nobody else, no switch */
    submit(e, 0, 0, 1 * MS, 1, 0);
    expect(e, 0, 0, 5 * MS);
    expect(e, 0, 5 * MS, 6 * MS);
    submit(e, 1, 0, 1 * MS, 1, 7 * MS); /* idle GPU: at once */
    expect(e, 1, 7 * MS, 8 * MS);
    assert_int_equal(info_of(e, 0).busy_ns, 6 * MS);
    assert_int_equal(softgpu_next_event_ns(e), SOFTGPU_NEVER);
}

/* Work that comes to an idle GPU has a whole slice before it, also if the group had the GPU before.
 */
TEST(fresh_slice)
{
    _cleanup_engine_ struct softgpu *e = engine(2);
    submit(e, 0, 0, 100 * US, 1, 0);
    expect(e, 0, 0, 100 * US);
    submit(e, 0, 0, 3 * MS, 1, 1500 * US);
    submit(e, 1, 0, 100 * US, 1, 1600 * US);
    expect(e, 1, 2500 * US + BASE + SAVE, 2600 * US + BASE + SAVE);
}

TEST(switch_when_idle)
{
    _cleanup_engine_ struct softgpu *e = engine(2);
    submit(e, 0, 0, 200 * US, 1, 0);
    submit(e, 1, 0, 100 * US, 1, 0);
    expect(e, 0, 0, 200 * US); /* its slice is not over, its work is */
    expect(e, 1, 200 * US + BASE, 300 * US + BASE);
}

TEST(preemption)
{
    _cleanup_engine_ struct softgpu *e = engine(2);
    submit(e, 0, 0, 3 * MS, 0.5f, 0);
    /* The slices of group 0 renewed unseen; the one that runs ends at 2 ms. */
    submit(e, 1, 0, 400 * US, 1, 1500 * US);
    uint64_t in = 2 * MS + BASE + SAVE / 2;
    expect(e, 1, in, in + 400 * US);
    expect(e, 0, 0, in + 400 * US + BASE + RESTORE / 2 + 1 * MS);
    assert_int_equal(info_of(e, 0).busy_ns, 3 * MS);
    assert_int_equal(info_of(e, 1).busy_ns, 400 * US);
}

TEST(test_turns)
{
    _cleanup_engine_ struct softgpu *e = engine(3);
    for (uint32_t g = 0; g < 3; g++)
        submit(e, g, 0, 1 * MS, 1, 0);
    /* In the order of the runlist; each ends exactly with its slice. */
    uint64_t t = 0;
    for (uint32_t g = 0; g < 3; g++) {
        expect(e, g, t, t + 1 * MS);
        t += 1 * MS + BASE;
    }
}

/* A request issued right after the last one ended finds the GPU on its way to the other group, and
 * waits for the whole of that one's slice. */
TEST(switch_completes)
{
    _cleanup_engine_ struct softgpu *e = engine(2);
    submit(e, 0, 0, 50 * MS, 1, 0);
    submit(e, 1, 0, 100 * US, 1, 0);
    struct softgpu_completion c = next(e);
    assert_int_equal(c.group, 1);
    submit(e, 1, 0, 100 * US, 1, c.end_ns + 1 * US);
    uint64_t back = c.end_ns + BASE + RESTORE;
    expect(e, 1, back + 1 * MS + BASE + SAVE, back + 1 * MS + BASE + SAVE + 100 * US);
}

TEST(test_streams)
{
    _cleanup_engine_ struct softgpu *e = engine(1);
    submit(e, 0, 0, 400 * US, 0.5f, 0);
    submit(e, 0, 1, 300 * US, 0.5f, 0);  /* at the same time */
    submit(e, 0, 2, 100 * US, 1, 0);     /* does not fit */
    submit(e, 0, 3, 100 * US, 0.25f, 0); /* would fit, but came later */
    submit(e, 0, 0, 100 * US, 0.1f, 0);  /* behind the first one of its stream */
    expect(e, 0, 0, 300 * US);
    expect(e, 0, 0, 400 * US);
    expect(e, 0, 400 * US, 500 * US);
    expect(e, 0, 500 * US, 600 * US); /* streams 3 and 0 together */
    expect(e, 0, 500 * US, 600 * US);
    assert_int_equal(info_of(e, 0).busy_ns, 600 * US);
}

/* "A spinning hold kernel on a second stream does not work while another group waits." */
TEST(other_streams_wait)
{
    _cleanup_engine_ struct softgpu *e = engine(2);
    submit(e, 0, 0, 600 * US, 0.1f, 0);
    submit(e, 1, 0, 100 * US, 1, 10 * US);
    submit(e, 0, 1, 50 * US, 0.1f, 20 * US); /* a stream that was empty: next turn */
    submit(e, 0, 0, 50 * US, 0.1f, 20 * US); /* same stream: this turn */
    expect(e, 0, 0, 600 * US);
    expect(e, 0, 600 * US, 650 * US);
    expect(e, 1, 650 * US + BASE, 750 * US + BASE);
    expect(e, 0, 750 * US + 2 * BASE, 800 * US + 2 * BASE);
}

TEST(timeslice)
{
    _cleanup_engine_ struct softgpu *e = engine(2);
    uint64_t done;
    assert_int_equal(control(e, 0, SOFTGPU_TIMESLICE, 40000, 0), 100 * US); /* idle GPU */
    submit(e, 0, 0, 20 * MS, 1, 1 * MS);
    submit(e, 1, 0, 100 * US, 1, 1 * MS);
    /* On running work: it takes effect at the end of the call, the slice is over by then. */
    done = control(e, 0, SOFTGPU_TIMESLICE, 1, 2 * MS);
    assert_int_equal(done, 2 * MS + 300 * US);
    expect(e, 1, done + BASE + SAVE, done + BASE + SAVE + 100 * US);

    assert_int_equal(softgpu_control(e, 0, SOFTGPU_TIMESLICE, 0, 3 * MS, &done), -EINVAL);
    assert_int_equal(
        softgpu_control(e, 0, SOFTGPU_TIMESLICE, SOFTGPU_TIMESLICE_MAX_US + 1, 3 * MS, &done),
        -EINVAL);
    assert_int_equal(softgpu_control(e, 2, SOFTGPU_TIMESLICE, 1, 3 * MS, &done), -EINVAL);
}

TEST(suspend)
{
    _cleanup_engine_ struct softgpu *e = engine(2);
    uint64_t done;
    struct softgpu_completion c;
    submit(e, 0, 0, 2 * MS, 1, 0);
    assert_int_equal(control(e, 0, SOFTGPU_SUSPEND, 0, 0), 600 * US);
    submit(e, 0, 0, 1 * MS, 1, 500 * US);
    /* While the switch-out lasts nobody gets the GPU. */
    submit(e, 1, 0, 100 * US, 1, 650 * US);
    expect(e, 1, 600 * US + BASE + SAVE, 700 * US + BASE + SAVE);
    softgpu_advance(e, 100 * MS);
    assert_false(softgpu_pop_completion(e, &c));
    assert_int_equal(info_of(e, 0).busy_ns, 600 * US);
    assert_int_equal(softgpu_next_event_ns(e), SOFTGPU_NEVER);

    control(e, 0, SOFTGPU_SUSPEND, 0, 100 * MS); /* counted: */
    done = control(e, 0, SOFTGPU_RESUME, 0, 101 * MS);
    softgpu_advance(e, done);
    assert_int_equal(softgpu_next_event_ns(e), SOFTGPU_NEVER);
    done = control(e, 0, SOFTGPU_RESUME, 0, done);
    uint64_t end = done + BASE + RESTORE + 1400 * US;
    expect(e, 0, 0, end);
    expect(e, 0, end, end + 1 * MS);
}

/* What runs ends first, nothing begins, and the switch is cheaper, both ways. */
TEST(test_block_ends)
{
    _cleanup_engine_ struct softgpu *e = engine(2);
    assert_int_equal(control(e, 0, SOFTGPU_PREEMPT, 1, 0), 700 * US);
    submit(e, 0, 0, 3 * MS, 1, 1 * MS);
    submit(e, 0, 0, 4 * MS, 1, 1 * MS);
    submit(e, 1, 0, 100 * US, 1, 2500 * US); /* from its slice's end, at 3 ms, on it is awaited */
    expect(e, 0, 1 * MS, 4 * MS);
    expect(e, 1, 4 * MS + 80 * US, 4 * MS + 180 * US);
    expect(e, 0, 4 * MS + 260 * US, 8 * MS + 260 * US);
    assert_true(info_of(e, 0).block_ends && !info_of(e, 0).reset);
    control(e, 0, SOFTGPU_PREEMPT, 0, 10 * MS);
    submit(e, 0, 0, 3 * MS, 1, 20 * MS);
    submit(e, 1, 0, 100 * US, 1, 20 * MS);
    expect(e, 1, 21 * MS + BASE + SAVE, 21 * MS + BASE + SAVE + 100 * US);
}

/* Alone it may take any time. A mode that is set while it is awaited does not save it. */
TEST(block_too_long)
{
    _cleanup_engine_ struct softgpu *e = engine(3);
    uint64_t done;
    control(e, 0, SOFTGPU_PREEMPT, 1, 0);
    submit(e, 0, 0, 12000 * MS, 1, 1 * MS);
    expect(e, 0, 1 * MS, 12001 * MS);
    submit(e, 0, 0, 12000 * MS, 1, 20000 * MS);
    submit(e, 1, 0, 100 * US, 1, 20000 * MS);
    control(e, 0, SOFTGPU_PREEMPT, 0, 21000 * MS);
    expect(e, 1, 25001 * MS + BASE + SAVE, 25001 * MS + BASE + SAVE + 100 * US);
    assert_true(info_of(e, 0).reset);
    softgpu_advance(e, 100000 * MS);
    assert_int_equal(softgpu_next_event_ns(e), SOFTGPU_NEVER);
    /* Suspending waits as well, and its number can be had again. */
    control(e, 1, SOFTGPU_PREEMPT, 1, 100000 * MS);
    submit(e, 1, 0, 12000 * MS, 1, 100001 * MS);
    done = control(e, 1, SOFTGPU_SUSPEND, 0, 100002 * MS);
    softgpu_advance(e, done + 4999 * MS);
    assert_false(info_of(e, 1).reset);
    softgpu_advance(e, done + 5000 * MS);
    assert_true(info_of(e, 1).reset);
    assert_int_equal(softgpu_group_remove(e, 1, 110000 * MS), 0);
    submit(e, 2, 0, 100 * US, 1, 110000 * MS);
    expect(e, 2, 110000 * MS, 110000 * MS + 100 * US);
}

/* Suspended while the GPU is being switched to it: the switch completes, it does not run. */
TEST(suspend_in_switch)
{
    _cleanup_engine_ struct softgpu *e = engine(3);
    uint64_t done;
    submit(e, 0, 0, 600 * US - 10 * US, 1, 0);
    submit(e, 1, 0, 100 * US, 1, 0);
    control(e, 1, SOFTGPU_SUSPEND, 0, 0);
    submit(e, 2, 0, 100 * US, 1, 0);
    expect(e, 0, 0, 590 * US);
    expect(e, 2, 590 * US + 2 * BASE, 690 * US + 2 * BASE);
    done = control(e, 1, SOFTGPU_RESUME, 0, 2 * MS);
    expect(e, 1, done, done + 100 * US);

    /* What was preempted still has to be restored when it may run again. */
    submit(e, 0, 0, 2 * MS, 1, 10 * MS);
    submit(e, 1, 0, 100 * US, 1, 10 * MS);
    uint64_t back = 11 * MS + BASE + SAVE + 100 * US;
    control(e, 0, SOFTGPU_SUSPEND, 0, back + 10 * US - plain.suspend_call_ns);
    expect(e, 1, back - 100 * US, back);
    submit(e, 2, 0, 100 * US, 1, back + 20 * US); /* and has not been saved a second time */
    expect(e, 2, back + 2 * BASE + RESTORE, back + 2 * BASE + RESTORE + 100 * US);
    done = control(e, 0, SOFTGPU_RESUME, 0, 20 * MS);
    expect(e, 0, 10 * MS, done + BASE + RESTORE + 1 * MS);
}

TEST(test_remove)
{
    _cleanup_engine_ struct softgpu *e = engine(3);
    struct softgpu_completion c;
    uint32_t g;
    submit(e, 0, 0, 100 * US, 1, 0);
    submit(e, 0, 0, 10 * MS, 1, 0);
    submit(e, 1, 0, 100 * US, 1, 500 * US);
    control(e, 0, SOFTGPU_SUSPEND, 0, 500 * US);
    assert_int_equal(softgpu_group_remove(e, 0, 600 * US), 0);
    expect(e, 1, 600 * US + BASE, 700 * US + BASE); /* nothing to save, and no completion of 0 */
    assert_int_equal(softgpu_group_remove(e, 0, 0), -EINVAL);

    /* The number is used again, without anything of its former owner's. */
    assert_int_equal(softgpu_group_add(e, 1 * MS, &g), 0);
    assert_int_equal(g, 0);
    submit(e, 0, 0, 100 * US, 1, 2 * MS);
    expect(e, 0, 2 * MS, 2 * MS + 100 * US);

    /* Target of a switch under way. */
    submit(e, 0, 0, 100 * US, 1, 5 * MS);
    submit(e, 1, 0, 100 * US, 1, 5 * MS);
    submit(e, 2, 0, 100 * US, 1, 5 * MS);
    assert_int_equal(softgpu_group_remove(e, 1, 5 * MS + 150 * US), 0);
    expect(e, 0, 5 * MS, 5 * MS + 100 * US);
    expect(e, 2, 5 * MS + 100 * US + BASE, 5 * MS + 200 * US + BASE);
    assert_false(softgpu_pop_completion(e, &c));
}

TEST(host_overhead)
{
    struct softgpu *e;
    struct softgpu_params p = plain;
    uint32_t g;
    p.launch_ns = 25 * US;
    p.launch_warm_ns = 10 * US;
    p.warm_ns = 1 * MS;
    assert_int_equal(softgpu_new(&p, 1, 4, &e), 0);
    assert_int_equal(softgpu_group_add(e, 0, &g), 0);
    submit(e, 0, 0, 100 * US, 1, 0);
    expect(e, 0, 25 * US, 125 * US);
    submit(e, 0, 0, 100 * US, 1, 500 * US);
    expect(e, 0, 510 * US, 610 * US);
    submit(e, 0, 0, 100 * US, 1, 2 * MS);
    submit(e, 0, 0, 100 * US, 1, 2 * MS); /* warm, but a stream keeps its order */
    expect(e, 0, 2025 * US, 2125 * US);
    expect(e, 0, 2125 * US, 2225 * US);
    submit(e, 0, 0, 100 * US, 0.5f, 4 * MS);
    submit(e, 0, 1, 100 * US, 0.5f, 4 * MS); /* other streams do not wait for it */
    expect(e, 0, 4010 * US, 4110 * US);
    expect(e, 0, 4025 * US, 4125 * US);
    softgpu_free(e);
}

TEST(limits)
{
    struct softgpu *e;
    uint32_t g;
    uint64_t done;
    static const struct softgpu_kernel bad[] = {
        {SOFTGPU_STREAMS, 1000, 1, 0, 0, 0, 0},
        {0, 0, 1, 0, 0, 0, 0},
        {0, UINT64_MAX, 1, 0, 0, 0, 0},
        {0, 1000, 0, 0, 0, 0, 0},
        {0, 1000, -1, 0, 0, 0, 0},
        {0, 1000, 1.01f, 0, 0, 0, 0},
        {0, 1000, __builtin_nanf(""), 0, 0, 0, 0},
        {0, 1000, 1, 0, 0, 0, UINT64_MAX},
    };
    assert_int_equal(softgpu_new(&plain, 0, 1, &e), -EINVAL);
    assert_int_equal(softgpu_new(&plain, 1, 0, &e), -EINVAL);
    assert_int_equal(softgpu_new(&plain, 1, 2, &e), 0);
    assert_int_equal(softgpu_group_add(e, 0, &g), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(softgpu_submit(e, g, &bad[i], 0), -EINVAL);
    struct softgpu_kernel k = {0, 1000, 1, 7, 0, 0, 0};
    assert_int_equal(softgpu_submit(e, g + 1, &k, 0), -EINVAL);
    assert_int_equal(softgpu_submit(e, g, &k, 0), 0);
    assert_int_equal(softgpu_submit(e, g, &k, 0), 0);
    assert_int_equal(softgpu_submit(e, g, &k, 0), -ENOSPC);
    /* Growing in the middle of things changes nothing else. */
    assert_int_equal(softgpu_reserve(e, 200, 3), 0);
    assert_int_equal(softgpu_submit(e, g, &k, 0), 0);
    for (uint64_t i = 0; i < 3; i++) {
        struct softgpu_completion c = next(e);
        assert_int_equal(c.cookie, 7);
        assert_int_equal(c.end_ns, (i + 1) * 1000);
    }
    for (uint32_t i = 1; i < 200; i++)
        assert_int_equal(softgpu_group_add(e, 0, &g), 0);
    assert_int_equal(softgpu_group_add(e, 0, &g), -ENOSPC);

    /* Pending controls are bounded and do not take the room of kernels. */
    int r = 0, n = 0;
    while ((r = softgpu_control(e, 5, SOFTGPU_SUSPEND, 0, 0, &done)) == 0)
        n++;
    assert_int_equal(r, -ENOSPC);
    assert_true(n >= 256);
    for (int i = 0; i < 3; i++)
        assert_int_equal(softgpu_submit(e, 0, &k, 0), 0);
    assert_int_equal(softgpu_group_remove(e, 5, 0), 0);
    done = control(e, 6, SOFTGPU_SUSPEND, 0, 0);
    softgpu_free(e);
}

/* 1,000 groups with work all the time take turns fairly. */
TEST(many_groups)
{
    enum { N = 1000 };
    _cleanup_engine_ struct softgpu *e = engine(N);
    struct softgpu_completion c;
    for (uint32_t g = 0; g < N; g++) {
        submit(e, g, 0, 300 * US, 1, 0);
        submit(e, g, 0, 300 * US, 1, 0);
    }
    /* A turn of everybody takes 1.12 s. */
    for (uint64_t t; (t = softgpu_next_event_ns(e)) < 23 * 1000 * MS;) {
        softgpu_advance(e, t);
        while (softgpu_pop_completion(e, &c))
            submit(e, c.group, 0, 300 * US, 1, t);
    }
    for (uint32_t g = 0; g < N; g++) {
        assert_true(info_of(e, g).busy_ns >= 20 * MS);
        assert_true(info_of(e, g).busy_ns <= 21 * MS);
    }
}
