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
    assert_int_equal(engine_yielded(f->m, job, &err), -EINPROGRESS);
    write_answer(f, 0);
    assert_true(EVENTUALLY(engine_yielded(f->m, job, &err) == 0));
    assert_true(is(f, job, "swapped"));
}

static void test_back_as_it_was(void **state)
{
    struct fixture *f = *state;
    pid_t a;
    uint32_t job;
    struct error err = {""};
    swap_jobs(f, false, 1, &a, &job);
    const struct job_terms latency = {
        .class = CLASS_LATENCY, .weight = 70, .budget_us = 900, .gpu_max = 50};
    assert_int_equal(engine_change(f->m, job, &latency, &err), 0);
    yielded(f, job, a);
    struct journal_job rec = view(f, job).job;
    assert_true(rec.class == CLASS_BATCH && rec.budget_us == 0 && rec.weight == 70);
    assert_int_equal(rec.yielded, YIELD_CLASS | YIELD_MEMORY);
    assert_int_equal(rec.yielded_by, 7);
    assert_int_equal(engine_yield(f->m, job, YIELD_CLASS | YIELD_PAUSE, 7, false, &err), 0);
    ticks(f, 60000); /* nobody else brings it back */
    assert_true(is(f, job, "swapped"));
    f->d.free_bytes = 4 * GIB;
    engine_acquire(f->m, job, 100000);
    ticks(f, 1);
    assert_true(EVENTUALLY(ordered(f, "in", a)));
    rec = view(f, job).job;
    assert_true(rec.class == CLASS_BATCH && rec.paused); /* until its memory is there */
    engine_acquire(f->m, job, 5000000);
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, job, "") && !view(f, job).job.yielded));
    rec = view(f, job).job;
    assert_true(rec.class == CLASS_LATENCY && rec.budget_us == 900 && !rec.paused);
    assert_true(rec.weight == 70 && rec.gpu_max == 50);
    engine_acquire(f->m, job, 0); /* has all */
    ticks(f, 1);
    assert_int_equal(view(f, job).job.class, CLASS_LATENCY);
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

/* What did not leave has not yielded. */
static void test_refused(void **state)
{
    struct fixture *f = *state;
    pid_t a;
    uint32_t job;
    struct error err = {""};
    swap_jobs(f, false, 1, &a, &job);
    const struct job_terms normal = {.class = CLASS_NORMAL, .weight = 100};
    assert_int_equal(engine_change(f->m, job, &normal, &err), 0);
    kill(a, SIGSTOP);
    struct proc_stat st;
    assert_true(EVENTUALLY(proc_stat_read(a, &st) == 0 && st.state == 'T'));
    assert_int_equal(yield_memory(f, job, 0, &err), -EBUSY);
    kill(a, SIGCONT);
    assert_int_equal(view(f, job).job.yielded, 0);
    assert_int_equal(yield_memory(f, job, 0, &err), 0);
    assert_true(EVENTUALLY(ordered(f, "out", a)));
    write_answer(f, ENOMEM);
    brought_in(f, a, 0);
    assert_true(EVENTUALLY(is(f, job, "")));
    ticks(f, 1);
    assert_int_equal(engine_yielded(f->m, job, &err), -ENOMEM);
    assert_string_equal(err.text, "because the test says so");
    assert_true(view(f, job).job.class == CLASS_NORMAL && !view(f, job).job.yielded);
    stop(f, true);
}

/* The first that asked comes first, and only while somebody asks. */
static void in_line(struct fixture *f, const pid_t *p, const uint32_t *jobs, int first)
{
    const int second = !first;
    f->d.free_bytes = GIB;
    engine_acquire(f->m, jobs[second], 1000000);
    ticks(f, 2000); /* that one's caller has gone */
    for (int i = 0; i < 40; i++) {
        engine_acquire(f->m, jobs[first], 5000000);
        ticks(f, 1);
        engine_acquire(f->m, jobs[second], 5000000);
        ticks(f, 100);
    }
    assert_true(is(f, jobs[0], "swapped") && is(f, jobs[1], "swapped"));
    f->d.free_bytes = 4 * GIB; /* for one */
    ticks(f, 100);
    assert_true(is(f, jobs[second], "swapped") && is(f, jobs[first], "swapping-in"));
    assert_true(EVENTUALLY(ordered(f, "in", p[first])));
    f->d.free_bytes = GIB;
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, jobs[first], "")));
    ticks(f, 20000);
    f->d.free_bytes = 4 * GIB;
    ticks(f, 1000);
    assert_true(is(f, jobs[second], "swapped")); /* nobody asks any more */
}

