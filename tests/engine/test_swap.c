/* Jobs that leave the GPU's memory and come back, on a driver without a device and with a swapper
 * that answers what the test says: what is resumed, recorded, scanned and shown, in which order,
 * and that whatever fails nobody stays half-way. */
#include "swapping.h"

static void test_out_and_in(void **state)
{
    struct fixture *f = *state;
    pid_t a;
    uint32_t job;
    swap_jobs(f, true, 1, &a, &job);
    assert_int_equal(on(f, a)->timeslice_us, 1);
    assert_int_equal(engine_pause(f->m, job, true, 0), 0);
    ticks(f, 1);
    assert_true(on(f, a)->suspended);

    /* It runs, with what it had, while it comes to rest. */
    struct error err = {""};
    assert_int_equal(engine_swap_out(f->m, job, 7, &err), 0);
    assert_int_equal(suspended_groups(f), 0);
    assert_int_equal(on(f, a)->timeslice_us, 2048);
    ticks(f, 3000);
    assert_int_equal(suspended_groups(f), 0); /* nor is it looked at meanwhile */
    assert_int_equal(view(f, job).groups, 0);
    assert_int_equal(record(f)->proc.pid, a);
    assert_int_equal(record(f)->bytes[0], 3 * GIB);
    assert_int_equal(record(f)->by_user, 1);
    assert_int_equal(record(f)->uid, 7);
    assert_int_equal(record(f)->arrived, 0);
    assert_true(EVENTUALLY(ordered(f, "out", a)));
    mock_exit(&f->d, a);
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, job, "swapped")));
    assert_int_equal(record(f)->arrived, 1);
    assert_int_equal(view(f, job).swapped_bytes, 3 * GIB);
    assert_int_equal(view(f, job).gpus, 1);

    ticks(f, 60000); /* nobody brings back what a person swapped out */
    assert_true(is(f, job, "swapped"));
    assert_int_equal(engine_swap_out(f->m, job, 8, &err), 0); /* is out already */
    assert_int_equal(view(f, job).swap_uid, 8);

    /* Back it is what it was, in new groups: paused, then batch beside latency. */
    assert_int_equal(engine_swap_in(f->m, job), 0);
    come(f, job, a);
    assert_null(record(f));
    assert_true(EVENTUALLY(on(f, a)->suspended));
    assert_int_equal(engine_pause(f->m, job, false, 0), 0);
    ticks(f, 1);
    assert_int_equal(suspended_groups(f), 0);
    assert_int_equal(on(f, a)->timeslice_us, 1);
    assert_int_equal(engine_swap_in(f->m, job), 0); /* is there already */
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

static void test_refused_runs_on(void **state)
{
    struct fixture *f = *state;
    pid_t a;
    uint32_t job;
    struct error err = {""};
    struct proc_stat st;
    swap_jobs(f, true, 1, &a, &job);
    sent_out(f, job, a, 0);
    write_answer(f, ENOTSUP);
    brought_in(f, a, 0); /* it may have been half-way */
    assert_true(EVENTUALLY(is(f, job, "")));
    assert_true(EVENTUALLY(on(f, a)->timeslice_us == 1));
    assert_string_equal(view(f, job).swap_error, "because the test says so");
    assert_null(record(f));
    assert_int_equal(engine_swap_in(f->m, job), 0);
    assert_string_equal(view(f, job).swap_error, "");

    /* Refusals that need no swapper. */
    f->d.fail_resume = EIO;
    assert_int_equal(engine_pause(f->m, job, true, 0), 0);
    ticks(f, 1);
    assert_int_equal(engine_swap_out(f->m, job, 0, &err), -EIO); /* suspended it cannot rest */
    f->d.fail_resume = 0;
    assert_int_equal(engine_pause(f->m, job, false, 0), 0);
    assert_true(EVENTUALLY(!suspended_groups(f)));
    kill(a, SIGSTOP);
    assert_true(EVENTUALLY(proc_stat_read(a, &st) == 0 && st.state == 'T'));
    assert_int_equal(engine_swap_out(f->m, job, 0, &err), -EBUSY);
    assert_non_null(strstr(err.text, "is stopped"));
    kill(a, SIGCONT);
    mock_exit(&f->d, a);
    assert_int_equal(engine_swap_out(f->m, job, 0, &err), -ENODEV);
    assert_null(record(f));
    stop(f, true);
}

