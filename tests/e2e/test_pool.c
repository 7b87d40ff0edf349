/* `cede run --pool`: batch jobs as clients of an MPS server that cede runs for them; a stand-in for
 * the vendor's control daemon (mps/). */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"

#define POOL "pool-all"

/* "" if there is none. */
static const char *pool_file(const char *name)
{
    char path[64];
    struct stat st;
    static char full[160];
    snprintf(path, sizeof(path), POOL "/%s", name);
    snprintf(full, sizeof(full), "%s/%s", harness_dir(), path);
    return stat(full, &st) == 0 ? contents(path) : "";
}

static pid_t pid_of(const char *name)
{
    return (pid_t)strtol(pool_file(name), NULL, 10);
}

/* How often a control daemon began. */
static unsigned begun(void)
{
    unsigned n = 0;
    for (const char *c = pool_file("mps/count"); *c; c++)
        n += *c == '\n';
    return n;
}

static bool is_over(void)
{
    pid_t control = pid_of("control");
    return control && !process_state(control) && !*pool_file("mps/control");
}

/* The process that `cede run` executes. */
static pid_t program_of(pid_t runner)
{
    pid_t v[4];
    size_t n = 0;
    EVENTUALLY((n = children_of(runner, v, 4)) > 0);
    assert_int_equal(n, 1);
    return v[0];
}

static pid_t keeper(void)
{
    pid_t v[64];
    size_t n = children_of(getpid(), v, ARRAY_SIZE(v)); /* this process is a subreaper */
    for (size_t i = 0; i < n && i < ARRAY_SIZE(v); i++) {
        struct proc_stat st;
        if (proc_stat_read(v[i], &st) == 0 && strcmp(st.comm, "cede-pool") == 0 && st.state != 'Z')
            return v[i];
    }
    return 0;
}

static long long unit_of_job(const char *name)
{
    json_t *job = job_named(name);
    long long unit = json_integer_value(json_object_get(json_object_get(job, "mps"), "unit"));
    json_decref(job);
    return unit;
}

#define IN_POOL(name, ...)                                                                         \
    SPAWN(name, "cede", "run", "-q", "-c", "batch", "--pool", "-n", name, "--", __VA_ARGS__)

static void together_and_gone(void **state)
{
    (void)state;
    configure(20, "");
    struct ceded d = ceded_start();
    pid_t a = IN_POOL("a", harness_exe(), "load", "batch", "--device", "soft", "--verify");
    assert_true(EVENTUALLY(job_int("a", "timeslice_us") > 0));
    pid_t b = IN_POOL("b", harness_exe(), "load", "batch", "--device", "soft", "--verify");
    assert_true(EVENTUALLY(unit_of_job("a") > 0 && unit_of_job("a") == unit_of_job("b")));
    assert_int_equal(begun(), 1);
    pid_t p[] = {program_of(a), program_of(b)};
    await_progress(p, 2);
    kill(a, SIGTERM);
    assert_int_equal(await_child(a), 0);
    nap_ms(500);
    assert_int_not_equal(process_state(pid_of("control")), 0);
    kill(b, SIGTERM);
    assert_int_equal(await_child(b), 0);
    assert_true(EVENTUALLY(is_over()));
    assert_true(EVENTUALLY(!keeper()));
    assert_string_equal(pool_file("faults"), "");
    /* The next one begins anew. */
    CEDE("run", "-c", "batch", "--pool", "--sm", "30%", "--", "sh", "-c",
         "echo $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    assert_non_null(strstr(result.out, "/" POOL "/mps 30\n"));
    assert_int_equal(begun(), 2);
    ceded_stop(&d);
}

/* At the same instant: one control daemon. */
static void many_at_once(void **state)
{
    (void)state;
    pid_t p[20];
    configure(20, "");
    struct ceded d = ceded_start();
    for (int i = 0; i < 20; i++)
        p[i] = IN_POOL("many", "sh", "-c", "test -e \"$CUDA_MPS_PIPE_DIRECTORY/control\"");
    for (int i = 0; i < 20; i++)
        assert_int_equal(await_child(p[i]), 0);
    assert_string_equal(contents("many.err"), "");
    assert_int_equal(begun(), 1);
    assert_true(EVENTUALLY(is_over()));
    ceded_stop(&d);
}

static void killed(void **state)
{
    (void)state;
    configure(20, "");
    struct ceded d = ceded_start();
    /* The runner: its program is in the pool still. */
    pid_t a = IN_POOL("a", "sh", "-c", "echo $$ > $CEDE_DIR/a.pid; exec sleep 1000");
    assert_true(EVENTUALLY(*pool_file("../a.pid")));
    pid_t program = program_of(a), control = pid_of("control");
    kill(a, SIGKILL);
    await_child(a);
    nap_ms(4000);
    assert_int_not_equal(process_state(control), 0);
    /* The keeper: the next user starts another, and the same daemon serves. */
    pid_t old = keeper();
    assert_int_not_equal(old, 0);
    kill(old, SIGKILL);
    await_child(old);
    pid_t b = IN_POOL("b", "sleep", "1000");
    assert_true(EVENTUALLY(keeper()));
    assert_int_equal(begun(), 1);
    assert_int_equal(pid_of("control"), control);
    /* The server: the others' programs fail by themselves; what happened is said. */
    pid_t c = IN_POOL("c", "sh", "-c",
                      "cd $CUDA_MPS_PIPE_DIRECTORY; until [ -s ../faults ]; do "
                      "kill -9 $(cat server); sleep 0.4; done; exit 3");
    assert_int_equal(await_child(c), 3);
    assert_non_null(
        strstr(contents("c.err"), "the pool of 'sh' failed while it ran: its MPS server"));
    /* The control daemon: the next has a new one. */
    kill(control, SIGKILL);
    await_state(control, "Z");
    pid_t e = IN_POOL("e", "true");
    assert_int_equal(await_child(e), 0);
    assert_int_equal(begun(), 2);
    assert_int_not_equal(pid_of("control"), control);
    kill(program, SIGKILL);
    kill(program_of(b), SIGKILL);
    await_child(b);
    assert_true(EVENTUALLY(is_over()));
    ceded_stop(&d);
}

/* A file that the stand-in looks for. */
static void stand_in(const char *what)
{
    static const char *const dirs[] = {POOL, POOL "/mps"};
    char path[160];
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        snprintf(path, sizeof(path), "%s/%s", harness_dir(), dirs[i]);
        mkdir(path, 0700);
    }
    snprintf(path, sizeof(path), "%s/" POOL "/mps/%s", harness_dir(), what);
    fclose(fopen(path, "w"));
}