static void test_in_line(void **state)
{
    struct fixture *f = *state;
    pid_t p[2];
    uint32_t jobs[2];
    struct error err = {""};
    swap_jobs(f, false, 2, p, jobs);
    for (int i = 0; i < 2; i++)
        yielded(f, jobs[i], p[i]);
    in_line(f, p, jobs, 1);
    assert_int_equal(engine_yield(f->m, jobs[1], YIELD_CLASS | YIELD_MEMORY, 0, true, &err), 0);
    assert_true(EVENTUALLY(ordered(f, "out", p[1])));
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, jobs[1], "swapped")));
    in_line(f, p, jobs, 0);
    stop(f, false);
}

/* The restorer of an engine that was killed has brought in what was yielded: it goes again when the
 * other one lacks the room. */
static void test_again(void **state)
{
    struct fixture *f = *state;
    pid_t p[2];
    uint32_t jobs[2];
    struct error err = {""};
    swap_jobs(f, false, 2, p, jobs);
    for (int i = 0; i < 2; i++) {
        yielded(f, jobs[i], p[i]);
        mock_exit(&f->d, p[i]);
    }
    crash(f);
    assert_int_equal(journal_open(f->dir, 0, &f->j, &err), 0);
    for (uint32_t i = 0; i < JOURNAL_SWAPS; i++) {
        if (journal_swap(f->j, i) && journal_swap(f->j, i)->proc.pid == p[0])
            journal_put_swap(f->j, i, NULL);
    }
    journal_close(f->j);
    mock_context(&f->d, p[0], 0, 3);
    on(f, p[0])->memory_bytes = 3 * GIB;
    swap_start(f);
    ticks(f, 60000);
    assert_true(is(f, jobs[0], "") && is(f, jobs[1], "swapped"));
    assert_int_equal(view(f, jobs[0]).job.yielded, YIELD_CLASS | YIELD_MEMORY);
    f->d.free_bytes = GIB;
    /* What keeps it is seen of the job. */
    struct proc_stat st;
    kill(p[0], SIGSTOP);
    assert_true(EVENTUALLY(proc_stat_read(p[0], &st) == 0 && st.state == 'T'));
    engine_acquire(f->m, jobs[1], 15000000);
    ticks(f, 10000);
    assert_non_null(strstr(view(f, jobs[0]).error, "is stopped"));
    kill(p[0], SIGCONT);
    ticks(f, 1000);
    assert_true(EVENTUALLY(ordered(f, "out", p[0])));
    mock_exit(&f->d, p[0]);
    f->d.free_bytes = 4 * GIB;
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, jobs[0], "swapped")));
    engine_acquire(f->m, jobs[1], 5000000);
    come(f, jobs[1], p[1]);
    ticks(f, 1);
    assert_int_equal(view(f, jobs[1]).job.yielded, 0);
    assert_int_equal(view(f, jobs[0]).job.yielded, YIELD_CLASS | YIELD_MEMORY);
    stop(f, false);
}

/* ---- what a user may not gain ---- */

/* A yield that fails takes back what came with it, and not what an administrator had yielded. */
static void test_failing_gives_nothing(void **state)
{
    struct fixture *f = *state;
    pid_t a;
    uint32_t job;
    struct error err = {""};
    swap_jobs(f, false, 1, &a, &job);
    const struct job_terms latency = {.class = CLASS_LATENCY, .weight = 100};
    assert_int_equal(engine_change(f->m, job, &latency, &err), 0);
    assert_int_equal(engine_yield(f->m, job, YIELD_CLASS, 0, true, &err), 0);
    ticks(f, 1);
    assert_int_equal(engine_yield(f->m, job, YIELD_CLASS | YIELD_PAUSE, 7, false, &err), 0);
    assert_int_equal(yield_memory(f, job, 7, &err), 0);
    assert_true(EVENTUALLY(ordered(f, "out", a)));
    write_answer(f, ETIMEDOUT);
    brought_in(f, a, 0);
    assert_true(EVENTUALLY(is(f, job, "")));
    ticks(f, 1);
    const struct journal_job rec = view(f, job).job;
    assert_true(rec.class == CLASS_BATCH && rec.yielded == (YIELD_CLASS | YIELD_PAUSE));
    assert_true(rec.paused && rec.yielded_by == 0);
    stop(f, true);
}

