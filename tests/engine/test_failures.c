/* Controls that fail: what is tried again, what a job's view says of it, and that nobody stays
 * suspended. */
#include "fixture.h"

#include <errno.h>

ENGINE_TEST(test_failing_driver)
{
    f->d.fail_suspend = EIO;
    f->d.partial = true;
    programs(f, p, 3, 3);
    start(f, "priority", NULL);
    add(f, p[0], CLASS_LATENCY);
    add(f, p[1], CLASS_BATCH);
    uint32_t job = add(f, p[2], CLASS_BATCH);
    ticks(f, 50);
    int a = engine_job_status(f->m, job, &f->err);
    if (a == 0)
        a = engine_job_status(f->m, engine_job_of(f->m, p[1]), &f->err);
    assert_int_equal(a, -EIO);
    assert_string_equal(f->err.text, "mock suspend");
    /* A half-suspended job is in the journal and is resumed by whoever undoes. */
    assert_int_equal(suspended_groups(f), 1);
    f->d.fail_suspend = 0;
    assert_int_equal(engine_free(f->m, true), 0);
    journal_close(f->j);
    f->m = NULL;
    assert_int_equal(changed_groups(f), 0);

    /* A resume that fails is tried again until it works. */
    start(f, "priority", NULL);
    ticks(f, 100);
    assert_int_equal(suspended_groups(f), 4);
    f->d.partial = false;
    f->d.fail_resume = EIO;
    end(f, p[0]);
    ticks(f, 500);
    assert_int_equal(suspended_groups(f), 4);
    f->d.fail_resume = 0;
    ticks(f, 1500);
    assert_int_equal(suspended_groups(f), 0);

    /* No rights, failing scans: text, no harm. */
    f->d.fail_scan = EPERM;
    ticks(f, 3000);
    assert_int_equal(engine_job_status(f->m, engine_job_of(f->m, p[1]), &f->err), -EPERM);
    f->d.fail_scan = 0;
    f->d.fail_timeslice = EIO;
    pid_t lat = child(f);
    mock_context(&f->d, lat, 0, 0);
    add(f, lat, CLASS_LATENCY);
    ticks(f, 500);
    assert_int_equal(on(f, lat)->timeslice_us, 2048);
    f->d.fail_timeslice = 0;
    ticks(f, 2500);
    assert_int_equal(on(f, lat)->timeslice_us, 1000000);
}

/* A control that fails may have done what it was told; that is not the program's own doing. */
ENGINE_TEST(test_timeslice_set_and_failed)
{
    pid_t pid = child(f);
    start(f, "priority", NULL);
    ticks(f, 1000);
    assert_false(journal_incomplete(f->j) & JOURNAL_GROUPS_MISSING); /* or it would be looked for */
    mock_context(&f->d, pid, 0, 0);
    add(f, pid, CLASS_LATENCY);
    f->d.fail_timeslice = EIO;
    f->d.partial = true;
    ticks(f, 10);
    assert_int_equal(on(f, pid)->timeslice_us, 1000000);
    f->d.fail_timeslice = 0;
}

/* A job whose timeslice cannot be set has its turns all the same. */
ENGINE_TEST(test_turns_without_timeslices)
{
    f->d.fail_timeslice = EIO;
    three_jobs(f);
    count_turns(f, 3, 3000);
    assert_int_equal(f->ran[0], 300);
    assert_in_range(f->ran[1], 100, 200);
    assert_in_range(f->ran[2], 100, 200);
    assert_in_range(f->d.timeslice_calls, 3, 60); /* once a second for each group */
    f->d.fail_timeslice = 0;
}

/* A suspension that fails is tried again until it works, too: a person has been told "paused". */
ENGINE_TEST(test_suspension_is_tried_again)
{
    uint32_t job = one_job(f, CLASS_NORMAL, p);
    ticks(f, 100);
    f->d.fail_suspend = EMFILE;
    engine_pause(f->m, job, true, 0);
    ticks(f, 3000);
    assert_int_equal(suspended_groups(f), 0);
    assert_in_range(f->d.suspend_calls, 2, 5); /* once a second */
    f->d.fail_suspend = 0;
    ticks(f, 1500);
    assert_int_equal(suspended_groups(f), 4);
    f->d.suspend_calls = 0;
    ticks(f, 3000);
    assert_int_equal(f->d.suspend_calls, 0);
}

/* The program frees a channel while it is paused: RM refuses the list that is known, and the scan
 * after that finds another. What was to run has to be resumed by it. */
ENGINE_TEST(test_channels_change_while_resume_fails)
{
    uint32_t job = one_job(f, CLASS_NORMAL, p);
    ticks(f, 100);
    assert_int_equal(engine_pause(f->m, job, true, 0), 0);
    ticks(f, 500);
    struct mock_group *g = on(f, p[0]);
    assert_true(g->suspended);
    f->d.fail_resume = ENOENT;
    engine_pause(f->m, job, false, 0);
    g->dg.channels[--g->dg.nchannels] = 0;
    ticks(f, 1);
    assert_true(g->suspended);
    f->d.fail_resume = 0;
    ticks(f, 5000);
    assert_int_equal(suspended_groups(f), 0);
}
