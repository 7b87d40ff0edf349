/* Jobs that leave the GPU's memory and come back, on a driver without a device and with a swapper
 * that answers what the test says: what is resumed, recorded, scanned and shown, in which order,
 * and that whatever fails nobody stays half-way. */
#include "swapping.h"

ENGINE_TEST(test_out_and_in)
{
    swap_jobs(f, true, 1, p, j);
    assert_int_equal(on(f, p[0])->timeslice_us, 1);
    pause_job(f, j[0], true);
    assert_true(on(f, p[0])->suspended);

    /* It runs, with what it had, while it comes to rest. */
    assert_int_equal(engine_swap_out(f->m, j[0], 7, &f->err), 0);
    assert_int_equal(suspended_groups(f), 0);
    assert_int_equal(on(f, p[0])->timeslice_us, 2048);
    assert_int_equal(engine_swap_out(f->m, j[0], 7, &f->err), 0); /* who asks twice */
    ticks(f, 3000);
    assert_int_equal(suspended_groups(f), 0); /* nor is it looked at meanwhile */
    assert_int_equal(view(f, j[0]).groups, 0);
    assert_int_equal(record(f)->proc.pid, p[0]);
    assert_int_equal(record(f)->bytes[0], 3 * GIB);
    assert_int_equal(record(f)->by_user, 1);
    assert_int_equal(record(f)->uid, 7);
    assert_int_equal(record(f)->arrived, 0);
    assert_true(EVENTUALLY(ordered(f, "out", p[0])));
    mock_exit(&f->d, p[0]);
    answered(f, 0, j[0], "swapped");
    assert_int_equal(record(f)->arrived, 1);
    assert_int_equal(view(f, j[0]).swapped_bytes, 3 * GIB);
    assert_int_equal(view(f, j[0]).gpus, 1);

    ticks(f, 60000); /* nobody brings back what a person swapped out */
    assert_true(is(f, j[0], "swapped"));
    assert_int_equal(engine_swap_out(f->m, j[0], 8, &f->err), 0); /* is out already */
    assert_int_equal(view(f, j[0]).swap_uid, 8);

    /* Back it is what it was, in new groups: paused, then batch beside latency. */
    assert_int_equal(swap_in(engine_model(f->m), j[0]), 0);
    come(f, j[0], p[0]);
    assert_null(record(f));
    assert_true(EVENTUALLY(on(f, p[0])->suspended));
    pause_job(f, j[0], false);
    assert_int_equal(suspended_groups(f), 0);
    assert_int_equal(on(f, p[0])->timeslice_us, 1);
    assert_int_equal(swap_in(engine_model(f->m), j[0]), 0); /* is there already */
}

/* A program that has been out is not starting, even if it comes back with more than it had. */
ENGINE_TEST(test_back_is_no_start)
{
    swap_jobs(f, false, 1, p, j);
    engine_set_swap(f->m, &(struct swap_options){.mode = SWAP_MANUAL, .start_us = 300000000});
    FAILS(-EBUSY, "is starting on GPU 0", engine_swap_out(f->m, j[0], 0, &f->err));
    ticks(f, 21000);
    leave(f, j[0], p[0]);
    assert_int_equal(swap_in(engine_model(f->m), j[0]), 0);
    come(f, j[0], p[0]);
    on(f, p[0])->memory_bytes = 4 * GIB;
    ticks(f, 3000);
    sent_out(f, j[0], p[0], 0);
    answered(f, 0, j[0], "swapped");
    stop(f, false);
}

