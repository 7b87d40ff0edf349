/* ceded killed, killed together with its restorer, and stopped: everybody runs again, and whoever
 * comes next takes over. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

enum { LAT, B1, B2, B3, N };
static const char *const names[N] = {"lat", "b1", "b2", "b3"};
static const char *const weights[N] = {"100", "100", "300", "50"};

static void start_loads(pid_t pids[N])
{
    for (int i = 0; i < N; i++)
        pids[i] =
            i == LAT ? LOAD(names[i], "latency", "--period-us", "20000") : LOAD(names[i], "batch");
    assert_true(EVENTUALLY(all_have_contexts(pids, N)));
}

static void make_jobs(const pid_t pids[N])
{
    for (int i = 0; i < N; i++)
        CEDE("set", pid_text(pids[i]), "-c", i == LAT ? "latency" : "batch", "-w", weights[i]);
}

static void end_loads(const pid_t pids[N])
{
    for (int i = 0; i < N; i++)
        json_decref(load_end(names[i], pids[i]));
}

/* Two batch jobs of the three that take turns were seen suspended at the same time. */
static void await_turns(void)
{
    assert_true(EVENTUALLY(({
        unsigned s;
        records(&s);
        s >= 8;
    })));
}

static void killed_at_random_moments(void **state)
{
    (void)state;
    pid_t pids[N];
    long long numbers[N];
    struct rng rng = {0x1db3a7f5c2e94d61};
    start_loads(pids);
    struct ceded d = ceded_start();
    make_jobs(pids);
    for (int i = 0; i < N; i++) {
        numbers[i] = job_int(names[i], "number");
        assert_true(numbers[i] > 0);
    }
    await_turns();
    for (int round = 0; round < 20; round++) {
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
            char weight[16];
            snprintf(weight, sizeof(weight), "%lld", job_int(names[i], "weight"));
            assert_string_equal(weight, weights[i]);
            assert_int_equal(job_is(names[i], "state", "paused"), paused && i == B3);
        }
        if (paused)
            CEDE("resume", names[B3]);
        assert_true(EVENTUALLY(somebody_suspended())); /* turns again */
    }
    end_loads(pids);
    ceded_stop(&d);
    assert_int_equal(records(NULL), 0);
}

/* Kills ceded and its restorer while that process waits for its turn and b3 is paused. */
static void kill_both(struct ceded *d, pid_t waiting)
{
    CEDE("pause", names[B3]);
    assert_true(EVENTUALLY(({
        kill(d->pid, SIGSTOP);
        await_state(d->pid, "T");
        if (!suspended(waiting))
            kill(d->pid, SIGCONT);
        suspended(waiting);
    })));
    /* So that it cannot do anything between the one kill and the other. */
    kill(d->restorer, SIGSTOP);
    await_state(d->restorer, "T");
    kill(d->pid, SIGKILL);
    assert_int_equal(await_child(d->pid), 1000 + SIGKILL);
    kill(d->restorer, SIGKILL);
    assert_int_equal(await_child(d->restorer), 1000 + SIGKILL);
    assert_true(suspended(waiting));
}

static void assert_paused(pid_t pid)
{
    double busy;
    measure(&pid, 1, 200, &busy);
    assert_true(busy == 0);
}

static void next_daemon_after_both_died(void **state)
{
    (void)state;
    pid_t pids[N];
    configure(200, "");
    start_loads(pids);
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
    end_loads(pids);
}

/* A job whose root has died: its program is on record as a member. */
static pid_t start_orphan(void)
{
    pid_t program = 0;
    pid_t runner = SPAWN("orphan", "cede", "run", "--strict", "-c", "batch", "-n", "orphan", "--",
                         harness_exe(), "load", "batch", "--device", "soft", "--verify");
    assert_true(EVENTUALLY(job_is("orphan", "state", "running")));
    assert_int_equal(children_of(runner, &program, 1), 1);
    kill(runner, SIGKILL);
    assert_int_equal(await_child(runner), 1000 + SIGKILL);
    return program;
}

static void direct_after_both_died(const char *const verb[])
{
    pid_t pids[N + 1];
    configure(200, "");
    start_loads(pids);
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
    end_loads(pids);
    json_decref(load_end("orphan", pids[N]));
}

static void resume_after_both_died(void **state)
{
    (void)state;
    direct_after_both_died((const char *const[]){"cede", "resume", names[B1], NULL});
}

