/* Jobs of several processes leave a GPU and come back in one call. A call that fails half-way
 * leaves nobody suspended twice, or without a record, and a process that fails hinders no other. */
#include "fixture.h"

#include <errno.h>

#define N 10

static uint64_t controls(const struct fixture *f)
{
    uint64_t totals[3];
    engine_totals(f->m, totals);
    return totals[1];
}

/* A job whose N processes have a context of two groups each, and have been paused and resumed. */
static uint32_t job_of_many(struct fixture *f, pid_t p[N])
{
    p[0] = family(f, getuid(), N - 1, p + 1);
    start(f, "priority", NULL);
    ticks(f, 1000);
    assert_false(journal_incomplete(f->j) & JOURNAL_GROUPS_MISSING); /* or all are resumed first */
    for (int i = 0; i < N; i++)
        mock_context(&f->d, p[i], 0, 1);
    uint32_t j = add(f, p[0], CLASS_NORMAL);
    ticks(f, 3000);
    pause_job(f, j, true);
    assert_int_equal(suspended_groups(f), 2 * N);
    assert_int_equal(f->d.suspend_calls, N); /* each has to show first that it can be steered */
    pause_job(f, j, false);
    assert_int_equal(suspended_groups(f), 0);
    f->d.suspend_calls = f->d.resume_calls = 0;
    return j;
}

/* All are suspended, once each. */
static void assert_once(struct fixture *f, unsigned groups)
{
    assert_int_equal(suspended_groups(f), groups);
    for (size_t i = 0; i < MOCK_GROUPS; i++)
        assert_in_range(f->d.g[i].dg.proc.pid ? f->d.g[i].suspended : 0, 0, 1);
}

ENGINE_TEST(test_one_call)
{
    uint32_t job = job_of_many(f, p);
    uint64_t before = controls(f);
    pause_job(f, job, true);
    assert_once(f, 2 * N);
    pause_job(f, job, false);
    assert_int_equal(suspended_groups(f), 0);
    assert_int_equal(f->d.suspend_calls, 1);
    assert_int_equal(f->d.resume_calls, 1);
    assert_int_equal(controls(f) - before, 2);
}

/* Two jobs give way to a third, and come back, in one call each; on two GPUs in one call each. */
ENGINE_TEST(test_several_jobs)
{
    for (int i = 0; i < 4; i++) {
        p[i] = child(f);
        mock_context(&f->d, p[i], (unsigned)i / 2, 1);
    }
    start(f, "priority", NULL);
    for (int i = 0; i < 4; i++)
        j[i] = add(f, p[i], CLASS_NORMAL);
    ticks(f, 3000);
    for (int round = 0; round < 3; round++) {
        f->d.suspend_calls = f->d.resume_calls = 0;
        for (int i = 0; i < 4; i++)
            engine_pause(f->m, j[i], true, 0);
        ticks(f, 1);
        assert_once(f, 8);
        for (int i = 0; i < 4; i++)
            engine_pause(f->m, j[i], false, 0);
        ticks(f, 1);
    }
    assert_int_equal(f->d.suspend_calls, 2);
    assert_int_equal(f->d.resume_calls, 2);
}

/* The call fails when half of the groups are suspended, or resumed: then each process goes alone.
 */
ENGINE_TEST(test_fails_half_way)
{
    uint32_t job = job_of_many(f, p);
    f->d.fail_several = true;
    pause_job(f, job, true);
    assert_once(f, 2 * N);
    assert_int_equal(f->d.suspend_calls, 1 + N);
    assert_int_equal(engine_job_status(f->m, job, &f->err), 0);
    f->d.resume_calls = 0;
    pause_job(f, job, false);
    assert_int_equal(suspended_groups(f), 0);
    assert_int_equal(f->d.resume_calls, 1 + N);
    assert_int_equal(engine_job_status(f->m, job, &f->err), 0);
}

/* One process fails: its error is its own, it is tried again alone, and the others stay as they
 * are.
 */
ENGINE_TEST(test_one_fails)
{
    uint32_t job = job_of_many(f, p);
    f->d.fail_pid = p[N - 1];
    pause_job(f, job, true);
    assert_in_range(suspended_groups(f), 2 * N - 2, 2 * N);
    assert_int_equal(engine_job_status(f->m, job, &f->err), -EIO);
    f->d.suspend_calls = f->d.resume_calls = 0;
    ticks(f, 3000);
    assert_in_range(f->d.resume_calls, 2, 4); /* the suspension waits for it, once a second */
    assert_int_equal(f->d.suspend_calls, 0);
    f->d.fail_pid = 0;
    ticks(f, 1500);
    assert_once(f, 2 * N);
}

/* A process ends in mid-call, and its groups with it. */
ENGINE_TEST(test_one_ends)
{
    uint32_t job = job_of_many(f, p);
    engine_pause(f->m, job, true, 0);
    mock_exit(&f->d, p[3]); /* what the driver finds; that it has ended is not known yet */
    ticks(f, 1);
    assert_once(f, 2 * N - 2);
    kill(p[3], SIGKILL);
    ticks(f, 1500);
    engine_pause(f->m, job, false, 0);
    ticks(f, 1500);
    assert_int_equal(suspended_groups(f), 0);
}

/* The right to all is lost in mid-call: whom that has suspended stays on record. */
ENGINE_TEST(test_right_is_lost_half_way)
{
    uint32_t job = job_of_many(f, p);
    f->d.fail_several = true;
    f->d.fail_suspend = f->d.fail_resume = EPERM;
    pause_job(f, job, true);
    assert_once(f, N);
    assert_int_equal(engine_job_status(f->m, job, &f->err), -EPERM);
    f->d.fail_suspend = f->d.fail_resume = 0;
}

/* kill -9 of the daemon after a call that failed half-way, before or after others were tried. */
ENGINE_TEST(test_killed_half_way)
{
    uint32_t job = job_of_many(f, p);
    f->d.fail_several = true;
    f->d.fail_suspend = EIO;
    f->d.partial = true;
    pause_job(f, job, true);
    assert_in_range(suspended_groups(f), 1, 2 * N - 1);
    crash(f);
    f->d.fail_several = f->d.partial = false;
    f->d.fail_suspend = 0;
    start(f, "priority", NULL);
    ticks(f, 3000);
    assert_once(f, 2 * N);
}

/* A floor beside seven others, twice per second (plan/limits.h): one call suspends those that have
 * no turn in its window, one resumes them, and at both edges two groups that compute change their
 * timeslices. */
ENGINE_TEST(test_windows)
{
    struct job_terms t = {.class = CLASS_NORMAL, .weight = WEIGHT_DEFAULT, .gpu_min = 60};
    programs(f, p, 8, 3);
    start(f, "laxity", NULL);
    for (int i = 0; i < 8; i++)
        j[i] = add(f, p[i], CLASS_NORMAL);
    change(f, j[0], t);
    ticks(f, 5000);
    uint64_t before = controls(f);
    unsigned suspended = f->d.suspend_calls;
    ticks(f, 5000);
    assert_in_range(controls(f) - before, 5 * 10, 5 * 14);
    assert_in_range(f->d.suspend_calls - suspended, 5 * 2 - 1, 5 * 2 + 1);
}