/* Who begins the pool is killed meanwhile: the next waits until it is there, and it ends. */
static void killed_at_its_beginning(void **state)
{
    (void)state;
    configure(20, "");
    struct ceded d = ceded_start();
    stand_in("slow");
    pid_t a = IN_POOL("a", "true");
    assert_true(EVENTUALLY(pid_of("control")));
    kill(a, SIGKILL);
    await_child(a);
    pid_t b = IN_POOL("b", "sh", "-c", "test -e $CUDA_MPS_PIPE_DIRECTORY/control");
    assert_int_equal(await_child(b), 0);
    assert_string_equal(contents("b.err"), "");
    assert_int_equal(begun(), 1);
    assert_true(EVENTUALLY(is_over()));
    assert_true(EVENTUALLY(!keeper()));
    ceded_stop(&d);
}

/* What the first user has open is not the pool's to keep. */
static void foreign_descriptors(void **state)
{
    (void)state;
    configure(20, "");
    struct ceded d = ceded_start();
    RUN(&result, "sh", "-c",
        "cd $CEDE_DIR && exec 9>l && flock 9 && $CEDE_EXE run -c batch --pool -- true && exec 9>&- "
        "&& flock -n l true");
    assert_int_equal(status_of(result.status), 0);
    assert_true(keeper());
    assert_true(EVENTUALLY(is_over()));
    ceded_stop(&d);
}

/* Where there can be none the job runs without, and a line says why. */
static void without(void **state)
{
    (void)state;
    char *before = strdup(getenv("PATH"));
    configure(20, "");
    struct ceded d = ceded_start();
    setenv("CUDA_MPS_PIPE_DIRECTORY", "/else", 1);
    CEDE("run", "-c", "batch", "--pool", "--", "sh", "-c", "echo $CUDA_MPS_PIPE_DIRECTORY");
    assert_string_equal(result.out, "/else\n");
    assert_non_null(
        strstr(result.err, "'sh' runs outside of a pool: CUDA_MPS_PIPE_DIRECTORY is set"));
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");

    setenv("PATH", "/usr/bin:/bin", 1);
    CEDE("run", "-c", "batch", "--pool", "--", "sh", "-c", "echo .$CUDA_MPS_PIPE_DIRECTORY");
    assert_string_equal(result.out, ".\n");
    assert_non_null(strstr(result.err, "there is no nvidia-cuda-mps-control in $PATH"));
    setenv("PATH", before, 1);

    stand_in("fails");
    CEDE("run", "-c", "batch", "--pool", "--", "sh", "-c", "echo .$CUDA_MPS_PIPE_DIRECTORY");
    assert_string_equal(result.out, ".\n");
    assert_non_null(strstr(result.err, "the MPS control daemon does not start"));
    assert_non_null(strstr(pool_file("log/control.err"), "cannot begin"));

    RUN(&result, "cede", "run", "--pool", "--", "true");
    assert_int_equal(status_of(result.status), 2);
    RUN(&result, "cede", "run", "-c", "batch", "--sm", "30", "--", "true");
    assert_int_equal(status_of(result.status), 2);
    RUN(&result, "cede", "run", "-c", "batch", "--pool", "--sm", "0", "--", "true");
    assert_int_equal(status_of(result.status), 2);
    free(before);
    ceded_stop(&d);
}

static void configured(void **state)
{
    (void)state;
    set_device("soft\npool = batch");
    configure(20, "");
    struct ceded d = ceded_start();
    CEDE("run", "-c", "batch", "--", "sh", "-c", "echo .$CUDA_MPS_PIPE_DIRECTORY");
    assert_non_null(strstr(result.out, POOL));
    CEDE("run", "--", "sh", "-c", "echo .$CUDA_MPS_PIPE_DIRECTORY");
    assert_string_equal(result.out, ".\n");
    /* In a pool it would have no effect. */
    CEDE("run", "-c", "batch", "--preempt", "block", "--", "sh", "-c",
         "echo .$CUDA_MPS_PIPE_DIRECTORY");
    assert_string_equal(result.out, ".\n");
    ceded_stop(&d);
}

int main(void)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s:%s", getenv("CEDE_MPS_STAND_IN"), getenv("PATH"));
    setenv("PATH", path, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    const struct CMUnitTest tests[] = {
        e2e(together_and_gone),   e2e(many_at_once), e2e(killed),    e2e(killed_at_its_beginning),
        e2e(foreign_descriptors), e2e(without),      e2e(configured)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