static void ps_after_both_died(void **state)
{
    (void)state;
    direct_after_both_died((const char *const[]){"cede", "ps", NULL});
}

static void stopped_daemon(void **state)
{
    (void)state;
    pid_t pids[N];
    start_loads(pids);
    struct ceded d = ceded_start();
    make_jobs(pids);
    await_turns();
    kill(d.pid, SIGSTOP);
    assert_true(EVENTUALLY(!somebody_suspended()));
    await_progress(pids, N);
    assert_true(EVENTUALLY(all_slices_default(pids, N)));
    kill(d.pid, SIGCONT);
    await_turns();
    await_progress(pids, N); /* each has its turn */
    ceded_stop(&d);
    assert_true(all_slices_default(pids, N));
    end_loads(pids);
}

/* What a client was told did not happen does not happen once the daemon goes on. */
static void stopped_daemon_keeps_words(void **state)
{
    (void)state;
    pid_t pid = LOAD("b1", "batch");
    assert_true(EVENTUALLY(all_have_contexts(&pid, 1)));
    struct ceded d = ceded_start();
    CEDE("set", pid_text(pid), "-c", "batch");
    kill(d.pid, SIGSTOP);
    pid_t pause = SPAWN("pause", "cede", "pause", "b1");
    pid_t run = SPAWN("run", "cede", "run", "-n", "late", "--", "sleep", "100");
    pid_t interrupted = SPAWN("set", "cede", "set", "b1", "-w", "7");
    assert_true(EVENTUALLY(strstr(contents("run.err"), "runs unscheduled")));
    assert_int_equal(await_child(pause), 1);
    kill(interrupted, SIGINT);
    await_child(interrupted);
    kill(d.pid, SIGCONT);
    /* Requests are taken in the order in which they came: this one is the last. */
    CEDE("ps");
    assert_true(EVENTUALLY(strstr(contents("ceded.err"), "pause: dropped")));
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
static void stopped_restorer(void **state)
{
    (void)state;
    pid_t pids[N];
    start_loads(pids);
    struct ceded d = ceded_start();
    make_jobs(pids);
    await_turns();
    kill(d.restorer, SIGSTOP);
    await_state(d.restorer, "T");
    kill(d.pid, SIGKILL);
    await_child(d.pid);
    pid_t before = d.restorer;
    d = ceded_start();
    assert_int_equal(await_child(before), 0);
    await_turns();
    ceded_stop(&d);
    assert_true(all_slices_default(pids, N));
    end_loads(pids);
}

static bool answers(pid_t daemon)
{
    json_t *all = ask("{\"v\":1,\"op\":\"ps\"}");
    bool it_does = json_integer_value(json_object_get(all, "pid")) == daemon;
    json_decref(all);
    return it_does;
}

/* The daemon that has lost its directory has another before a second daemon takes the place. */
static void directory_removed(void **state)
{
    (void)state;
    pid_t pids[N];
    char home[96];
    snprintf(home, sizeof(home), "%s/home", harness_dir());
    set_cede_home(home);
    start_loads(pids);
    struct ceded d = ceded_start();
    make_jobs(pids);
    await_turns();
    RUN(&result, "rm", "-rf", home);
    assert_true(EVENTUALLY(answers(d.pid)));
    assert_true(all_slices_default(pids, N)); /* the jobs went with their records */
    await_progress(pids, N);
    RUN(&result, "cede", "daemon", "--device", "soft", "--dir", home);
    assert_int_equal(status_of(result.status), 1);
    assert_non_null(strstr(result.err, "another cede"));
    make_jobs(pids);
    await_turns();

    snprintf(home, sizeof(home), "%s/socket", cede_home());
    assert_int_equal(unlink(home), 0);
    assert_true(EVENTUALLY(answers(d.pid)));
    await_turns(); /* the jobs are on record */
    assert_true(EVENTUALLY((d.restorer = restorer_of(d.pid)) != 0));
    ceded_stop(&d);
    assert_true(all_slices_default(pids, N));
    end_loads(pids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        e2e(killed_at_random_moments), e2e(next_daemon_after_both_died),
        e2e(resume_after_both_died),   e2e(ps_after_both_died),
        e2e(stopped_daemon),           e2e(stopped_daemon_keeps_words),
        e2e(stopped_restorer),         e2e(directory_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
