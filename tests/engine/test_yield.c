/* Jobs that yield and acquire, with a swapper that answers what the test says: what is on record at
 * each moment, who comes back first, and what a new engine does about it. */
#include "swapping.h"

static int yield_memory(struct fixture *f, uint32_t job, uid_t by, struct error *err)
{
    return engine_yield(f->m, job, YIELD_CLASS | YIELD_MEMORY, by, by == 0, err);
}

static void yielded(struct fixture *f, uint32_t job, pid_t pid)
{
    struct error err = {""};
    assert_int_equal(yield_memory(f, job, 7, &err), 0);
    assert_true(EVENTUALLY(ordered(f, "out", pid)));
    assert_int_equal(yield_outcome(engine_model(f->m), job, &err), -EINPROGRESS);
    write_answer(f, 0);
    assert_true(EVENTUALLY(yield_outcome(engine_model(f->m), job, &err) == 0));
    assert_true(is(f, job, "swapped"));
}

ENGINE_TEST(test_back_as_it_was)
{
    swap_jobs(f, false, 1, p, j);
    change(
        f, j[0],
        (struct job_terms){.class = CLASS_LATENCY, .weight = 70, .budget_us = 900, .gpu_max = 50});
    yielded(f, j[0], p[0]);
    struct journal_job rec = view(f, j[0]).job;
    assert_true(rec.class == CLASS_BATCH && rec.budget_us == 0 && rec.weight == 70);
    assert_int_equal(rec.yielded, YIELD_CLASS | YIELD_MEMORY);
    assert_int_equal(rec.yielded_by, 7);
    assert_int_equal(engine_yield(f->m, j[0], YIELD_CLASS | YIELD_PAUSE, 7, false, &f->err), 0);
    ticks(f, 60000); /* nobody else brings it back */
    assert_true(is(f, j[0], "swapped"));
    f->d.free_bytes = 4 * GIB;
    yield_acquire(engine_model(f->m), j[0], 100 * NSEC_PER_MSEC);
    ticks(f, 1);
    assert_true(EVENTUALLY(ordered(f, "in", p[0])));
    rec = view(f, j[0]).job;
    assert_true(rec.class == CLASS_BATCH && rec.paused); /* until its memory is there */
    yield_acquire(engine_model(f->m), j[0], 5 * NSEC_PER_SEC);
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, j[0], "") && !view(f, j[0]).job.yielded));
    rec = view(f, j[0]).job;
    assert_true(rec.class == CLASS_LATENCY && rec.budget_us == 900 && !rec.paused);
    assert_true(rec.weight == 70 && rec.gpu_max == 50);
    yield_acquire(engine_model(f->m), j[0], 0); /* has all */
    ticks(f, 1);
    assert_int_equal(view(f, j[0]).job.class, CLASS_LATENCY);
}

/* A job that was swapped out by hand has its class back at once, and its memory once the user who
 * swapped it out has yielded it. */
ENGINE_TEST(test_out_by_hand)
{
    swap_jobs(f, false, 1, p, j);
    change_class(f, j[0], CLASS_NORMAL);
    leave(f, j[0], p[0]);
    f->d.free_bytes = 4 * GIB;
    assert_int_equal(yield_memory(f, j[0], 8, &f->err), 0); /* that one may not bring it in */
    assert_int_equal(view(f, j[0]).job.yielded, YIELD_CLASS);
    yield_acquire(engine_model(f->m), j[0], 5 * NSEC_PER_SEC);
    ticks(f, 1000);
    assert_true(is(f, j[0], "swapped") && !view(f, j[0]).job.yielded);
    assert_int_equal(view(f, j[0]).job.class, CLASS_NORMAL);
    assert_int_equal(yield_memory(f, j[0], 7, &f->err), 0);
    assert_int_equal(view(f, j[0]).job.yielded, YIELD_CLASS | YIELD_MEMORY);
    assert_int_equal(yield_outcome(engine_model(f->m), j[0], &f->err), 0);
    yield_acquire(engine_model(f->m), j[0], 5 * NSEC_PER_SEC);
    come(f, j[0], p[0]);
    ticks(f, 1);
    assert_true(!view(f, j[0]).job.yielded && view(f, j[0]).job.class == CLASS_NORMAL);
}