/* What an administrator has yielded stays so, though its user had paused and moved it before. */
static void test_over_a_user(void **state)
{
    struct fixture *f = *state;
    pid_t a;
    uint32_t job;
    struct error err = {""};
    swap_jobs(f, false, 1, &a, &job);
    assert_int_equal(engine_pause(f->m, job, true, 7), 0);
    leave(f, job, a);
    assert_int_equal(
        engine_yield(f->m, job, YIELD_CLASS | YIELD_PAUSE | YIELD_MEMORY, 0, true, &err), 0);
    ticks(f, 1);
    assert_int_equal(view(f, job).job.paused_by, 0);
    assert_int_equal(view(f, job).swap_uid, 0);
    f->d.free_bytes = 4 * GIB;
    engine_acquire(f->m, job, 5000000);
    come(f, job, a);
    ticks(f, 1);
    assert_true(!view(f, job).job.paused && !view(f, job).job.yielded);
    stop(f, true);
}

/* A job whose programs take long to look at is looked at for no longer than others can wait. */
static void test_slow_to_look_at(void **state)
{
    struct fixture *f = *state;
    pid_t p[8];
    uint32_t job;
    struct error err = {""};
    programs(f, p, 8, 1);
    swap_start(f);
    const struct job_spec spec = {.terms = {.class = CLASS_BATCH, .weight = WEIGHT_DEFAULT},
                                  .source = JOB_SLURM,
                                  .slurm_job = 77,
                                  .name = "slurm-77"};
    for (int i = 0; i < 8; i++) {
        struct proc_stat st;
        assert_int_equal(proc_stat_read(p[i], &st), 0);
        assert_int_equal(engine_add(f->m, st.id, &spec, &job, &err), 0);
    }
    ticks(f, 3000);
    assert_int_equal(view(f, job).processes, 8);
    f->d.scan_ns = 400 * NSEC_PER_MSEC;
    const unsigned before = f->d.scans;
    assert_int_equal(yield_memory(f, job, 7, &err), -EAGAIN);
    assert_in_range(f->d.scans - before, 1, 7);
    f->d.scan_ns = 0;
    stop(f, true);
}

/* ---- the line ---- */

/* Jobs that are asked in again and again, and find no room, hold up none that asked before. */
static void test_asked_in_without_end(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t jobs[3];
    bool came = false;
    swap_jobs(f, false, 3, p, jobs);
    for (int i = 0; i < 3; i++)
        yielded(f, jobs[i], p[i]);
    f->d.free_bytes = 4 * GIB;
    assert_int_equal(engine_swap_in(f->m, jobs[0]), 0);
    assert_true(EVENTUALLY(ordered(f, "in", p[0])));
    for (int i = 0; i < 40 && !came; i++) {
        write_answer(f, ENOMEM);
        for (int k = 0; k < 5000; k++) {
            engine_acquire(f->m, jobs[2], 5000000);
            for (int a = 0; a < 2; a++)
                engine_swap_in(f->m, jobs[a]);
            ticks(f, 1);
            if ((came = ordered(f, "in", p[2])) || ordered(f, "in", p[0]) || ordered(f, "in", p[1]))
                break;
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
    }
    assert_true(came);
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, jobs[2], "")));
    stop(f, false);
}

/* A job whose user stops it on its way holds up no other one, and comes when it is continued. */
static void test_stopped(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t jobs[3];
    struct proc_stat st;
    swap_jobs(f, false, 3, p, jobs);
    for (int i = 0; i < 3; i++)
        yielded(f, jobs[i], p[i]);
    f->d.free_bytes = 4 * GIB;
    assert_int_equal(engine_swap_in(f->m, jobs[0]), 0);
    assert_true(EVENTUALLY(ordered(f, "in", p[0]))); /* and does not answer */
    kill(p[0], SIGSTOP);
    assert_true(EVENTUALLY(proc_stat_read(p[0], &st) == 0 && st.state == 'T'));
    for (int i = 1; i < 3; i++) {
        for (int k = 0; k < 15; k++) {
            engine_acquire(f->m, jobs[i], 5000000);
            ticks(f, 4000);
        }
        assert_true(EVENTUALLY(ordered(f, "in", p[i])));
        write_answer(f, 0);
        assert_true(EVENTUALLY(is(f, jobs[i], "")));
    }
    assert_true(is(f, jobs[0], "swapping-in"));
    kill(p[0], SIGCONT);
    ticks(f, 2000);
    come(f, jobs[0], p[0]);

    yielded(f, jobs[0], p[0]);
    kill(p[0], SIGSTOP);
    assert_true(EVENTUALLY(proc_stat_read(p[0], &st) == 0 && st.state == 'T'));
    assert_int_equal(engine_swap_in(f->m, jobs[0]), 0);
    ticks(f, 100);
    assert_true(is(f, jobs[0], "swapped"));
    assert_non_null(strstr(view(f, jobs[0]).swap_error, "is stopped"));
    stop(f, false);
}

