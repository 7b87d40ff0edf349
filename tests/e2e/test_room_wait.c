/* A latency job that needs more memory while it runs, on a software GPU with 3 GiB: libcede asks
 * the daemon, batch jobs leave for it and come back, whoever is killed meanwhile. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fixture.h"

#define GPU_BYTES "3221225472"
#define TWO_GIB   "2147483648"

static unsigned runs; /* of the program; each has an output of its own */

static struct ceded wait_begin(pid_t *a)
{
    small_gpu(GPU_BYTES);
    struct ceded d = ceded_start();
    *a = LOAD("a", "batch", "--memory", TWO_GIB);
    await_progress(a, 1);
    CEDE("set", pid_text(*a), "-c", "batch");
    return d;
}

static pid_t program(const char *class, const char *seconds)
{
    char path[512], name[16];
    snprintf(path, sizeof(path), "LD_LIBRARY_PATH=%s", getenv("CEDE_ROOM_CUDA"));
    runs++;
    snprintf(name, sizeof(name), "lat%u", runs);
    return SPAWN(name, "cede", "run", "-q", "-c", class, "-n", "lat", "--", "env", path,
                 getenv("CEDE_ROOM_PROGRAM"), TWO_GIB, seconds);
}

static const char *output(void)
{
    char name[16];
    snprintf(name, sizeof(name), "lat%u.out", runs);
    return contents(name);
}

/* The program itself, which cede run then sees. */
static void kill_program(pid_t runner)
{
    int pid = 0;
    assert_int_equal(sscanf(output(), "pid %d", &pid), 1);
    kill(pid, SIGKILL);
    assert_int_equal(await_child(runner), 1000 + SIGKILL);
}

static bool said(const char *word)
{
    return strstr(output(), word);
}

/* Nobody keeps it out, and all its work is right. */
static void comes_back(pid_t a)
{
    assert_true(EVENTUALLY(!job_is("a", "state", "swapped") &&
                           !job_is("a", "state", "swapping-out") &&
                           !job_is("a", "state", "swapping-in")));
    await_progress(&a, 1);
}

static void batch_jobs_leave(void **state)
{
    (void)state;
    pid_t a;
    struct ceded d = wait_begin(&a), *p = &d;
    pid_t lat = program("latency", "60");
    assert_true(EVENTUALLY(said("granted")));
    assert_true(said("asked"));
    assert_true(EVENTUALLY(job_is("a", "state", "swapped")));
    nap_ms(2000); /* it has what it waited for, and keeps it */
    assert_true(job_is("a", "state", "swapped"));
    assert_true(job_int("lat", "memory_bytes") >= 2147483648LL);
    kill_program(lat);
    comes_back(a);
    json_decref(load_end("a", a));
    ceded_stop(p);
}

static void other_classes_wait_alone(void **state)
{
    (void)state;
    pid_t a;
    struct ceded d = wait_begin(&a);
    pid_t lat = program("normal", "2");
    assert_true(EVENTUALLY(said("refused: -12")));
    assert_false(said("asked"));
    assert_true(said("the daemon makes room for jobs of class latency only"));
    assert_false(job_is("a", "state", "swapped"));
    kill_program(lat);
    json_decref(load_end("a", a));
    ceded_stop(&d);
}

static void the_program_is_killed(void **state)
{
    (void)state;
    pid_t a;
    struct ceded d = wait_begin(&a);
    for (int when = 0; when < 3; when++) {
        pid_t lat = program("latency", "60");
        if (when == 0)
            assert_true(EVENTUALLY(said("asked")));
        else if (when == 1)
            assert_true(EVENTUALLY(job_is("a", "state", "swapping-out") || said("granted")));
        else
            assert_true(EVENTUALLY(said("granted")));
        kill_program(lat);
        comes_back(a);
        assert_true(EVENTUALLY(job_gone("lat")));
    }
    json_decref(load_end("a", a));
    ceded_stop(&d);
}

static void the_daemon_is_killed(void **state)
{
    (void)state;
    pid_t a;
    struct ceded d = wait_begin(&a);
    pid_t lat = program("latency", "120");
    assert_true(EVENTUALLY(said("asked")));
    ceded_kill(&d);
    d = ceded_start();
    assert_true(EVENTUALLY(said("granted")));
    kill_program(lat);
    comes_back(a);
    json_decref(load_end("a", a));
    ceded_stop(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {e2e(batch_jobs_leave), e2e(other_classes_wait_alone),
                                       e2e(the_program_is_killed), e2e(the_daemon_is_killed)};
    return cmocka_run_group_tests_name("room_wait", tests, NULL, NULL);
}
