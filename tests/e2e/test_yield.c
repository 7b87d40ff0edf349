/* Jobs that yield and acquire, on a software GPU whose memory holds one of them at a time: a loop
 * of two programs, whoever is killed meanwhile; what is given back, to whom, and in which order. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

#include "cede/cede.h"

#define GPU_BYTES "268435456"
#define JOB_BYTES "136314880" /* moves in 0.3 s; twice does not fit */
#define NOBODY    65534

/* A job of one load, under `cede run`; it has its memory. */
static pid_t job_start(const char *name, const char *class, const char *bytes)
{
    pid_t pid = SPAWN(name, "cede", "run", "-c", class, "-n", name, "--gpu-device", "soft", "--",
                      harness_exe(), "load", "batch", "--device", "soft", "--kernel-us", "2000",
                      "--verify", "--memory", bytes);
    if (!EVENTUALLY(job_int(name, "memory_bytes") > 0))
        fail_msg("%s does not run: %s", name, contents("ceded.err"));
    return pid;
}

/* Its status; fails with what ceded says if it does not end. */
static int ends(const char *what, pid_t pid)
{
    if (!EVENTUALLY(process_state(pid) == 'Z')) {
        CEDE("ps");
        fail_msg("%s does not end: %s%s", what, result.out, contents("ceded.err"));
    }
    return await_child(pid);
}

static void job_end(const char *name, pid_t runner)
{
    kill(runner, SIGTERM);
    assert_int_equal(ends(name, runner), 0);
    json_t *done = load_final(name);
    assert_true(json_is_true(json_object_get(done, "verified")));
    json_decref(done);
}

static void fails(const char *why, const char *const argv[])
{
    run_program(&result, NULL, argv);
    assert_int_equal(status_of(result.status), 1);
    if (!strstr(result.err, why))
        fail_msg("no '%s': %s", why, result.err);
}
#define FAILS(why, ...) fails(why, (const char *const[]){"cede", __VA_ARGS__, NULL})

/* ---- a loop of two programs ---- */

struct loop {
    pid_t pid[2];
    int turn[2][2]; /* a pipe to each */
};

static void loop_start(struct loop *l, const char *rounds)
{
    static const char *const names[] = {"trainer", "sampler"}, *const classes[] = {"normal",
                                                                                   "latency"};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pipe2(l->turn[i], O_CLOEXEC), 0);
    for (int i = 0; i < 2; i++) {
        const char *const argv[] = {"cede",
                                    "run",
                                    "-q",
                                    "-c",
                                    classes[i],
                                    "-n",
                                    names[i],
                                    "--gpu-device",
                                    "soft",
                                    "--",
                                    getenv("CEDE_YIELD_LOOP"),
                                    JOB_BYTES,
                                    rounds,
                                    "2",
                                    NULL};
        char path[96];
        snprintf(path, sizeof(path), "%s/%s.err", harness_dir(), names[i]);
        _cleanup_close_ int err = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        l->pid[i] = harness_start(argv, l->turn[i][0], l->turn[!i][1], err, false);
    }
    assert_int_equal(write(l->turn[0][1], "0\n", 2), 2);
}

/* Both have ended well, and no kernel was lost or came twice. */
static void loop_end(struct loop *l, unsigned kernels)
{
    char line[64];
    /* One that fails leaves the other waiting. */
    for (int first = 0, left = 2; left; left--) {
        int status = 0;
        pid_t pid = 0;
        for (int k = 0; k < 6 && !pid; k++) /* it may take minutes on a busy machine */
            (void)EVENTUALLY((pid = waitpid(l->pid[first], &status, WNOHANG)) ||
                             (left == 2 && (pid = waitpid(l->pid[!first], &status, WNOHANG))));
        if (pid <= 0 || status)
            fail_msg("%s: status %d: %s", pid == l->pid[1] ? "sampler" : "trainer",
                     pid > 0 ? status_of(status) : -1,
                     contents(pid == l->pid[1] ? "sampler.err" : "trainer.err"));
        first = pid == l->pid[0];
    }
    read_line(l->turn[0][0], line, sizeof(line));
    assert_int_equal(strtoul(line, NULL, 10), kernels * (kernels + 1));
    assert_true(EVENTUALLY(job_gone("trainer") && job_gone("sampler")));
    assert_int_equal(swap_records(NULL), 0);
    for (int i = 0; i < 4; i++)
        close(l->turn[i / 2][i % 2]);
}