/* What did not leave has not yielded. */
ENGINE_TEST(test_refused)
{
    swap_jobs(f, false, 1, p, j);
    change_class(f, j[0], CLASS_NORMAL);
    kill(p[0], SIGSTOP);
    struct proc_stat st;
    assert_true(EVENTUALLY(proc_stat_read(p[0], &st) == 0 && st.state == 'T'));
    assert_int_equal(yield_memory(f, j[0], 0, &f->err), -EBUSY);
    kill(p[0], SIGCONT);
    assert_int_equal(view(f, j[0]).job.yielded, 0);
    assert_int_equal(yield_memory(f, j[0], 0, &f->err), 0);
    assert_true(EVENTUALLY(ordered(f, "out", p[0])));
    write_answer(f, ENOMEM);
    moved(f, "in", p[0], j[0], "");
    ticks(f, 1);
    assert_int_equal(yield_outcome(engine_model(f->m), j[0], &f->err), -ENOMEM);
    assert_string_equal(f->err.text, "because the test says so");
    assert_true(view(f, j[0]).job.class == CLASS_NORMAL && !view(f, j[0]).job.yielded);
}

/* The first that asked comes first, and only while somebody asks. */
static void in_line(struct fixture *f, const pid_t *p, const uint32_t *jobs, int first)
{
    const int second = !first;
    f->d.free_bytes = GIB;
    yield_acquire(engine_model(f->m), jobs[second], NSEC_PER_SEC);
    ticks(f, 2000); /* that one's caller has gone */
    for (int i = 0; i < 40; i++) {
        yield_acquire(engine_model(f->m), jobs[first], 5 * NSEC_PER_SEC);
        ticks(f, 1);
        yield_acquire(engine_model(f->m), jobs[second], 5 * NSEC_PER_SEC);
        ticks(f, 100);
    }
    assert_true(is(f, jobs[0], "swapped") && is(f, jobs[1], "swapped"));
    f->d.free_bytes = 4 * GIB; /* for one */
    ticks(f, 100);
    assert_true(is(f, jobs[second], "swapped") && is(f, jobs[first], "swapping-in"));
    assert_true(EVENTUALLY(ordered(f, "in", p[first])));
    f->d.free_bytes = GIB;
    answered(f, 0, jobs[first], "");
    ticks(f, 20000);
    f->d.free_bytes = 4 * GIB;
    ticks(f, 1000);
    assert_true(is(f, jobs[second], "swapped")); /* nobody asks any more */
}

ENGINE_TEST(test_in_line)
{
    swap_jobs(f, false, 2, p, j);
    for (int i = 0; i < 2; i++)
        yielded(f, j[i], p[i]);
    in_line(f, p, j, 1);
    assert_int_equal(engine_yield(f->m, j[1], YIELD_CLASS | YIELD_MEMORY, 0, true, &f->err), 0);
    moved(f, "out", p[1], j[1], "swapped");
    in_line(f, p, j, 0);
    stop(f, false);
}

/* The restorer of an engine that was killed has brought in what was yielded: it goes again when the
 * other one lacks the room. */
ENGINE_TEST(test_again)
{
    swap_jobs(f, false, 2, p, j);
    for (int i = 0; i < 2; i++) {
        yielded(f, j[i], p[i]);
        mock_exit(&f->d, p[i]);
    }
    crash(f);
    f->j = journal_of(f);
    for (uint32_t i = 0; i < JOURNAL_SWAPS; i++) {
        if (journal_swap(f->j, i) && journal_swap(f->j, i)->proc.pid == p[0])
            journal_put_swap(f->j, i, NULL);
    }
    journal_close(f->j);
    mock_context(&f->d, p[0], 0, 3);
    on(f, p[0])->memory_bytes = 3 * GIB;
    swap_start(f);
    ticks(f, 60000);
    assert_true(is(f, j[0], "") && is(f, j[1], "swapped"));
    assert_int_equal(view(f, j[0]).job.yielded, YIELD_CLASS | YIELD_MEMORY);
    f->d.free_bytes = GIB;
    /* What keeps it is seen of the job. */
    stop_program(f, p[0]);
    yield_acquire(engine_model(f->m), j[1], 15 * NSEC_PER_SEC);
    ticks(f, 10000);
    assert_non_null(strstr(view(f, j[0]).error, "is stopped"));
    kill(p[0], SIGCONT);
    ticks(f, 1000);
    assert_true(EVENTUALLY(ordered(f, "out", p[0])));
    mock_exit(&f->d, p[0]);
    f->d.free_bytes = 4 * GIB;
    answered(f, 0, j[0], "swapped");
    yield_acquire(engine_model(f->m), j[1], 5 * NSEC_PER_SEC);
    come(f, j[1], p[1]);
    ticks(f, 1);
    assert_int_equal(view(f, j[1]).job.yielded, 0);
    assert_int_equal(view(f, j[0]).job.yielded, YIELD_CLASS | YIELD_MEMORY);
    stop(f, false);
}

