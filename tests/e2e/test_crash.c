/* ceded killed, killed together with its restorer, and stopped: everybody runs again, and whoever
 * comes next takes over. */
#include "fixture.h"

enum { LAT, B1, B2, B3, N };
static const char *const names[N] = {"lat", "b1", "b2", "b3"};
static const char *const weights[N] = {"100", "100", "300", "50"};

static void make_jobs(const pid_t pids[N])
{
    for (int i = 0; i < N; i++)
        CEDE("set", pid_text(pids[i]), "-c", i == LAT ? "latency" : "batch", "-w", weights[i]);
}

/* Two batch jobs of the three that take turns were seen suspended at the same time. */
static void await_turns(void)
{
    AWAIT(({
        unsigned s;
        records(&s);
        s >= 8;
    }));
}

E2E(killed_at_random_moments)
{
    pid_t pids[N];
    long long numbers[N];
    struct rng rng = {0x1db3a7f5c2e94d61};
    loads_start(N, names, pids);
    struct ceded d = ceded_start();
    make_jobs(pids);
    for (int i = 0; i < N; i++) {
        numbers[i] = job_int(names[i], "number");
        assert_true(numbers[i] > 0);
    }
    await_turns();
    for (int round = 0; round < 8; round++) {
        bool paused = round % 3 == 1;
        if (paused)
            CEDE("pause", names[B3]);
        usleep((useconds_t)rng_below(&rng, 120000));
        ceded_kill(&d);
        assert_int_equal(records(NULL), 0);
        assert_true(all_slices_default(pids, N));
        await_progress(pids, N);

        d = ceded_start();
        for (int i = 0; i < N; i++) {
            assert_int_equal(job_int(names[i], "number"), numbers[i]);
            assert_int_equal(job_int(names[i], "pid"), pids[i]);
            assert_true(job_is(names[i], "class", i == LAT ? "latency" : "batch"));
            assert_int_equal(job_int(names[i], "weight"), atoi(weights[i]));
            assert_int_equal(job_is(names[i], "state", "paused"), paused && i == B3);
        }
        if (paused)
            CEDE("resume", names[B3]);
        AWAIT(somebody_suspended()); /* turns again */
    }
    loads_end(N, names, pids);
    ceded_stop(&d);
    assert_int_equal(records(NULL), 0);
}

/* Kills ceded and its restorer while that process waits for its turn and b3 is paused. */
static void kill_both(struct ceded *d, pid_t waiting)
{
    CEDE("pause", names[B3]);
    AWAIT(({
        kill(d->pid, SIGSTOP);
        await_state(d->pid, "T");
        if (!suspended(waiting))
            kill(d->pid, SIGCONT);
        suspended(waiting);
    }));
    ceded_kill_both(d);
    assert_true(suspended(waiting));
}

static void assert_paused(pid_t pid)
{
    double busy;
    measure(&pid, 1, 200, &busy);
    assert_true(busy == 0);
}

E2E(next_daemon_after_both_died)
{
    pid_t pids[N];
    configure(200, "");
    loads_start(N, names, pids);
    struct ceded d = ceded_start();
    make_jobs(pids);
    kill_both(&d, pids[B1]);
    d = ceded_start();
    await_progress(pids, B3);
    assert_true(job_is(names[B3], "state", "paused"));
    assert_paused(pids[B3]);
    CEDE("resume", names[B3]);
    await_progress(pids, N);
    ceded_stop(&d);
    assert_int_equal(records(NULL), 0);
    assert_true(all_slices_default(pids, N));
    loads_end(N, names, pids);
}

/* A job whose root has died: its program is on record as a member. */
static pid_t start_orphan(void)
{
    pid_t runner = JOB("orphan", "batch", NULL);
    AWAIT(job_is("orphan", "state", "running"));
    pid_t program = program_below(runner);
    slay_child(runner);
    return program;
}