/* Until its work has come to rest a job runs as if it were in no class: not over and over. */
static void test_not_all_the_time(void **state)
{
    struct fixture *f = *state;
    pid_t p[2], a;
    uint32_t jobs[2], job;
    struct error err = {""};
    swap_jobs(f, true, 2, p, jobs);
    a = p[0];
    job = jobs[0];
    for (int i = 0; i < 2; i++) { /* refused, and done */
        assert_int_equal(engine_swap_out(f->m, job, 7, &err), 0);
        ticks(f, 100);
        assert_false(on(f, a)->suspended);
        assert_int_equal(on(f, a)->timeslice_us, 2048);
        assert_true(EVENTUALLY(ordered(f, "out", a)));
        write_answer(f, i ? 0 : ETIMEDOUT);
        if (i) {
            assert_true(EVENTUALLY(is(f, job, "swapped")));
            assert_int_equal(engine_swap_in(f->m, job), 0);
        }
        brought_in(f, a, 0);
        assert_true(EVENTUALLY(is(f, job, "")));
        assert_true(EVENTUALLY(on(f, a)->timeslice_us == 1));
        assert_int_equal(engine_swap_out(f->m, job, 7, &err), -EBUSY);
        assert_non_null(strstr(err.text, "again in "));
        assert_true(is(f, job, ""));
        ticks(f, 60000);
    }
    /* Sooner if its work ended soon: after ten times as long. */
    sent_out(f, job, a, 7);
    write_answer_when(f, 0, f->now + 20 * NSEC_PER_MSEC);
    assert_true(EVENTUALLY(is(f, job, "swapped")));
    const uint64_t out_ns = f->now;
    assert_int_equal(engine_swap_in(f->m, job), 0);
    brought_in(f, a, 0);
    assert_true(EVENTUALLY(is(f, job, "")));
    assert_true(f->now < out_ns + 30 * NSEC_PER_SEC);
    ticks(f, 1000);
    sent_out(f, job, a, 7);
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, job, "swapped")));
    assert_int_equal(engine_swap_in(f->m, job), 0);
    brought_in(f, a, 0);
    assert_true(EVENTUALLY(is(f, job, "")));
    sent_out(f, job, a, 0); /* root always */
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, job, "swapped")));
    stop(f, false);
}

/* A job of several processes: one swapper has the order for both, and both are on record until it
 * has answered. */
static void test_several_processes(void **state)
{
    struct fixture *f = *state;
    pid_t both[2];
    uint32_t slot = 0, n = 0;
    parent_and_child(f, both);
    for (int i = 0; i < 2; i++) {
        mock_context(&f->d, both[i], 0, 1);
        on(f, both[i])->memory_bytes = 3 * GIB;
    }
    swap_start(f);
    uint32_t job = add(f, both[0], CLASS_BATCH);
    struct error err = {""};
    struct proc_stat st;
    kill(both[1], SIGSTOP);
    assert_true(EVENTUALLY(proc_stat_read(both[1], &st) == 0 && st.state == 'T'));
    assert_int_equal(engine_swap_out(f->m, job, 0, &err), -EBUSY);
    assert_non_null(strstr(err.text, "is stopped"));
    kill(both[1], SIGCONT);
    assert_true(EVENTUALLY(proc_stat_read(both[1], &st) == 0 && st.state != 'T'));
    sent_out(f, job, -1, 0);
    for (; journal_swap_of(f->j, job, &slot); slot++)
        n++;
    assert_int_equal(n, 2);
    for (int i = 0; i < 2; i++)
        mock_exit(&f->d, both[i]);
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, job, "swapped")));
    assert_int_equal(view(f, job).swapped_bytes, 6 * GIB);
    assert_int_equal(engine_swap_in(f->m, job), 0);
    for (int i = 0; i < 2; i++)
        mock_context(&f->d, both[i], 0, 1);
    brought_in(f, -1, 0);
    assert_true(EVENTUALLY(is(f, job, "")));
    assert_null(record(f));
    assert_true(EVENTUALLY(view(f, job).groups == 4));
    stop(f, true);
}