/* ---- what a user may not gain ---- */

/* A yield that fails takes back what came with it, and not what an administrator had yielded. */
ENGINE_TEST(test_failing_gives_nothing)
{
    swap_jobs(f, false, 1, p, j);
    change_class(f, j[0], CLASS_LATENCY);
    assert_int_equal(engine_yield(f->m, j[0], YIELD_CLASS, 0, true, &f->err), 0);
    ticks(f, 1);
    assert_int_equal(engine_yield(f->m, j[0], YIELD_CLASS | YIELD_PAUSE, 7, false, &f->err), 0);
    assert_int_equal(yield_memory(f, j[0], 7, &f->err), 0);
    assert_true(EVENTUALLY(ordered(f, "out", p[0])));
    write_answer(f, ETIMEDOUT);
    moved(f, "in", p[0], j[0], "");
    ticks(f, 1);
    const struct journal_job rec = view(f, j[0]).job;
    assert_true(rec.class == CLASS_BATCH && rec.yielded == (YIELD_CLASS | YIELD_PAUSE));
    assert_true(rec.paused && rec.yielded_by == 0);
}

/* What an administrator has yielded stays so, though its user had paused and moved it before. */
ENGINE_TEST(test_over_a_user)
{
    swap_jobs(f, false, 1, p, j);
    assert_int_equal(engine_pause(f->m, j[0], true, 7), 0);
    leave(f, j[0], p[0]);
    assert_int_equal(
        engine_yield(f->m, j[0], YIELD_CLASS | YIELD_PAUSE | YIELD_MEMORY, 0, true, &f->err), 0);
    ticks(f, 1);
    assert_int_equal(view(f, j[0]).job.paused_by, 0);
    assert_int_equal(view(f, j[0]).swap_uid, 0);
    f->d.free_bytes = 4 * GIB;
    yield_acquire(engine_model(f->m), j[0], 5 * NSEC_PER_SEC);
    come(f, j[0], p[0]);
    ticks(f, 1);
    assert_true(!view(f, j[0]).job.paused && !view(f, j[0]).job.yielded);
}

/* A job whose programs take long to look at is looked at for no longer than others can wait. */
ENGINE_TEST(test_slow_to_look_at)
{
    uint32_t job;
    programs(f, p, 8, 1);
    swap_start(f);
    const struct job_spec spec = {.terms = {.class = CLASS_BATCH, .weight = WEIGHT_DEFAULT},
                                  .source = JOB_SLURM,
                                  .slurm_job = 77,
                                  .name = "slurm-77"};
    for (int i = 0; i < 8; i++)
        job = add_spec(f, p[i], &spec);
    ticks(f, 3000);
    assert_int_equal(view(f, job).processes, 8);
    f->d.scan_ns = 400 * NSEC_PER_MSEC;
    const unsigned before = f->d.scans;
    assert_int_equal(yield_memory(f, job, 7, &f->err), -EAGAIN);
    assert_in_range(f->d.scans - before, 1, 7);
    f->d.scan_ns = 0;
}

/* ---- the line ---- */

