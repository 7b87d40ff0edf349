/* A driver that is not known: until it has been checked no program is looked at or steered, and
 * what the check did not see is not used afterwards. */
#include "fixture.h"

static unsigned calls(const struct fixture *f)
{
    return f->d.scans + f->d.timeslice_calls + f->d.suspend_calls + f->d.resume_calls +
           f->d.preempt_calls;
}

/* Jobs, and a program in no job, which a new journal makes the survey look at. */
ENGINE_TEST(test_held)
{
    struct proc_stat st;
    programs(f, p, 3, 3);
    start(f, "priority", NULL);
    engine_quiesce(f->m, true);
    uint32_t latency = add(f, p[0], CLASS_LATENCY);
    add(f, p[1], CLASS_BATCH);
    ticks(f, 5000);
    FAILS(-EAGAIN, "is being checked", engine_job_status(f->m, latency, &f->err));
    assert_int_equal(engine_swap_out(f->m, latency, 0, &f->err), -EAGAIN);
    assert_int_equal(proc_stat_read(p[2], &st), 0);
    assert_int_equal(engine_resume_unmanaged(f->m, st.id, &f->err), -EAGAIN);
    assert_int_equal(calls(f), 0);

    engine_quiesce(f->m, false);
    ticks(f, 100);
    assert_int_equal(engine_job_status(f->m, latency, &f->err), 0);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
    assert_true(f->d.resume_calls > 0); /* the survey's */
}

/* It ends while it is held: nothing is set on its way out, and the next one has the survey to do.
 */
ENGINE_TEST(test_ends_held)
{
    programs(f, p, 2, 3);
    start(f, "priority", NULL);
    engine_quiesce(f->m, true);
    add(f, p[0], CLASS_BATCH);
    ticks(f, 100);
    stop(f, true);
    assert_int_equal(calls(f), 0);
    start(f, "priority", NULL);
    assert_true(journal_incomplete(f->j) & JOURNAL_GROUPS_MISSING);
    ticks(f, 100);
    assert_true(f->d.resume_calls > 0);
}

/* What another cede has set is undone, because its record says so, and nothing is set anew. */
ENGINE_TEST(test_taken_over)
{
    three_jobs(f);
    crash(f);
    assert_int_equal(suspended_groups(f), 4);
    start(f, "priority", NULL);
    engine_quiesce(f->m, true);
    ticks(f, 5000);
    assert_int_equal(changed_groups(f), 0);
    engine_quiesce(f->m, false);
    ticks(f, 100);
    assert_int_equal(suspended_groups(f), 4);
}

ENGINE_TEST(test_without_suspension)
{
    uint32_t off;
    const char *why;
    programs(f, p, 3, 3);
    start(f, "priority", NULL);
    engine_withhold(f->m, 0, GPU_CAP_SUSPEND, "made-up");
    engine_withhold(f->m, 9, GPU_CAP_SUSPEND, "there is no such GPU");
    add(f, p[0], CLASS_LATENCY);
    uint32_t batch = add(f, p[1], CLASS_BATCH);
    add(f, p[2], CLASS_BATCH);
    assert_int_equal(engine_may_pause(f->m, batch, &f->err), -ENOTSUP);
    ticks(f, 500);
    assert_int_equal(f->d.suspend_calls, 0);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
    assert_true(on(f, p[0])->timeslice_us > 1);
    FAILS(-ENOTSUP, "GPU 0: made-up", engine_may_pause(f->m, batch, &f->err));
    assert_false(engine_gpu_caps(f->m, 0, &off, &why) & GPU_CAP_SUSPEND);
    assert_int_equal(off, GPU_CAP_SUSPEND);
    assert_string_equal(why, "made-up");

    engine_withhold(f->m, 0, 0, "");
    ticks(f, 500);
    assert_int_equal(engine_may_pause(f->m, batch, &f->err), 0);
    assert_true(engine_gpu_caps(f->m, 0, &off, &why) & GPU_CAP_SUSPEND);
    assert_int_equal(suspended_groups(f), 4);
}

/* What is suspended already runs again. */
ENGINE_TEST(test_suspension_is_lost)
{
    three_jobs(f);
    engine_withhold(f->m, 0, GPU_CAP_SUSPEND, "made-up");
    ticks(f, 500);
    assert_int_equal(suspended_groups(f), 0);
}

ENGINE_TEST(test_without_timeslices)
{
    programs(f, p, 3, 3);
    start(f, "priority", NULL);
    engine_withhold(f->m, 0, GPU_CAP_TIMESLICE, "made-up");
    add(f, p[0], CLASS_LATENCY);
    add(f, p[1], CLASS_BATCH);
    add(f, p[2], CLASS_BATCH);
    ticks(f, 500);
    assert_int_equal(f->d.timeslice_calls, 0);
    assert_int_equal(suspended_groups(f), 4);
}