/* Asked back on its way out, it turns round when it is there. */
static void test_called_back(void **state)
{
    struct fixture *f = *state;
    pid_t a;
    uint32_t job;
    struct error err = {""};
    swap_jobs(f, false, 1, &a, &job);
    sent_out(f, job, a, 0);
    assert_int_equal(engine_swap_in(f->m, job), 0);
    assert_int_equal(engine_swap_out(f->m, job, 0, &err), 0);
    assert_int_equal(engine_swap_in(f->m, job), 0);
    assert_true(is(f, job, "swapping-out"));
    mock_exit(&f->d, a);
    write_answer(f, 0);
    come(f, job, a);
    assert_null(record(f));
    stop(f, true);
}

static void test_no_room(void **state)
{
    struct fixture *f = *state;
    pid_t p[2], a;
    uint32_t jobs[2], job;
    struct error err = {""};
    swap_jobs(f, false, 2, p, jobs);
    a = p[0];
    job = jobs[0];
    leave(f, job, a);
    assert_int_equal(engine_swap_in(f->m, job), 0);
    assert_true(EVENTUALLY(ordered(f, "in", a)));
    assert_int_equal(engine_swap_out(f->m, jobs[1], 0, &err), -EBUSY); /* one at a time */
    write_answer(f, ENOMEM);
    assert_true(EVENTUALLY(is(f, job, "swapped")));
    assert_string_equal(view(f, job).swap_error, "because the test says so");
    ticks(f, 60000);
    assert_false(ordered(f, "in", a)); /* not before it is asked again */
    assert_int_equal(engine_swap_in(f->m, job), 0);
    come(f, job, a);
    assert_string_equal(view(f, job).swap_error, "");
    stop(f, true);
}

/* A swapper that is killed leaves the job anywhere: another one brings it in. */
static void test_killed_swapper(void **state)
{
    struct fixture *f = *state;
    pid_t a;
    uint32_t job;
    swap_jobs(f, false, 1, &a, &job);
    sent_out(f, job, a, 0);
    kill(record(f)->swapper.pid, SIGKILL);
    assert_true(EVENTUALLY(ordered(f, "in", a)));
    kill(record(f)->swapper.pid, SIGKILL);
    brought_in(f, a, EIO);
    brought_in(f, a, 0);
    assert_true(EVENTUALLY(is(f, job, "")));
    assert_non_null(strstr(view(f, job).swap_error, "was killed"));
    assert_null(record(f));
    assert_true(EVENTUALLY(view(f, job).groups == 4));
    stop(f, true);
}

static void test_job_dies_meanwhile(void **state)
{
    struct fixture *f = *state;
    pid_t p[2];
    uint32_t jobs[2], cursor = 0;
    struct job_view v;
    swap_jobs(f, false, 2, p, jobs);
    leave(f, jobs[0], p[0]);
    sent_out(f, jobs[1], p[1], 0);
    end(f, p[0]);
    end(f, p[1]);
    ticks(f, 10);
    assert_null(record(f));
    write_answer(f, ESRCH);
    assert_true(EVENTUALLY((cursor = 0, !engine_next_job(f->m, &cursor, &v))));
    assert_null(record(f));
    stop(f, true);
}

/* Whether a process that nothing is known of is out could not be found out for want of memory, the
 * first time: it is asked again, and runs. */
static void test_asked_again(void **state)
{
    struct fixture *f = *state;
    struct error err = {""};
    struct proc_stat st;
    uint32_t job = SLOT_NONE;
    pid_t pid;
    programs(f, &pid, 1, 3);
    swap_start(f);
    assert_int_equal(proc_stat_read(pid, &st), 0);
    assert_int_equal(engine_swap_in_process(f->m, st.id, &job, &err), 0);
    brought_in(f, pid, ENOMEM);
    brought_in(f, pid, EINVAL); /* it is on the GPU */
    assert_true(EVENTUALLY(is(f, job, "")));
    assert_int_equal(suspended_groups(f), 0);
}

