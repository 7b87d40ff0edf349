/* The engine on a driver without a device: what is set, and in which order of events. */
#include "fixture.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

ENGINE_TEST(test_classes_become_timeslices)
{
    jobs_of(f, "priority", 3, "L B");
    ticks(f, 1000);
    assert_int_equal(on(f, p[0])->timeslice_us, 1000000);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
    assert_int_equal(changed_groups(f), 8); /* copy groups too */
    assert_int_equal(suspended_groups(f), 0);

    /* Nothing changes: nothing is done. */
    unsigned calls = f->d.timeslice_calls;
    ticks(f, 10000);
    assert_int_equal(f->d.timeslice_calls, calls);

    change(f, j[0], (struct job_terms){.class = CLASS_NORMAL, .weight = 300});
    change_class(f, j[1], CLASS_NORMAL);
    ticks(f, 1);
    assert_int_equal(on(f, p[0])->timeslice_us, 60000);
    assert_int_equal(on(f, p[1])->timeslice_us, 20000);

    engine_release(f->m, j[1]);
    assert_int_equal(on(f, p[1])->timeslice_us, 2048);
}

/* A library that sets its timeslice late writes over ours: ours is set again, its is restored. */
ENGINE_TEST(test_program_sets_its_timeslice)
{
    jobs_of(f, "priority", 1, "L B");
    ticks(f, 20000); /* by now it is looked at rarely */
    on(f, p[0])->timeslice_us = 3072;
    ticks(f, 2500);
    assert_int_equal(on(f, p[0])->timeslice_us, 1000000);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
    stop(f, true);
    assert_int_equal(on(f, p[0])->timeslice_us, 3072);
    assert_int_equal(on(f, p[1])->timeslice_us, 2048);
}

ENGINE_TEST(test_batch_jobs_take_turns)
{
    jobs_of(f, "priority", 3, "L B B B");
    ticks(f, 500);
    unsigned ran[4] = {0};
    for (int k = 0; k < 600; k++) {
        count_turns(f, 4, 10);
        assert_int_equal(f->ran[0], 1);
        assert_int_equal(f->ran[1] + f->ran[2] + f->ran[3], 1);
        for (int i = 1; i < 4; i++)
            ran[i] += f->ran[i];
    }
    for (int i = 1; i < 4; i++)
        assert_in_range(ran[i], 180, 220);
    /* The one whose turn it is ends: another has it at once. */
    end(f, p[f->ran[1] ? 1 : f->ran[2] ? 2 : 3]);
    ticks(f, 1);
    assert_int_equal(suspended_groups(f), 4);
    end(f, p[0]);
    ticks(f, 1);
    assert_int_equal(suspended_groups(f), 0);
}

