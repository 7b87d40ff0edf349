/* A driver that is not known: until it has been checked no program is looked at or steered, and
 * what the check did not see is not used afterwards. */
#include "fixture.h"

static unsigned calls(const struct fixture *f)
{
    return f->d.scans + f->d.timeslice_calls + f->d.suspend_calls + f->d.resume_calls +
           f->d.preempt_calls;
}

/* Jobs, and a program in no job, which a new journal makes the survey look at. */
static void test_held(void **state)
{
    struct fixture *f = *state;
    struct error err = {""};
    pid_t p[3];
    struct proc_stat st;
    programs(f, p, 3, 3);
    start(f, "priority", NULL);
    engine_hold(f->m, true);
    uint32_t latency = add(f, p[0], CLASS_LATENCY);
    add(f, p[1], CLASS_BATCH);
    ticks(f, 5000);
    assert_int_equal(engine_job_status(f->m, latency, &err), -EAGAIN);
    assert_non_null(strstr(err.text, "is being checked"));
    assert_int_equal(engine_swap_out(f->m, latency, 0, &err), -EAGAIN);
    assert_int_equal(proc_stat_read(p[2], &st), 0);
    assert_int_equal(engine_resume_unmanaged(f->m, st.id, &err), -EAGAIN);
    assert_int_equal(calls(f), 0);

    engine_hold(f->m, false);
    ticks(f, 100);
    assert_int_equal(engine_job_status(f->m, latency, &err), 0);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
    assert_true(f->d.resume_calls > 0); /* the survey's */
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

/* It ends while it is held: nothing is set on its way out, and the next one has the survey to do.
 */
static void test_ends_held(void **state)
{
    struct fixture *f = *state;
    pid_t p[2];
    programs(f, p, 2, 3);
    start(f, "priority", NULL);
    engine_hold(f->m, true);
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
static void test_taken_over(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    three_jobs(f, p);
    crash(f);
    assert_int_equal(suspended_groups(f), 4);
    start(f, "priority", NULL);
    engine_hold(f->m, true);
    ticks(f, 5000);
    assert_int_equal(changed_groups(f), 0);
    engine_hold(f->m, false);
    ticks(f, 100);
    assert_int_equal(suspended_groups(f), 4);
}

static void test_without_suspension(void **state)
{
    struct fixture *f = *state;
    struct error err = {""};
    pid_t p[3];
    uint32_t off;
    const char *why;
    programs(f, p, 3, 3);
    start(f, "priority", NULL);
    engine_withhold(f->m, 0, GPU_CAP_SUSPEND, "made-up");
    engine_withhold(f->m, 9, GPU_CAP_SUSPEND, "there is no such GPU");
    add(f, p[0], CLASS_LATENCY);
    uint32_t batch = add(f, p[1], CLASS_BATCH);
    add(f, p[2], CLASS_BATCH);
    assert_int_equal(engine_may_pause(f->m, batch, &err), -ENOTSUP);
    ticks(f, 500);
    assert_int_equal(f->d.suspend_calls, 0);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
    assert_true(on(f, p[0])->timeslice_us > 1);
    assert_int_equal(engine_may_pause(f->m, batch, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "GPU 0: made-up"));
    assert_false(engine_gpu_caps(f->m, 0, &off, &why) & GPU_CAP_SUSPEND);
    assert_int_equal(off, GPU_CAP_SUSPEND);
    assert_string_equal(why, "made-up");

    engine_withhold(f->m, 0, 0, "");
    ticks(f, 500);
    assert_int_equal(engine_may_pause(f->m, batch, &err), 0);
    assert_true(engine_gpu_caps(f->m, 0, &off, &why) & GPU_CAP_SUSPEND);
    assert_int_equal(suspended_groups(f), 4);
}

/* What is suspended already runs again. */
static void test_suspension_is_lost(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    three_jobs(f, p);
    engine_withhold(f->m, 0, GPU_CAP_SUSPEND, "made-up");
    ticks(f, 500);
    assert_int_equal(suspended_groups(f), 0);
}

static void test_without_timeslices(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_held),
        T(test_ends_held),
        T(test_taken_over),
        T(test_without_suspension),
        T(test_suspension_is_lost),
        T(test_without_timeslices),
    };
    return cmocka_run_group_tests_name("withhold", tests, NULL, NULL);
}