static void direct_after_both_died(const char *const verb[])
{
    pid_t pids[N + 1];
    configure(200, "");
    loads_start(N, names, pids);
    struct ceded d = ceded_start();
    pids[N] = start_orphan();
    make_jobs(pids);
    kill_both(&d, pids[N]);
    run_program(&result, NULL, verb);
    assert_int_equal(result.status, 0);
    await_progress(pids, B3);
    await_progress(pids + N, 1);
    CEDE("ps", names[B3]);
    assert_non_null(strstr(result.out, "paused"));
    assert_paused(pids[B3]);
    CEDE("resume", names[B3]);
    await_progress(pids, N);
    for (int i = 0; i < N; i++)
        CEDE("set", names[i], "-c", "none");
    CEDE("set", "orphan", "-c", "none");
    assert_int_equal(records(NULL), 0);
    assert_true(all_slices_default(pids, N + 1));
    loads_end(N, names, pids);
    json_decref(load_end("orphan", pids[N]));
}

E2E(resume_after_both_died)
{
    direct_after_both_died((const char *const[]){"cede", "resume", names[B1], NULL});
}

E2E(ps_after_both_died)
{
    direct_after_both_died((const char *const[]){"cede", "ps", NULL});
}

/* What a client was told did not happen does not happen once the daemon goes on. */
E2E(stopped_daemon_keeps_words)
{
    pid_t pid = LOAD("b1", "batch");
    AWAIT(all_have_contexts(&pid, 1));
    struct ceded d = ceded_start();
    CEDE("set", pid_text(pid), "-c", "batch");
    kill(d.pid, SIGSTOP);
    pid_t pause = SPAWN("pause", "cede", "pause", "b1");
    pid_t run = SPAWN("run", "cede", "run", "-n", "late", "--", "sleep", "100");
    pid_t interrupted = SPAWN("set", "cede", "set", "b1", "-w", "7");
    AWAIT(strstr(contents("run.err"), "runs unscheduled"));
    assert_int_equal(await_child(pause), 1);
    kill(interrupted, SIGINT);
    await_child(interrupted);
    kill(d.pid, SIGCONT);
    /* Requests are taken in the order in which they came: this one is the last. */
    CEDE("ps");
    AWAIT(strstr(contents("ceded.err"), "pause: dropped"));
    assert_true(job_is("b1", "state", "running"));
    assert_int_equal(job_int("b1", "weight"), 100);
    assert_null(strstr(contents("ceded.err"), "late"));
    kill(run, SIGTERM);
    await_child(run);
    ceded_stop(&d);
    json_decref(load_end("b1", pid));
}

/* The daemon dies while its restorer is stopped: the next one does not wait for somebody to think
 * of that. */
E2E(stopped_restorer)
{
    pid_t pids[N];
    loads_start(N, names, pids);
    struct ceded d = ceded_start();
    make_jobs(pids);
    await_turns();
    kill(d.restorer, SIGSTOP);
    await_state(d.restorer, "T");
    slay_child(d.pid);
    pid_t before = d.restorer;
    d = ceded_start();
    assert_int_equal(await_child(before), 0);
    await_turns();
    ceded_stop(&d);
    assert_true(all_slices_default(pids, N));
    loads_end(N, names, pids);
}

static bool answers(pid_t daemon)
{
    json_t *all = ask_jobs();
    bool it_does = json_integer_value(json_object_get(all, "pid")) == daemon;
    json_decref(all);
    return it_does;
}

/* The daemon that has lost its directory has another before a second daemon takes the place. */
E2E(directory_removed)
{
    pid_t pids[N];
    set_cede_home(in_dir("home"));
    loads_start(N, names, pids);
    struct ceded d = ceded_start();
    make_jobs(pids);
    await_turns();
    RUN(&result, "rm", "-rf", cede_home());
    AWAIT(answers(d.pid));
    assert_true(all_slices_default(pids, N)); /* the jobs went with their records */
    await_progress(pids, N);
    FAILS(1, "another cede", "daemon", "--device", "soft", "--dir", cede_home());
    make_jobs(pids);
    await_turns();

    assert_int_equal(unlink(in_dir("home/socket")), 0);
    AWAIT(answers(d.pid));
    await_turns(); /* the jobs are on record */
    AWAIT((d.restorer = restorer_of(d.pid)) != 0);
    ceded_stop(&d);
    assert_true(all_slices_default(pids, N));
    loads_end(N, names, pids);
}