static void loop_of_two(void **state)
{
    (void)state;
    struct loop l;
    small_gpu(GPU_BYTES);
    struct ceded d = ceded_start();
    loop_start(&l, "50");
    loop_end(&l, 100);
    ceded_stop(&d);
}

/* Whenever ceded is killed, the next one comes; once its restorer is, too. */
static void loop_without_ceded(void **state)
{
    (void)state;
    struct loop l;
    struct rng rng = {0x9b05688c2b3e6c1f};
    small_gpu(GPU_BYTES);
    struct ceded d = ceded_start();
    loop_start(&l, "12");
    /* One that came later would start a ceded of its own, or find no memory: without a ceded the
     * other has its memory back. */
    assert_true(EVENTUALLY(job_int("sampler", "memory_bytes") > 0));
    for (int i = 0; i < 8; i++) {
        usleep((useconds_t)(500000 + rng_below(&rng, 1500000)));
        if (i == 5) { /* both at once */
            kill(d.restorer, SIGSTOP);
            await_state(d.restorer, "T");
        }
        kill(d.pid, SIGKILL);
        assert_int_equal(await_child(d.pid), 1000 + SIGKILL);
        pid_t restorer = d.restorer;
        if (i == 5)
            kill(restorer, SIGKILL);
        d = ceded_start();
        await_child(restorer);
    }
    loop_end(&l, 24);
    ceded_stop(&d);
}

/* ---- who gets what back ---- */

static void order_and_callers(void **state)
{
    (void)state;
    small_gpu(GPU_BYTES);
    struct ceded d = ceded_start();
    const char *const names[] = {"a", "b", "c"};
    pid_t jobs[3], caller[2], program;
    for (int i = 0; i < 3; i++) {
        jobs[i] = job_start(names[i], "normal", JOB_BYTES);
        CEDE("yield", "--memory", names[i]);
        assert_non_null(strstr(result.out, ": yielded, batch, 0.1 GiB in host memory\n"));
    }
    CEDE("acquire", "a");
    assert_string_equal(result.out, "#1 a: acquired, normal\n");
    FAILS("no room yet", "acquire", "--timeout", "300ms", "c");
    assert_true(job_is("c", "state", "swapped") && job_is("c", "class", "batch"));

    /* A caller that is killed has no place in line any more, and its job loses nothing. */
    pid_t killed = SPAWN("killed", "cede", "acquire", "c");
    nap_ms(500);
    kill(killed, SIGKILL);
    assert_int_equal(await_child(killed), 1000 + SIGKILL);
    caller[0] = SPAWN("first", "cede", "acquire", "b");
    nap_ms(5500);
    caller[1] = SPAWN("second", "cede", "acquire", "c");
    nap_ms(500);
    assert_true(job_is("b", "state", "swapped") && job_is("c", "state", "swapped"));
    CEDE("yield", "--memory", "a");
    assert_int_equal(ends("first", caller[0]), 0);
    if (!job_is("c", "state", "swapped")) {
        CEDE("ps");
        fail_msg("%s%s", result.out, contents("ceded.err"));
    }
    /* That another one ends is as good as that it yields. */
    assert_int_equal(children_of(jobs[1], &program, 1), 1);
    kill(program, SIGKILL);
    assert_int_not_equal(ends("b", jobs[1]), 0);
    assert_int_equal(ends("second", caller[1]), 0);
    assert_true(job_is("c", "class", "normal") && job_is("a", "state", "swapped"));
    job_end("c", jobs[2]);
    CEDE("acquire", "a");
    job_end("a", jobs[0]);
    assert_int_equal(swap_records(NULL), 0);
    ceded_stop(&d);
}

