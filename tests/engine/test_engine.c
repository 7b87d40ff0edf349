/* The engine on a driver without a device: what is set, and in which order of events. */
#include "engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fixture.h"

#include <pthread.h>

static void test_classes_become_timeslices(void **state)
{
    struct fixture *f = *state;
    pid_t a = child(f), b = child(f);
    mock_context(&f->d, a, 0, 3);
    mock_context(&f->d, b, 0, 3);
    start(f, "priority", NULL);
    uint32_t ja = add(f, a, CLASS_LATENCY), jb = add(f, b, CLASS_BATCH);
    ticks(f, 1000);
    assert_int_equal(on(f, a)->timeslice_us, 1000000);
    assert_int_equal(on(f, b)->timeslice_us, 1);
    assert_int_equal(changed_groups(f), 8); /* copy groups too */
    assert_int_equal(suspended_groups(f), 0);

    /* Nothing changes: nothing is done. */
    unsigned calls = f->d.timeslice_calls;
    ticks(f, 10000);
    assert_int_equal(f->d.timeslice_calls, calls);

    assert_int_equal(
        engine_change(f->m, ja, &(struct job_terms){.class = CLASS_NORMAL, .weight = 300}, NULL),
        0);
    assert_int_equal(
        engine_change(f->m, jb, &(struct job_terms){.class = CLASS_NORMAL, .weight = 100}, NULL),
        0);
    ticks(f, 1);
    assert_int_equal(on(f, a)->timeslice_us, 60000);
    assert_int_equal(on(f, b)->timeslice_us, 20000);

    engine_release(f->m, jb);
    assert_int_equal(on(f, b)->timeslice_us, 2048);
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

/* A library that sets its timeslice late writes over ours: ours is set again, its is restored. */
static void test_program_sets_its_timeslice(void **state)
{
    struct fixture *f = *state;
    pid_t a = child(f), b = child(f);
    mock_context(&f->d, a, 0, 1);
    mock_context(&f->d, b, 0, 1);
    start(f, "priority", NULL);
    add(f, a, CLASS_LATENCY);
    add(f, b, CLASS_BATCH);
    ticks(f, 20000); /* by now it is looked at rarely */
    on(f, a)->timeslice_us = 3072;
    ticks(f, 2500);
    assert_int_equal(on(f, a)->timeslice_us, 1000000);
    assert_int_equal(on(f, b)->timeslice_us, 1);
    stop(f, true);
    assert_int_equal(on(f, a)->timeslice_us, 3072);
    assert_int_equal(on(f, b)->timeslice_us, 2048);
}

static void test_batch_jobs_take_turns(void **state)
{
    struct fixture *f = *state;
    pid_t lat = child(f), b[3];
    mock_context(&f->d, lat, 0, 3);
    start(f, "priority", NULL);
    add(f, lat, CLASS_LATENCY);
    for (int i = 0; i < 3; i++) {
        b[i] = child(f);
        mock_context(&f->d, b[i], 0, 3);
        add(f, b[i], CLASS_BATCH);
    }
    ticks(f, 500);
    unsigned ran[3] = {0};
    for (int t = 0; t < 600; t++) {
        ticks(f, 10);
        unsigned runs = 0;
        for (int i = 0; i < 3; i++) {
            runs += !on(f, b[i])->suspended;
            ran[i] += !on(f, b[i])->suspended;
        }
        assert_int_equal(runs, 1);
        assert_false(on(f, lat)->suspended);
    }
    for (int i = 0; i < 3; i++)
        assert_in_range(ran[i], 180, 220);
    /* The one whose turn it is ends: another has it at once. */
    for (int i = 0; i < 3; i++) {
        if (!on(f, b[i])->suspended) {
            end(f, b[i]);
            break;
        }
    }
    ticks(f, 1);
    assert_int_equal(suspended_groups(f), 4);
    end(f, lat);
    ticks(f, 1);
    assert_int_equal(suspended_groups(f), 0);
}

static void test_contexts_of_one_job_take_turns(void **state)
{
    struct fixture *f = *state;
    pid_t lat = child(f), a = child(f);
    mock_context(&f->d, lat, 0, 3);
    struct mock_group *one = &f->d.g[mock_context(&f->d, a, 0, 1)];
    struct mock_group *two = &f->d.g[mock_context(&f->d, a, 0, 1)];
    start(f, "priority", NULL);
    add(f, lat, CLASS_LATENCY);
    uint32_t j = add(f, a, CLASS_BATCH);
    ticks(f, 100);
    unsigned ran = 0;
    for (int t = 0; t < 400; t++) {
        ticks(f, 10);
        assert_int_equal(suspended_groups(f), 1); /* never both, and copies are left alone */
        ran += two->suspended;
    }
    assert_in_range(ran, 180, 220);
    /* Two contexts count as one job, and need not yield to each other where nothing is better. */
    assert_int_equal(
        engine_change(f->m, j, &(struct job_terms){.class = CLASS_LATENCY, .weight = 100}, NULL),
        0);
    ticks(f, 1);
    assert_int_equal(suspended_groups(f), 0);
    assert_int_equal(one->timeslice_us, 2000);
    assert_int_equal(on(f, lat)->timeslice_us, 4000);
    assert_int_equal(engine_set_policy(f->m, "shares"), 0);
    ticks(f, 1);
    assert_int_equal(two->timeslice_us, 10000);
    assert_int_equal(on(f, lat)->timeslice_us, 20000);
}

/* A context that was half-built when it was first seen: once its group is known to compute it takes
 * turns with the job's other one. */
static void test_group_turns_out_to_compute(void **state)
{
    struct fixture *f = *state;
    pid_t lat = child(f), a = child(f);
    mock_context(&f->d, lat, 0, 0);
    struct mock_group *one = &f->d.g[mock_context(&f->d, a, 0, 0)];
    struct mock_group *two = &f->d.g[mock_context(&f->d, a, 0, 0)];
    two->dg.kind = GROUP_COPY;
    start(f, "priority", NULL);
    add(f, lat, CLASS_LATENCY);
    add(f, a, CLASS_BATCH);
    ticks(f, 1000);
    assert_false(one->suspended || two->suspended);
    two->dg.kind = GROUP_COMPUTE;
    ticks(f, 5000);
    unsigned ran = 0;
    for (int t = 0; t < 400; t++) {
        ticks(f, 10);
        assert_int_equal(one->suspended + two->suspended, 1);
        ran += two->suspended;
    }
    assert_in_range(ran, 180, 220);
    one->dg.kind = GROUP_COPY; /* and back: nothing is left to take turns with */
    ticks(f, 5000);
    assert_int_equal(suspended_groups(f), 0);
}

static void test_pause(void **state)
{
    struct fixture *f = *state;
    pid_t a = child(f);
    mock_context(&f->d, a, 0, 3);
    mock_context(&f->d, a, 1, 3); /* two GPUs */
    mock_context(&f->d, a, 0, 3); /* a second context */
    start(f, "priority", NULL);
    uint32_t j = add(f, a, CLASS_NORMAL);
    ticks(f, 100);
    assert_int_equal(engine_pause(f->m, j, true, 0), 0);
    ticks(f, 1);
    assert_int_equal(suspended_groups(f), 12);
    assert_int_equal(f->d.suspend_calls, 2); /* one call a GPU */
    /* A context that appears in a paused job is suspended too, and so is a new channel. */
    mock_context(&f->d, a, 1, 0);
    ticks(f, 3000);
    assert_int_equal(suspended_groups(f), 13);
    struct mock_group *g = on(f, a);
    g->dg.channels[g->dg.nchannels++] = 77;
    g->suspended = false; /* the new channel runs */
    ticks(f, 3000);
    assert_int_equal(suspended_groups(f), 13);
    assert_int_equal(engine_pause(f->m, j, false, 0), 0);
    ticks(f, 1);
    assert_int_equal(suspended_groups(f), 0);
}

static void test_follows_processes(void **state)
{
    struct fixture *f = *state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t root = fork();
    if (root == 0) {
        /* Two generations below; the one between ends. */
        pid_t mid = fork();
        if (mid == 0) {
            pid_t leaf = fork();
            if (leaf == 0)
                for (;;)
                    pause();
            (void)!write(fds[1], &leaf, sizeof(leaf));
        }
        wait_to_die();
    }
    f->children[f->n++] = root;
    pid_t leaf;
    assert_int_equal(read(fds[0], &leaf, sizeof(leaf)), sizeof(leaf));
    f->children[f->n++] = leaf; /* whom no end of another process ends */
    close(fds[0]);
    close(fds[1]);
    start(f, "priority", NULL);
    uint32_t j = add(f, root, CLASS_BATCH);
    pid_t lat = child(f);
    mock_context(&f->d, lat, 0, 0);
    add(f, lat, CLASS_LATENCY);
    struct error err = {""};
    assert_int_equal(engine_job_status(f->m, j, &err), -ENODEV);
    ticks(f, 500);
    mock_context(&f->d, leaf, 0, 3);
    ticks(f, 200); /* a young job is looked for closely */
    assert_int_equal(on(f, leaf)->timeslice_us, 1);
    assert_int_equal(engine_job_of(f->m, leaf), j);
    assert_int_equal(engine_job_of(f->m, getpid()), SLOT_NONE);
    assert_int_equal(engine_job_status(f->m, j, &err), 0);
    /* The root goes, the job stays while a process of it works, and ends with it. */
    end(f, root);
    ticks(f, 100);
    struct job_view v;
    uint32_t cursor = j;
    assert_true(engine_next_job(f->m, &cursor, &v));
    assert_int_equal(v.processes, 1);
    kill(leaf, SIGKILL);
    for (int i = 0; i < 1000 && kill(leaf, 0) == 0 &&
                    proc_alive((struct proc_id){leaf, on(f, leaf)->dg.proc.start_ticks});
         i++)
        usleep(1000);
    mock_exit(&f->d, leaf);
    ticks(f, 100);
    assert_int_equal(engine_job_by_number(f->m, v.number), SLOT_NONE);
}

static void test_rules(void **state)
{
    struct fixture *f = *state;
    pid_t a = child(f), b = child(f);
    mock_context(&f->d, a, 0, 0);
    mock_context(&f->d, b, 0, 0);
    start(f, "priority", &b);
    ticks(f, 600);
    assert_int_equal(engine_job_of(f->m, a), SLOT_NONE);
    uint32_t j = engine_job_of(f->m, b), cursor = 0;
    assert_int_not_equal(j, SLOT_NONE);
    struct job_view v;
    assert_true(engine_next_job(f->m, &cursor, &v));
    assert_int_equal(v.job.weight, 50);
    assert_int_equal(v.job.source, JOB_RULE);
    assert_false(engine_next_job(f->m, &cursor, &v));
    /* Let go, it stays so: the rule is older than what a person says. */
    engine_release(f->m, j);
    ticks(f, 1500);
    assert_int_equal(engine_set_params(f->m, engine_params(f->m)), 0);
    ticks(f, 1500);
    assert_int_equal(engine_job_of(f->m, b), SLOT_NONE);
    j = add(f, b, CLASS_BATCH);
    ticks(f, 1500);
    assert_int_equal(engine_job_of(f->m, b), j);
}

static void test_nested_job(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    three_jobs(f, p);
    /* Adopting a process again is refused and tells the job. */
    struct proc_stat st;
    struct error err = {""};
    uint32_t job = 0;
    proc_stat_read(p[1], &st);
    struct job_spec spec = {.terms = {.class = CLASS_BATCH, .weight = 100}};
    assert_int_equal(engine_add(f->m, st.id, &spec, &job, &err), -EEXIST);
    assert_int_equal(job, engine_job_of(f->m, p[1]));
    st.id.start_ticks++;
    assert_int_equal(engine_add(f->m, st.id, &spec, &job, &err), -ESRCH);
    assert_non_null(strstr(err.text, "no such process"));
}

static void *tell_tid(void *pipes)
{
    const int *fd = pipes;
    pid_t tid = gettid();
    char c;
    if (write(fd[1], &tid, sizeof(tid)) == (ssize_t)sizeof(tid) && read(fd[2], &c, 1) < 0)
        abort();
    return NULL;
}

static void test_thread_is_no_process(void **state)
{
    struct fixture *f = *state;
    start(f, "priority", NULL);
    int fd[4];
    pthread_t thread;
    struct proc_stat st;
    assert_int_equal(pipe(fd), 0);
    assert_int_equal(pipe(fd + 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, tell_tid, fd), 0);
    pid_t tid;
    assert_int_equal(read(fd[0], &tid, sizeof(tid)), sizeof(tid));
    assert_int_equal(proc_stat_read(tid, &st), 0);
    struct job_spec spec = {.terms = {.class = CLASS_NORMAL, .weight = 100}, .name = "t"};
    struct error err = {""};
    uint32_t job;
    assert_true(engine_add(f->m, st.id, &spec, &job, &err) < 0);
    assert_non_null(strstr(err.text, "a thread"));
    close(fd[3]);
    pthread_join(thread, NULL);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
}

struct slow {
    struct command command;
    bool answered;
};

static int takes_long(struct command *c, struct engine *e)
{
    for (uint64_t began = thread_cpu_ns(); thread_cpu_ns() - began < 25 * NSEC_PER_MSEC;)
        ;
    return 0;
}

static void slow_answer(struct command *c, struct engine *e, int code)
{
    ((struct slow *)c)->answered = true;
}

/* Each tick has time for a part of those that take long, in their order, and is due at once. */
static void test_commands_that_take_long(void **state)
{
    struct fixture *f = *state;
    struct slow v[3];
    start(f, "priority", NULL);
    ticks(f, 1);
    for (size_t i = 0; i < ARRAY_SIZE(v); i++) {
        v[i] = (struct slow){.command = {.run = takes_long, .answer = slow_answer}};
        engine_submit(f->m, &v[i].command);
    }
    for (size_t i = 0; i < ARRAY_SIZE(v); i++) {
        assert_true(engine_pending(f->m));
        const uint64_t now = monotonic_ns(), next = engine_tick(f->m, now);
        for (size_t k = 0; k < ARRAY_SIZE(v); k++)
            assert_int_equal(v[k].answered, k <= i);
        assert_true(i == ARRAY_SIZE(v) - 1 || next == now);
    }
    assert_false(engine_pending(f->m));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_classes_become_timeslices),  T(test_program_sets_its_timeslice),
        T(test_batch_jobs_take_turns),      T(test_contexts_of_one_job_take_turns),
        T(test_group_turns_out_to_compute), T(test_pause),
        T(test_follows_processes),          T(test_rules),
        T(test_thread_is_no_process),       T(test_nested_job),
        T(test_commands_that_take_long),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