ENGINE_TEST(test_refused_runs_on)
{
    swap_jobs(f, true, 1, p, j);
    sent_out(f, j[0], p[0], 0);
    write_answer(f, ENOTSUP);
    brought_in(f, p[0], 0); /* it may have been half-way */
    assert_true(EVENTUALLY(is(f, j[0], "")));
    assert_true(EVENTUALLY(on(f, p[0])->timeslice_us == 1));
    assert_string_equal(view(f, j[0]).swap_error, "because the test says so");
    assert_null(record(f));
    assert_int_equal(swap_in(engine_model(f->m), j[0]), 0);
    assert_string_equal(view(f, j[0]).swap_error, "");

    /* Refusals that need no swapper. */
    f->d.fail_resume = EIO;
    pause_job(f, j[0], true);
    assert_int_equal(engine_swap_out(f->m, j[0], 0, &f->err), -EIO); /* suspended it cannot rest */
    f->d.fail_resume = 0;
    assert_int_equal(engine_pause(f->m, j[0], false, 0), 0);
    assert_true(EVENTUALLY(!suspended_groups(f)));
    stop_program(f, p[0]);
    FAILS(-EBUSY, "is stopped", engine_swap_out(f->m, j[0], 0, &f->err));
    kill(p[0], SIGCONT);
    mock_exit(&f->d, p[0]);
    assert_int_equal(engine_swap_out(f->m, j[0], 0, &f->err), -ENODEV);
    assert_null(record(f));
}

/* A job that an earlier ceded had suspended, of which no record is left, is to leave before the
 * survey of all programs has come to it, and does not. */
ENGINE_TEST(test_refused_without_records)
{
    programs(f, p, 2, 3);
    on(f, p[1])->suspended = 1;
    f->d.scan_ns = 200 * NSEC_PER_MSEC; /* the survey waits after the first program */
    swap_start(f);
    tick(f);
    f->d.scan_ns = 0;
    j[0] = add(f, p[1], CLASS_BATCH);
    tick(f);
    assert_int_equal(engine_swap_out(f->m, j[0], 0, &f->err), 0);
    assert_int_equal(suspended_groups(f), 0); /* or its work would not come to an end */
    assert_true(EVENTUALLY(ordered(f, "out", p[1])));
    ticks(f, 1000);
    assert_true(journal_incomplete(f->j) & JOURNAL_GROUPS_MISSING);
    on(f, p[1])->suspended = 1; /* as if only that swapper had found it */
    write_answer(f, ENOTSUP);
    brought_in(f, p[1], 0);
    assert_true(EVENTUALLY(is(f, j[0], "") && !suspended_groups(f)));
    assert_true(EVENTUALLY(!(journal_incomplete(f->j) & JOURNAL_GROUPS_MISSING)));
}

/* Until its work has come to rest a job runs as if it were in no class: not over and over. */
ENGINE_TEST(test_not_all_the_time)
{
    pid_t a;
    uint32_t job;
    swap_jobs(f, true, 2, p, j);
    a = p[0];
    job = j[0];
    for (int i = 0; i < 2; i++) { /* refused, and done */
        assert_int_equal(engine_swap_out(f->m, job, 7, &f->err), 0);
        ticks(f, 100);
        assert_false(on(f, a)->suspended);
        assert_int_equal(on(f, a)->timeslice_us, 2048);
        assert_true(EVENTUALLY(ordered(f, "out", a)));
        write_answer(f, i ? 0 : ETIMEDOUT);
        if (i) {
            assert_true(EVENTUALLY(is(f, job, "swapped")));
            assert_int_equal(swap_in(engine_model(f->m), job), 0);
        }
        moved(f, "in", a, job, "");
        assert_true(EVENTUALLY(on(f, a)->timeslice_us == 1));
        FAILS(-EBUSY, "again in ", engine_swap_out(f->m, job, 7, &f->err));
        assert_true(is(f, job, ""));
        ticks(f, 60000);
    }
    /* Sooner if its work ended soon: after ten times as long. */
    sent_out(f, job, a, 7);
    write_answer_when(f, 0, f->now + 20 * NSEC_PER_MSEC);
    assert_true(EVENTUALLY(is(f, job, "swapped")));
    const uint64_t out_ns = f->now;
    assert_int_equal(swap_in(engine_model(f->m), job), 0);
    moved(f, "in", a, job, "");
    assert_true(f->now < out_ns + 30 * NSEC_PER_SEC);
    ticks(f, 1000);
    sent_out(f, job, a, 7);
    answered(f, 0, job, "swapped");
    assert_int_equal(swap_in(engine_model(f->m), job), 0);
    moved(f, "in", a, job, "");
    sent_out(f, job, a, 0); /* root always */
    answered(f, 0, job, "swapped");
    stop(f, false);
}

/* A job of several processes: one swapper has the order for both, and both are on record until it
 * has answered. */