static void as_it_was(void **state)
{
    (void)state;
    struct ceded d = ceded_start();
    pid_t a = job_start("a", "latency", JOB_BYTES);
    CEDE("set", "a", "--budget", "2ms");
    for (int i = 0; i < 2; i++) { /* yielding again changes nothing of what it had */
        CEDE("yield", "--pause", "a");
        assert_string_equal(result.out, "#1 a: yielded, batch, paused\n");
        assert_true(EVENTUALLY(somebody_suspended()));
        assert_true(job_int("a", "budget_us") == 0);
    }
    ceded_kill(&d);
    assert_false(somebody_suspended());
    d = ceded_start();
    assert_true(job_is("a", "state", "paused") && EVENTUALLY(somebody_suspended()));
    CEDE("acquire", "a");
    assert_true(job_is("a", "class", "latency") && job_int("a", "budget_us") == 2000);
    assert_true(EVENTUALLY(!somebody_suspended()));
    CEDE("acquire", "a"); /* it has all */

    /* What a person decides meanwhile stays. */
    CEDE("yield", "--pause", "a");
    CEDE("set", "a", "-c", "normal");
    CEDE("pause", "a");
    CEDE("acquire", "a");
    assert_true(job_is("a", "class", "normal") && job_is("a", "state", "paused"));
    CEDE("resume", "a");
    CEDE("yield", "--memory", "a");
    CEDE("swap-out", "a");
    FAILS("no room yet", "acquire", "--timeout", "100ms", "a");
    CEDE("swap-in", "a");
    CEDE("acquire", "a");
    assert_string_equal(result.out, "#1 a: acquired, normal\n");
    job_end("a", a);

    /* Memory that cannot leave: nothing has changed. */
    small_gpu("200000000000000");
    a = job_start("huge", "latency", "1000000000000");
    FAILS("it runs on", "yield", "--pause", "--memory", "huge");
    assert_true(job_is("huge", "class", "latency"));
    assert_true(EVENTUALLY(job_is("huge", "state", "running")));
    job_end("huge", a);
    FAILS("this process: it is in no job: name a job", "yield");
    FAILS("is in no job, so it has yielded nothing", "acquire");
    CEDE("run", "-q", "-c", "latency", "-n", "own", "--", "sh", "-c",
         "$CEDE_EXE yield && $CEDE_EXE acquire --timeout 10s");
    assert_non_null(strstr(result.out, " own: yielded, batch\n"));
    assert_non_null(strstr(result.out, " own: acquired, latency\n"));
    ceded_stop(&d);
    FAILS("start ceded", "acquire", "a");
}