/* Jobs that begin to start without end hold it up as long as one start may take. */
static void test_starts_without_end(void **state)
{
    struct fixture *f = *state;
    pid_t p, starts;
    uint32_t job;
    f->swap.start_us = 40000000;
    swap_jobs(f, false, 1, &p, &job);
    ticks(f, 60000);
    yielded(f, job, p);
    f->d.free_bytes = 4 * GIB;
    for (int s = 0; s < 12; s++) {
        if (s % 3 == 0) {
            programs(f, &starts, 1, 3);
            add(f, starts, CLASS_BATCH);
        }
        for (int i = 0; i < 5; i++) {
            ticks(f, 1000);
            engine_acquire(f->m, job, 5000000);
        }
        if (s < 6 || s == 11) /* whether a swapper is at it */
            assert_int_equal(record(f)->swapper.pid != 0, s == 11);
    }
    assert_true(EVENTUALLY(ordered(f, "in", p)));
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, job, "")));
    stop(f, false);
}

static uint32_t add_of(struct fixture *f, pid_t pid, uid_t uid)
{
    struct proc_stat st;
    struct error err = {""};
    uint32_t job = SLOT_NONE;
    const struct job_spec spec = {.terms = {.class = CLASS_BATCH, .weight = WEIGHT_DEFAULT},
                                  .source = JOB_PID,
                                  .uid = uid,
                                  .account_uid = uid};
    assert_int_equal(proc_stat_read(pid, &st), 0);
    assert_int_equal(engine_add(f->m, st.id, &spec, &job, &err), 0);
    return job;
}

/* Moves that end in nothing, one job after the other: the others' users have their turn. */
static void test_stays_without_end(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t jobs[3];
    struct error err = {""};
    programs(f, p, 3, 3);
    for (int i = 0; i < 3; i++)
        on(f, p[i])->memory_bytes = 3 * GIB;
    swap_start(f);
    for (int i = 0; i < 3; i++)
        jobs[i] = add_of(f, p[i], i < 2 ? 7 : 8);
    ticks(f, 100);
    assert_int_equal(yield_memory(f, jobs[0], 7, &err), 0);
    assert_true(EVENTUALLY(ordered(f, "out", p[0])));
    ticks(f, 10000);
    write_answer(f, ETIMEDOUT);
    brought_in(f, p[0], 0);
    assert_true(EVENTUALLY(is(f, jobs[0], "")));
    assert_int_equal(yield_memory(f, jobs[1], 7, &err), -EBUSY);
    assert_non_null(strstr(err.text, "another job of this user"));
    assert_int_equal(view(f, jobs[1]).job.yielded, 0);
    assert_int_equal(yield_memory(f, jobs[2], 8, &err), 0);
    assert_true(EVENTUALLY(ordered(f, "out", p[2])));
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, jobs[2], "swapped")));
    ticks(f, 60000);
    assert_int_equal(yield_memory(f, jobs[1], 7, &err), 0);
    assert_true(EVENTUALLY(ordered(f, "out", p[1])));
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, jobs[1], "swapped")));
    stop(f, false);
}

int main(int argc, char **argv)
{
    if (strcmp(argv[0], "cede-swap") == 0)
        return fake_swapper();
    const struct CMUnitTest tests[] = {T(test_back_as_it_was),
                                       T(test_refused),
                                       T(test_in_line),
                                       T(test_again),
                                       T(test_failing_gives_nothing),
                                       T(test_over_a_user),
                                       T(test_slow_to_look_at),
                                       T(test_asked_in_without_end),
                                       T(test_stays_without_end),
                                       T(test_starts_without_end),
                                       T(test_stopped)};
    (void)argc;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