ENGINE_TEST(test_several_processes)
{
    pid_t both[2];
    uint32_t slot = 0, n = 0;
    parent_and_child(f, both);
    for (int i = 0; i < 2; i++) {
        mock_context(&f->d, both[i], 0, 1);
        on(f, both[i])->memory_bytes = 3 * GIB;
    }
    swap_start(f);
    uint32_t job = add(f, both[0], CLASS_BATCH);
    struct proc_stat st;
    stop_program(f, both[1]);
    FAILS(-EBUSY, "is stopped", engine_swap_out(f->m, job, 0, &f->err));
    kill(both[1], SIGCONT);
    assert_true(EVENTUALLY(proc_stat_read(both[1], &st) == 0 && st.state != 'T'));
    sent_out(f, job, -1, 0);
    for (; journal_swap_of(f->j, job, &slot); slot++)
        n++;
    assert_int_equal(n, 2);
    for (int i = 0; i < 2; i++)
        mock_exit(&f->d, both[i]);
    answered(f, 0, job, "swapped");
    assert_int_equal(view(f, job).swapped_bytes, 6 * GIB);
    assert_int_equal(swap_in(engine_model(f->m), job), 0);
    for (int i = 0; i < 2; i++)
        mock_context(&f->d, both[i], 0, 1);
    moved(f, "in", -1, job, "");
    assert_null(record(f));
    assert_true(EVENTUALLY(view(f, job).groups == 4));
}

/* Asked back on its way out, it turns round when it is there. */
ENGINE_TEST(test_called_back)
{
    swap_jobs(f, false, 1, p, j);
    sent_out(f, j[0], p[0], 0);
    assert_int_equal(swap_in(engine_model(f->m), j[0]), 0);
    assert_int_equal(engine_swap_out(f->m, j[0], 0, &f->err), 0);
    assert_int_equal(swap_in(engine_model(f->m), j[0]), 0);
    assert_true(is(f, j[0], "swapping-out"));
    mock_exit(&f->d, p[0]);
    write_answer(f, 0);
    come(f, j[0], p[0]);
    assert_null(record(f));
}

ENGINE_TEST(test_no_room)
{
    pid_t a;
    uint32_t job;
    swap_jobs(f, false, 2, p, j);
    a = p[0];
    job = j[0];
    leave(f, job, a);
    assert_int_equal(swap_in(engine_model(f->m), job), 0);
    assert_true(EVENTUALLY(ordered(f, "in", a)));
    assert_int_equal(engine_swap_out(f->m, j[1], 0, &f->err), -EBUSY); /* one at a time */
    answered(f, ENOMEM, job, "swapped");
    assert_string_equal(view(f, job).swap_error, "because the test says so");
    ticks(f, 60000);
    assert_false(ordered(f, "in", a)); /* not before it is asked again */
    assert_int_equal(swap_in(engine_model(f->m), job), 0);
    come(f, job, a);
    assert_string_equal(view(f, job).swap_error, "");
}

/* A swapper that is killed leaves the job anywhere: another one brings it in. */
ENGINE_TEST(test_killed_swapper)
{
    swap_jobs(f, false, 1, p, j);
    sent_out(f, j[0], p[0], 0);
    kill(record(f)->swapper.pid, SIGKILL);
    assert_true(EVENTUALLY(ordered(f, "in", p[0])));
    kill(record(f)->swapper.pid, SIGKILL);
    brought_in(f, p[0], EIO);
    moved(f, "in", p[0], j[0], "");
    assert_non_null(strstr(view(f, j[0]).swap_error, "was killed"));
    assert_null(record(f));
    assert_true(EVENTUALLY(view(f, j[0]).groups == 4));
}

ENGINE_TEST(test_job_dies_meanwhile)
{
    uint32_t cursor = 0;
    struct job_view v;
    swap_jobs(f, false, 2, p, j);
    leave(f, j[0], p[0]);
    sent_out(f, j[1], p[1], 0);
    end(f, p[0]);
    end(f, p[1]);
    ticks(f, 10);
    assert_null(record(f));
    write_answer(f, ESRCH);
    assert_true(EVENTUALLY((cursor = 0, !engine_next_job(f->m, &cursor, &v))));
    assert_null(record(f));
}

/* Whether a process that nothing is known of is out could not be found out for want of memory, the
 * first time: it is asked again, and runs. */
