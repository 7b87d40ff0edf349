/* A user's programs where kernel.yama.ptrace_scope is 1, on a software GPU that refuses as Yama
 * would: whoever of ceded, its restorer and the runners is killed while a job is suspended,
 * somebody is left that may undo it. Nothing of this is tested as root, who needs no grant. */
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../e2e/fixture.h"

enum { LAT, B1, B2, N };
static const char *const names[N] = {"lat", "b1", "b2"};

struct scene {
    pid_t first; /* the runner whose `cede run` has started the daemon */
    pid_t runner[N], program[N];
    pid_t daemon, restorer;
};

static pid_t run_job(const char *name, const char *class, const char *role)
{
    return SPAWN(name, "cede", "run", "--strict", "--gpu-device", "soft", "-c", class, "-n", name,
                 "--", harness_exe(), "load", role, "--device", "soft", "--verify");
}

static pid_t daemon_pid(void)
{
    json_t *all = ask("{\"v\":1,\"op\":\"ps\"}");
    pid_t pid = (pid_t)json_integer_value(json_object_get(all, "pid"));
    json_decref(all);
    return pid;
}

static void strict_gpu(void)
{
    static char path[96];
    snprintf(path, sizeof(path), "%s/grants", harness_dir());
    setenv("CEDE_TEST_GRANTS", path, 1);
    kill(gpu_pid(), SIGKILL);
    assert_int_equal(await_child(gpu_pid()), 1000 + SIGKILL);
    SPAWN("strict", "cede", "softgpu", "--grants", path);
    assert_true(EVENTUALLY(strstr(contents("strict.out"), "listening")));
    setenv("LD_PRELOAD", getenv("RECORD_GRANTS"), 1);
}

/* A latency job and two batch jobs, one of which waits for its turn; whoever started the daemon has
 * left. */
static struct scene begin(void)
{
    struct scene s = {.first = 0};
    strict_gpu();
    s.first = run_job("first", "batch", "batch");
    assert_true(EVENTUALLY(job_int("first", "processes") == 1));
    for (int i = 0; i < N; i++)
        s.runner[i] = run_job(names[i], i ? "batch" : "latency", i ? "batch" : "latency");
    for (int i = 0; i < N; i++) {
        assert_true(EVENTUALLY(job_int(names[i], "processes") == 1));
        assert_int_equal(children_of(s.runner[i], &s.program[i], 1), 1);
    }
    json_decref(load_end("first", s.first));
    s.daemon = daemon_pid();
    assert_true(EVENTUALLY(children_of(s.daemon, &s.restorer, 1) == 1));
    assert_true(EVENTUALLY(suspended(s.program[B1]) || suspended(s.program[B2])));
    return s;
}

static void end(const struct scene *s)
{
    unsetenv("LD_PRELOAD");
    for (int i = 0; i < N; i++)
        json_decref(load_end(names[i], s->runner[i] ? s->runner[i] : s->program[i]));
}

/* So that somebody is suspended at that moment, and nothing happens between the kills. */
static void kill_all_that_undo(const struct scene *s)
{
    assert_true(EVENTUALLY(({
        kill(s->daemon, SIGSTOP);
        await_state(s->daemon, "T");
        bool waits = suspended(s->program[B1]);
        if (!waits)
            kill(s->daemon, SIGCONT);
        waits;
    })));
    kill(s->restorer, SIGSTOP);
    await_state(s->restorer, "T");
    kill(s->daemon, SIGKILL);
    assert_int_equal(await_child(s->daemon), 1000 + SIGKILL);
    kill(s->restorer, SIGKILL);
    assert_int_equal(await_child(s->restorer), 1000 + SIGKILL);
}

static void kill_runner(struct scene *s, int i)
{
    kill(s->runner[i], SIGKILL);
    assert_int_equal(await_child(s->runner[i]), 1000 + SIGKILL);
    s->runner[i] = 0;
}

static void assert_undone(const struct scene *s)
{
    assert_int_equal(records(NULL), 0);
    assert_true(all_slices_default(s->program, N));
    await_progress(s->program, N);
}

static void the_daemon_is_killed(void **state)
{
    (void)state;
    struct scene s = begin();
    kill(s.daemon, SIGKILL);
    assert_int_equal(await_child(s.daemon), 1000 + SIGKILL);
    assert_int_equal(await_child(s.restorer), 0);
    assert_undone(&s);
    end(&s);
}

static void runner_and_daemon_are_killed(void **state)
{
    (void)state;
    struct scene s = begin();
    kill_runner(&s, B1);
    kill_runner(&s, B2);
    assert_true(EVENTUALLY(suspended(s.program[B1])));
    kill(s.daemon, SIGKILL);
    assert_int_equal(await_child(s.daemon), 1000 + SIGKILL);
    assert_int_equal(await_child(s.restorer), 0);
    assert_undone(&s);
    end(&s);
}

/* The next to come is a daemon that another `cede run` starts. */
static void both_are_killed_and_another_run_comes(void **state)
{
    (void)state;
    struct scene s = begin();
    kill_all_that_undo(&s);
    assert_true(suspended(s.program[B1]));
    pid_t other = run_job("other", "batch", "batch");
    assert_true(EVENTUALLY(job_int("other", "processes") == 1));
    assert_int_not_equal(daemon_pid(), s.daemon);
    await_progress(s.program, N);
    json_decref(load_end("other", other));
    end(&s);
}

/* Or a verb, which is nobody's descendant. */
static void runner_and_both_are_killed(void **state)
{
    (void)state;
    struct scene s = begin();
    kill_runner(&s, B1);
    kill_all_that_undo(&s);
    CEDE("ps");
    await_progress(&s.program[B1], 1);
    end(&s);
}

/* What the stand-in refuses: a program that has named nobody. */
static void a_stranger_is_refused(void **state)
{
    (void)state;
    strict_gpu();
    pid_t pid = LOAD("b1", "batch");
    assert_true(EVENTUALLY(all_have_contexts(&pid, 1)));
    RUN(&result, "cede", "pause", pid_text(pid));
    assert_int_equal(status_of(result.status), 1);
    assert_non_null(strstr(result.err, "try as root"));
    await_progress(&pid, 1);
    unsetenv("LD_PRELOAD");
    json_decref(load_end("b1", pid));
}

int main(void)
{
    const uid_t nobody = 65534;
    if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(nobody, nobody, nobody) < 0 ||
                           setresuid(nobody, nobody, nobody) < 0))
        return 77;
    if (access(harness_exe(), X_OK) < 0) {
        fprintf(stderr, "user %u cannot execute %s: skipped\n", (unsigned)nobody, harness_exe());
        return 77;
    }
    const struct CMUnitTest tests[] = {
        e2e(a_stranger_is_refused),        e2e(the_daemon_is_killed),
        e2e(runner_and_daemon_are_killed), e2e(both_are_killed_and_another_run_comes),
        e2e(runner_and_both_are_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
