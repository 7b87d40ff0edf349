/* Jobs that yield and acquire: a loop of two programs on a software GPU whose memory holds one of
 * them at a time, whoever is killed meanwhile; a program by libcede; the verbs. In which order jobs
 * acquire, and what each has again: engine_yield; which users may: control_rules. */
#include <fcntl.h>

#include "fixture.h"

#include "cede/cede.h"

#define GPU_BYTES "268435456"
#define JOB_BYTES "136314880" /* moves in 0.3 s; twice does not fit */

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
        /* clang-format off */
        const char *const argv[] = {"cede", "run", "-q", "-c", classes[i], "-n", names[i],
                                    "--gpu-device", "soft", "--", getenv("CEDE_YIELD_LOOP"),
                                    JOB_BYTES, rounds, "2", NULL};
        /* clang-format on */
        char file[16];
        snprintf(file, sizeof(file), "%s.err", names[i]);
        _cleanup_close_ int err =
            open(in_dir(file), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
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
    AWAIT(job_gone("trainer") && job_gone("sampler"));
    assert_int_equal(swap_records(NULL), 0);
    for (int i = 0; i < 4; i++)
        close(l->turn[i / 2][i % 2]);
}

/* Whenever ceded is killed, the next one comes; once its restorer is, too. */
E2E(loop_without_ceded)
{
    struct loop l;
    struct rng rng = {0x9b05688c2b3e6c1f};
    small_gpu(GPU_BYTES);
    struct ceded d = ceded_start();
    loop_start(&l, "12");
    /* One that came later would start a ceded of its own, or find no memory: without a ceded the
     * other has its memory back. */
    AWAIT(job_int("sampler", "memory_bytes") > 0);
    for (int i = 0; i < 8; i++) {
        usleep((useconds_t)(500000 + rng_below(&rng, 1500000)));
        if (i == 5) { /* both at once */
            kill(d.restorer, SIGSTOP);
            await_state(d.restorer, "T");
        }
        slay_child(d.pid);
        pid_t restorer = d.restorer;
        if (i == 5)
            kill(restorer, SIGKILL);
        d = ceded_start();
        await_child(restorer);
    }
    loop_end(&l, 24);
}

/* ---- by verbs and by libcede ---- */

E2E(verbs)
{
    FAILS(1, "start ceded", "acquire", "a");
    struct ceded d = ceded_start();
    FAILS(1, "this process: it is in no job: name a job", "yield");
    FAILS(1, "is in no job, so it has yielded nothing", "acquire");
    CEDE("run", "-q", "-c", "latency", "-n", "own", "--", "sh", "-c",
         "$CEDE_EXE yield --pause && $CEDE_EXE acquire --timeout 10s");
    assert_string_equal(result.out, "#1 own: yielded, batch, paused\n#1 own: acquired, latency\n");
    ceded_stop(&d);
}

/* What is out by hand comes back by hand, and what was yielded by acquiring; so it says. */
E2E(by_hand)
{
    struct ceded d = ceded_start();
    pid_t pid = LOAD("a", "batch", "--memory", "136314880");
    AWAIT(all_have_contexts(&pid, 1));
    CEDE("set", pid_text(pid), "-c", "normal", "-n", "a");
    AWAIT(job_int("a", "memory_bytes") > 0);
    CEDE("swap", "out", "a");
    CEDE("why", "a");
    assert_non_null(strstr(result.out, "was swapped out by hand: `cede swap in` brings it back"));
    CEDE("acquire", "a");
    assert_string_equal(result.out, "");
    assert_non_null(strstr(result.err, "it had yielded nothing\n"));
    assert_non_null(strstr(result.err, "`cede swap in` brings it back"));
    CEDE("yield", "a");
    CEDE("acquire", "a");
    assert_string_equal(result.out, "#1 a: acquired, normal, 0.1 GiB in host memory\n");
    assert_non_null(strstr(result.err, "`cede swap in` brings it back"));

    CEDE("yield", "--pause", "--memory", "a");
    CEDE("ps");
    assert_non_null(strstr(result.err, "note: yielded until `cede acquire`: #1\n"));
    CEDE("resume", "a");
    assert_string_equal(result.out, "#1 a: resumed\n");
    assert_non_null(strstr(result.err, "as it was yielded: `cede acquire` brings it back"));
    CEDE("why", "a");
    assert_non_null(strstr(result.out, "as it was yielded: `cede acquire` brings it back"));
    assert_non_null(
        strstr(result.out, "it has yielded, until `cede acquire`: class normal, memory\n"));
    CEDE("acquire", "--timeout", "60s", "a");
    assert_string_equal(result.out, "#1 a: acquired, normal\n");
    assert_string_equal(result.err, "");
    assert_true(job_is("a", "state", "running"));
    kill(pid, SIGTERM);
    ceded_stop(&d);
}

/* By libcede, of the job of this process, which becomes one; over the end of a daemon. */
E2E(library)
{
    cede_handle *c;
    assert_int_equal(cede_connect(&c), 0);
    assert_int_equal(cede_job_yield(c, 4), -EINVAL);
    assert_int_equal(cede_job_acquire(c, -1), -EINVAL);
    assert_int_equal(cede_job_yield(NULL, 0), 0);
    assert_int_equal(cede_job_acquire(NULL, 0), 0);
    assert_int_equal(cede_job_yield(c, 0), -ENOTCONN);
    assert_int_equal(cede_job_acquire(c, 0), 0); /* nothing is withheld */
    struct ceded d = ceded_start();
    AWAIT(cede_connected(c));
    assert_int_equal(cede_job_acquire(c, 0), 0); /* is in no job */
    assert_int_equal(cede_job_yield(c, CEDE_YIELD_MEMORY), -ENODEV);
    assert_non_null(strstr(cede_error_text(), "it is in no job, or its job has nothing on a GPU"));
    assert_true(job_gone("test_e2e_yield")); /* what is refused makes no job */
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

int main(void)
{
    return e2e_at_once();
}