/* By libcede, of the job of this process, which becomes one; over the end of a daemon. */
static void library(void **state)
{
    (void)state;
    cede_handle *c;
    assert_int_equal(cede_connect(&c), 0);
    assert_int_equal(cede_job_yield(c, 4), -EINVAL);
    assert_int_equal(cede_job_acquire(c, -1), -EINVAL);
    assert_int_equal(cede_job_yield(NULL, 0), 0);
    assert_int_equal(cede_job_acquire(NULL, 0), 0);
    assert_int_equal(cede_job_yield(c, 0), -ENOTCONN);
    assert_int_equal(cede_job_acquire(c, 0), 0); /* nothing is withheld */
    struct ceded d = ceded_start();
    assert_true(EVENTUALLY(cede_connected(c)));
    assert_int_equal(cede_job_acquire(c, 0), 0); /* is in no job */
    assert_int_equal(cede_job_yield(c, CEDE_YIELD_MEMORY), -ENODEV);
    assert_true(job_is("test_e2e_yield", "class", "normal"));
    assert_int_equal(cede_job_yield(c, CEDE_YIELD_PAUSE), 0);
    assert_true(job_is("test_e2e_yield", "class", "batch"));
    assert_true(job_is("test_e2e_yield", "state", "paused"));
    assert_int_equal(cede_job_acquire(c, 0), 0);
    assert_true(job_is("test_e2e_yield", "class", "normal"));
    assert_int_equal(cede_job_yield(c, 0), 0);
    ceded_kill(&d);
    d = ceded_start();
    assert_true(job_is("test_e2e_yield", "class", "batch"));
    assert_int_equal(cede_job_acquire(c, 0), 0);
    assert_true(job_is("test_e2e_yield", "class", "normal"));
    kill(d.pid, SIGSTOP);
    assert_int_equal(cede_job_acquire(c, 1500000), -ETIMEDOUT); /* no answer */
    kill(d.pid, SIGCONT);
    assert_int_equal(cede_job_acquire(c, 5000000), 0);
    ceded_kill(&d);
    assert_int_equal(cede_job_yield(c, 0), -ENOTCONN); /* nor does another come in 5 s */
    cede_close(c);
}

static int as_nobody(const char *const argv[])
{
    char path[96];
    snprintf(path, sizeof(path), "%s/nobody.out", harness_dir());
    _cleanup_close_ int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(out, STDOUT_FILENO);
        dup2(out, STDERR_FILENO);
        if (setgroups(0, NULL) < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
            _exit(126);
        execv(harness_exe(), (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return await_child(pid);
}
#define AS_NOBODY(...) as_nobody((const char *const[]){"cede", __VA_ARGS__, NULL})

static void other_users(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(chmod(harness_dir(), 0711), 0);
    struct ceded d = ceded_start();
    if (AS_NOBODY("--version") == 127)
        skip(); /* the build is where others may not look */
    pid_t a = SPAWN("a", "cede", "run", "-q", "-c", "latency", "-n", "ours", "--", "sleep", "100");
    assert_true(EVENTUALLY(job_is("ours", "class", "latency")));
    assert_int_equal(AS_NOBODY("yield", "ours"), 1);
    assert_non_null(strstr(contents("nobody.out"), "this belongs to uid 0"));
    assert_int_equal(AS_NOBODY("acquire", "ours"), 1);
    assert_non_null(strstr(contents("nobody.out"), "this belongs to uid 0"));
    assert_true(job_is("ours", "class", "latency"));
    kill(a, SIGKILL);
    await_child(a);

    /* Its own job it may, unless an administrator had it yield. */
    pid_t b = fork();
    if (b == 0) {
        if (setgroups(0, NULL) < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
            _exit(126);
        execl(harness_exe(), "cede", "run", "-q", "-n", "theirs", "--", "sleep", "100", NULL);
        _exit(127);
    }
    assert_true(EVENTUALLY(job_is("theirs", "class", "normal")));
    assert_int_equal(AS_NOBODY("yield", "theirs"), 0);
    assert_true(job_is("theirs", "class", "batch"));
    assert_int_equal(AS_NOBODY("acquire", "theirs"), 0);
    assert_true(job_is("theirs", "class", "normal"));
    CEDE("yield", "theirs");
    assert_int_equal(AS_NOBODY("yield", "theirs"), 0);
    assert_int_equal(AS_NOBODY("acquire", "theirs"), 1);
    assert_non_null(strstr(contents("nobody.out"), "uid 0 yielded it"));
    CEDE("acquire", "theirs");
    assert_true(job_is("theirs", "class", "normal"));
    kill(b, SIGKILL);
    await_child(b);
    ceded_stop(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {e2e(loop_of_two),       e2e(loop_without_ceded),
                                       e2e(order_and_callers), e2e(as_it_was),
                                       e2e(library),           e2e(other_users)};
    return e2e_at_once(tests, ARRAY_SIZE(tests));
}