/* Jobs that are asked in again and again, and find no room, hold up none that asked before. */
ENGINE_TEST(test_asked_in_without_end)
{
    bool came = false;
    swap_jobs(f, false, 3, p, j);
    for (int i = 0; i < 3; i++)
        yielded(f, j[i], p[i]);
    f->d.free_bytes = 4 * GIB;
    assert_int_equal(swap_in(engine_model(f->m), j[0]), 0);
    assert_true(EVENTUALLY(ordered(f, "in", p[0])));
    for (int i = 0; i < 40 && !came; i++) {
        write_answer(f, ENOMEM);
        for (int k = 0; k < 5000; k++) {
            yield_acquire(engine_model(f->m), j[2], 5 * NSEC_PER_SEC);
            for (int a = 0; a < 2; a++)
                swap_in(engine_model(f->m), j[a]);
            ticks(f, 1);
            if ((came = ordered(f, "in", p[2])) || ordered(f, "in", p[0]) || ordered(f, "in", p[1]))
                break;
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
    }
    assert_true(came);
    answered(f, 0, j[2], "");
    stop(f, false);
}

/* A job whose user stops it on its way holds up no other one, and comes when it is continued. */
ENGINE_TEST(test_stopped)
{
    swap_jobs(f, false, 3, p, j);
    for (int i = 0; i < 3; i++)
        yielded(f, j[i], p[i]);
    f->d.free_bytes = 4 * GIB;
    assert_int_equal(swap_in(engine_model(f->m), j[0]), 0);
    assert_true(EVENTUALLY(ordered(f, "in", p[0]))); /* and does not answer */
    stop_program(f, p[0]);
    for (int i = 1; i < 3; i++) {
        for (int k = 0; k < 15; k++) {
            yield_acquire(engine_model(f->m), j[i], 5 * NSEC_PER_SEC);
            ticks(f, 4000);
        }
        moved(f, "in", p[i], j[i], "");
    }
    assert_true(is(f, j[0], "swapping-in"));
    kill(p[0], SIGCONT);
    ticks(f, 2000);
    come(f, j[0], p[0]);

    yielded(f, j[0], p[0]);
    stop_program(f, p[0]);
    assert_int_equal(swap_in(engine_model(f->m), j[0]), 0);
    ticks(f, 100);
    assert_true(is(f, j[0], "swapped"));
    assert_non_null(strstr(view(f, j[0]).swap_error, "is stopped"));
    stop(f, false);
}

/* Jobs that begin to start without end hold it up as long as one start may take. */
ENGINE_TEST(test_starts_without_end)
{
    pid_t pid, starts;
    uint32_t job;
    f->swap.start_us = 40000000;
    swap_jobs(f, false, 1, &pid, &job);
    ticks(f, 60000);
    yielded(f, job, pid);
    f->d.free_bytes = 4 * GIB;
    for (int s = 0; s < 12; s++) {
        if (s % 3 == 0) {
            programs(f, &starts, 1, 3);
            add(f, starts, CLASS_BATCH);
        }
        for (int i = 0; i < 5; i++) {
            ticks(f, 1000);
            yield_acquire(engine_model(f->m), job, 5 * NSEC_PER_SEC);
        }
        if (s < 6 || s == 11) /* whether a swapper is at it */
            assert_int_equal(record(f)->swapper.pid != 0, s == 11);
    }
    moved(f, "in", pid, job, "");
    stop(f, false);
}

/* Moves that end in nothing, one job after the other: the others' users have their turn. */
ENGINE_TEST(test_stays_without_end)
{
    programs(f, p, 3, 3);
    for (int i = 0; i < 3; i++)
        on(f, p[i])->memory_bytes = 3 * GIB;
    swap_start(f);
    for (int i = 0; i < 3; i++)
        j[i] = add_as(f, p[i], CLASS_BATCH, i < 2 ? 7 : 8);
    ticks(f, 100);
    assert_int_equal(yield_memory(f, j[0], 7, &f->err), 0);
    assert_true(EVENTUALLY(ordered(f, "out", p[0])));
    ticks(f, 10000);
    write_answer(f, ETIMEDOUT);
    moved(f, "in", p[0], j[0], "");
    FAILS(-EBUSY, "another job of this user", yield_memory(f, j[1], 7, &f->err));
    assert_int_equal(view(f, j[1]).job.yielded, 0);
    assert_int_equal(yield_memory(f, j[2], 8, &f->err), 0);
    moved(f, "out", p[2], j[2], "swapped");
    ticks(f, 60000);
    assert_int_equal(yield_memory(f, j[1], 7, &f->err), 0);
    moved(f, "out", p[1], j[1], "swapped");
    stop(f, false);
}