ENGINE_TEST(test_asked_again)
{
    uint32_t job = SLOT_NONE;
    pid_t pid;
    programs(f, &pid, 1, 3);
    swap_start(f);
    assert_int_equal(swap_adopt(engine_model(f->m), id_of(pid), false, &job, &f->err), 0);
    brought_in(f, pid, ENOMEM);
    brought_in(f, pid, EINVAL); /* it is on the GPU */
    assert_true(EVENTUALLY(is(f, job, "")));
    assert_int_equal(suspended_groups(f), 0);
}

ENGINE_TEST(test_takeover)
{
    swap_jobs(f, false, 2, p, j);
    leave(f, j[0], p[0]);
    sent_out(f, j[1], p[1], 0);
    crash(f);

    /* Who is out stays out; who was on the way is waited for, and brought in. */
    swap_start(f);
    ticks(f, 1000);
    assert_true(is(f, j[0], "swapped"));
    assert_int_equal(view(f, j[0]).swap_uid, 7);
    assert_true(is(f, j[1], "swapping-in"));
    assert_false(ordered(f, "in", p[1]));
    mock_exit(&f->d, p[1]);
    write_answer(f, 0); /* the earlier swapper's */
    come(f, j[1], p[1]);
    assert_true(is(f, j[0], "swapped"));

    /* One that leaves well brings back, and waits for it. */
    write_answer(f, 0);
    stop(f, true);
    assert_true(EVENTUALLY(ordered(f, "in", p[0])));
    f->j = journal_of(f);
    assert_null(record(f));
    journal_close(f->j);
}

/* A file in which changes may be missing says that a job is out, which an earlier holder has
 * brought in. */
ENGINE_TEST(test_takeover_unsure)
{
    swap_jobs(f, false, 1, p, j);
    leave(f, j[0], p[0]);
    journal_shared(f->j)->incomplete |= JOURNAL_SWAPS_MISSING;
    journal_store_shared(f->j);
    crash(f);
    swap_start(f);
    come(f, j[0], p[0]);
    assert_null(record(f));
    stop(f, false);
}

/* Users together leave room on record for what is swapped out for latency jobs. */
ENGINE_TEST(test_users_part)
{
    swap_jobs(f, false, 1, p, j);
    for (uint32_t i = 0; i < USERS_PART(JOURNAL_SWAPS); i++) {
        const struct journal_swap theirs = {.proc = {.pid = INT32_MAX - (pid_t)i},
                                            .by_user = true,
                                            .arrived = true,
                                            .uid = 7,
                                            .job = JOURNAL_JOBS - 1};
        journal_put_swap(f->j, i, &theirs);
    }
    FAILS(-ENOSPC, "192 processes", engine_swap_out(f->m, j[0], 7, &f->err));
    sent_out(f, j[0], p[0], 0);
    stop(f, false);
}

/* A job that takes too long to look at keeps nothing from a latency job that another one has. */
ENGINE_TEST(test_too_slow_to_look_at)
{
    uint32_t slow, quick, latency;
    const struct job_spec spec = {.terms = {.class = CLASS_BATCH, .weight = WEIGHT_DEFAULT},
                                  .source = JOB_SLURM,
                                  .slurm_job = 77,
                                  .name = "slurm-77"};
    programs(f, p, 9, 1);
    for (int i = 0; i < 9; i++)
        on(f, p[i])->memory_bytes = 4 * GIB;
    f->d.free_bytes = GIB;
    swap_start(f);
    for (int i = 0; i < 8; i++)
        slow = add_spec(f, p[i], &spec);
    quick = add(f, p[8], CLASS_BATCH);
    latency = add(f, child(f), CLASS_LATENCY);
    ticks(f, 3000);
    f->d.scan_ns = 200 * NSEC_PER_MSEC;
    assert_int_equal(engine_need(f->m, latency, 5 * GIB, 0, &f->err), 0);
    for (int i = 0; i < 20 && !ordered(f, "out", p[8]); i++) {
        f->now += NSEC_PER_SEC;
        tick(f);
    }
    f->d.scan_ns = 0;
    assert_true(is(f, quick, "swapping-out"));
    assert_true(is(f, slow, ""));
    stop(f, false);
}