static void test_takeover(void **state)
{
    struct fixture *f = *state;
    pid_t p[2];
    uint32_t jobs[2];
    struct error err = {""};
    swap_jobs(f, false, 2, p, jobs);
    leave(f, jobs[0], p[0]);
    sent_out(f, jobs[1], p[1], 0);
    crash(f);

    /* Who is out stays out; who was on the way is waited for, and brought in. */
    swap_start(f);
    ticks(f, 1000);
    assert_true(is(f, jobs[0], "swapped"));
    assert_int_equal(view(f, jobs[0]).swap_uid, 7);
    assert_true(is(f, jobs[1], "swapping-in"));
    assert_false(ordered(f, "in", p[1]));
    mock_exit(&f->d, p[1]);
    write_answer(f, 0); /* the earlier swapper's */
    come(f, jobs[1], p[1]);
    assert_true(is(f, jobs[0], "swapped"));

    /* One that leaves well brings back, and waits for it. */
    write_answer(f, 0);
    stop(f, true);
    assert_true(EVENTUALLY(ordered(f, "in", p[0])));
    assert_int_equal(journal_open(f->dir, 0, &f->j, &err), 0);
    assert_null(record(f));
    journal_close(f->j);
}

/* Users together leave room on record for what is swapped out for latency jobs. */
static void test_users_part(void **state)
{
    struct fixture *f = *state;
    pid_t a;
    uint32_t job;
    struct error err = {""};
    swap_jobs(f, false, 1, &a, &job);
    for (uint32_t i = 0; i < USERS_PART(JOURNAL_SWAPS); i++) {
        const struct journal_swap theirs = {.proc = {.pid = INT32_MAX - (pid_t)i},
                                            .by_user = true,
                                            .arrived = true,
                                            .uid = 7,
                                            .job = JOURNAL_JOBS - 1};
        journal_put_swap(f->j, i, &theirs);
    }
    assert_int_equal(engine_swap_out(f->m, job, 7, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "192 processes"));
    sent_out(f, job, a, 0);
    stop(f, false);
}

/* A job that takes too long to look at keeps nothing from a latency job that another one has. */
static void test_too_slow_to_look_at(void **state)
{
    struct fixture *f = *state;
    pid_t p[9];
    uint32_t slow, quick, latency;
    struct error err = {""};
    const struct job_spec spec = {.terms = {.class = CLASS_BATCH, .weight = WEIGHT_DEFAULT},
                                  .source = JOB_SLURM,
                                  .slurm_job = 77,
                                  .name = "slurm-77"};
    programs(f, p, 9, 1);
    for (int i = 0; i < 9; i++)
        on(f, p[i])->memory_bytes = 4 * GIB;
    f->d.free_bytes = GIB;
    swap_start(f);
    for (int i = 0; i < 8; i++) {
        struct proc_stat st;
        assert_int_equal(proc_stat_read(p[i], &st), 0);
        assert_int_equal(engine_add(f->m, st.id, &spec, &slow, &err), 0);
    }
    quick = add(f, p[8], CLASS_BATCH);
    latency = add(f, child(f), CLASS_LATENCY);
    ticks(f, 3000);
    f->d.scan_ns = 200 * NSEC_PER_MSEC;
    assert_int_equal(engine_need(f->m, latency, 5 * GIB, 0, &err), 0);
    for (int i = 0; i < 20 && !ordered(f, "out", p[8]); i++) {
        f->now += NSEC_PER_SEC;
        tick(f);
    }
    f->d.scan_ns = 0;
    assert_true(is(f, quick, "swapping-out"));
    assert_true(is(f, slow, ""));
    stop(f, false);
}

int main(int argc, char **argv)
{
    if (strcmp(argv[0], "cede-swap") == 0)
        return fake_swapper();
    const struct CMUnitTest tests[] = {
        T(test_called_back),      T(test_out_and_in),          T(test_refused_runs_on),
        T(test_not_all_the_time), T(test_several_processes),   T(test_no_room),
        T(test_killed_swapper),   T(test_job_dies_meanwhile),  T(test_takeover),
        T(test_asked_again),      T(test_too_slow_to_look_at), T(test_users_part),
    };
    (void)argc;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