ENGINE_TEST(test_contexts_of_one_job_take_turns)
{
    pid_t lat = child(f), a = child(f);
    mock_context(&f->d, lat, 0, 3);
    struct mock_group *one = &f->d.g[mock_context(&f->d, a, 0, 1)];
    struct mock_group *two = &f->d.g[mock_context(&f->d, a, 0, 1)];
    start(f, "priority", NULL);
    add(f, lat, CLASS_LATENCY);
    uint32_t job = add(f, a, CLASS_BATCH);
    ticks(f, 100);
    unsigned ran = 0;
    for (int t = 0; t < 400; t++) {
        ticks(f, 10);
        assert_int_equal(suspended_groups(f), 1); /* never both, and copies are left alone */
        ran += two->suspended;
    }
    assert_in_range(ran, 180, 220);
    /* Two contexts count as one job, and need not yield to each other where nothing is better. */
    change_class(f, job, CLASS_LATENCY);
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
ENGINE_TEST(test_group_turns_out_to_compute)
{
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

ENGINE_TEST(test_pause)
{
    pid_t a = child(f);
    mock_context(&f->d, a, 0, 3);
    mock_context(&f->d, a, 1, 3); /* two GPUs */
    mock_context(&f->d, a, 0, 3); /* a second context */
    start(f, "priority", NULL);
    uint32_t job = add(f, a, CLASS_NORMAL);
    ticks(f, 100);
    pause_job(f, job, true);
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
    pause_job(f, job, false);
    assert_int_equal(suspended_groups(f), 0);
}

ENGINE_TEST(test_follows_processes)
{
    three_generations(f, p, (const char *const[3]){NULL});
    const pid_t root = p[0], leaf = p[2];
    start(f, "priority", NULL);
    uint32_t job = add(f, root, CLASS_BATCH);
    pid_t lat = child(f);
    mock_context(&f->d, lat, 0, 0);
    add(f, lat, CLASS_LATENCY);
    assert_int_equal(engine_job_status(f->m, job, &f->err), -ENODEV);
    ticks(f, 500);
    mock_context(&f->d, leaf, 0, 3);
    ticks(f, 200); /* a young job is looked for closely */
    assert_int_equal(on(f, leaf)->timeslice_us, 1);
    assert_int_equal(engine_job_of(f->m, leaf), job);
    assert_int_equal(engine_job_of(f->m, getpid()), SLOT_NONE);
    assert_int_equal(engine_job_status(f->m, job, &f->err), 0);
    assert_int_equal(view(f, job).member.pid, root);
    /* The root goes, the job stays while a process of it works, and ends with it. */
    end(f, root);
    ticks(f, 100);
    const struct job_view v = view(f, job);
    assert_int_equal(v.processes, 1);
    assert_true(proc_same(v.member, id_of(leaf)));
    kill(leaf, SIGKILL);
    for (int i = 0; i < 1000 && kill(leaf, 0) == 0 &&
                    proc_alive((struct proc_id){leaf, on(f, leaf)->dg.proc.start_ticks});
         i++)
        usleep(1000);
    mock_exit(&f->d, leaf);
    ticks(f, 100);
    assert_int_equal(model_job_by_number(engine_model(f->m), v.number), SLOT_NONE);
}

ENGINE_TEST(test_rules)
{
    programs(f, p, 2, 0);
    pid_t a = p[0], b = p[1];
    start(f, "priority", &b);
    ticks(f, 600);
    assert_int_equal(engine_job_of(f->m, a), SLOT_NONE);
    uint32_t job = engine_job_of(f->m, b), cursor = 0;
    assert_int_not_equal(job, SLOT_NONE);
    struct job_view v;
    assert_true(engine_next_job(f->m, &cursor, &v));
    assert_int_equal(v.job.weight, 50);
    assert_int_equal(v.job.source, JOB_RULE);
    assert_false(engine_next_job(f->m, &cursor, &v));
    /* Let go, it stays so: the rule is older than what a person says. */
    engine_release(f->m, job);
    ticks(f, 1500);
    assert_int_equal(engine_set_params(f->m, engine_params(f->m)), 0);
    ticks(f, 1500);
    assert_int_equal(engine_job_of(f->m, b), SLOT_NONE);
    job = add(f, b, CLASS_BATCH);
    ticks(f, 1500);
    assert_int_equal(engine_job_of(f->m, b), job);
}

ENGINE_TEST(test_nested_job)
{
    three_jobs(f);
    /* Adopting a process again is refused and tells the job. */
    struct proc_id id = id_of(p[1]);
    uint32_t job = 0;
    struct job_spec spec = {.terms = {.class = CLASS_BATCH, .weight = 100}};
    assert_int_equal(engine_add(f->m, id, &spec, &job, &f->err), -EEXIST);
    assert_int_equal(job, engine_job_of(f->m, p[1]));
    id.start_ticks++;
    FAILS(-ESRCH, "no such process", engine_add(f->m, id, &spec, &job, &f->err));
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

ENGINE_TEST(test_thread_is_no_process)
{
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
    uint32_t job;
    assert_true(engine_add(f->m, st.id, &spec, &job, &f->err) < 0);
    assert_non_null(strstr(f->err.text, "a thread"));
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
ENGINE_TEST(test_commands_that_take_long)
{
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
