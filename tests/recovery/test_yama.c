/* A user's programs where kernel.yama.ptrace_scope is 1, on a software GPU that refuses as Yama
 * would: whoever of ceded, its restorer and the runners is killed while a job is suspended,
 * somebody is left that may undo it. Nothing of this is tested as root, who needs no grant. */
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "both.h"

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
    kill_now(gpu_pid());
    SPAWN("strict", "cede", "softgpu", "--grants", path);
    AWAIT(strstr(contents("strict.out"), "listening"));
    setenv("LD_PRELOAD", getenv("RECORD_GRANTS"), 1);
}

/* A latency job and two batch jobs, one of which waits for its turn; whoever started the daemon has
 * left. */
static struct scene begin(void)
{
    struct scene s = {.first = 0};
    strict_gpu();
    s.first = run_job("first", "batch", "batch");
    AWAIT(job_int("first", "processes") == 1);
    for (int i = 0; i < N; i++)
        s.runner[i] = run_job(names[i], i ? "batch" : "latency", i ? "batch" : "latency");
    for (int i = 0; i < N; i++) {
        AWAIT(job_int(names[i], "processes") == 1);
        assert_int_equal(children_of(s.runner[i], &s.program[i], 1), 1);
    }
    json_decref(load_end("first", s.first));
    s.daemon = daemon_pid();
    AWAIT(children_of(s.daemon, &s.restorer, 1) == 1);
    AWAIT(suspended(s.program[B1]) || suspended(s.program[B2]));
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
    AWAIT(({
        kill(s->daemon, SIGSTOP);
        await_state(s->daemon, "T");
        bool waits = suspended(s->program[B1]);
        if (!waits)
            kill(s->daemon, SIGCONT);
        waits;
    }));
    kill_both(s->daemon, s->restorer);
}

static void kill_runner(struct scene *s, int i)
{
    kill_now(s->runner[i]);
    s->runner[i] = 0;
}

static void kill_daemon(const struct scene *s)
{
    kill_now(s->daemon);
    assert_int_equal(await_child(s->restorer), 0);
    assert_int_equal(records(NULL), 0);
    assert_true(all_slices_default(s->program, N));
    await_progress(s->program, N);
    end(s);
}

E2E(the_daemon_is_killed)
{
    const struct scene s = begin();
    kill_daemon(&s);
}

E2E(runner_and_daemon_are_killed)
{
    struct scene s = begin();
    kill_runner(&s, B1);
    kill_runner(&s, B2);
    AWAIT(suspended(s.program[B1]));
    kill_daemon(&s);
}

/* The next to come is a daemon that another `cede run` starts. */
E2E(both_are_killed_and_another_run_comes)
{
    struct scene s = begin();
    kill_all_that_undo(&s);
    assert_true(suspended(s.program[B1]));
    pid_t other = run_job("other", "batch", "batch");
    AWAIT(job_int("other", "processes") == 1);
    assert_int_not_equal(daemon_pid(), s.daemon);
    await_progress(s.program, N);
    json_decref(load_end("other", other));
    end(&s);
}

/* Or a verb, which is nobody's descendant. */
E2E(runner_and_both_are_killed)
{
    struct scene s = begin();
    kill_runner(&s, B1);
    kill_all_that_undo(&s);
    CEDE("ps");
    await_progress(&s.program[B1], 1);
    end(&s);
}

/* What the stand-in refuses: a program that has named nobody. */
E2E(a_stranger_is_refused)
{
    strict_gpu();
    pid_t pid = LOAD("b1", "batch");
    AWAIT(all_have_contexts(&pid, 1));
    FAILS(1, "try as root", "pause", pid_text(pid));
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
    return test_run(NULL, NULL);
}
