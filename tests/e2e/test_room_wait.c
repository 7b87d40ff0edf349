/* A latency job that needs more memory while it runs, on a software GPU with 3 GiB: libcede asks
 * the daemon, batch jobs leave for it and come back, whoever is killed meanwhile. */
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
    AWAIT(!job_is("a", "state", "swapped") && !job_is("a", "state", "swapping-out") &&
          !job_is("a", "state", "swapping-in"));
    await_progress(&a, 1);
}

E2E(other_classes_wait_alone)
{
    pid_t a;
    wait_begin(&a);
    pid_t lat = program("normal", "2");
    AWAIT(said("refused: -12"));
    assert_false(said("asked"));
    assert_true(said("the daemon makes room for jobs of class latency only"));
    assert_false(job_is("a", "state", "swapped"));
    kill_program(lat);
    json_decref(load_end("a", a));
}

E2E(the_program_is_killed)
{
    pid_t a;
    wait_begin(&a);
    for (int when = 0; when < 3; when++) {
        pid_t lat = program("latency", "60");
        if (when == 0)
            AWAIT(said("asked"));
        else if (when == 1)
            AWAIT(job_is("a", "state", "swapping-out") || said("granted"));
        else
            AWAIT(said("granted"));
        if (when == 2) {
            AWAIT(job_is("a", "state", "swapped"));
            nap_ms(1500); /* it has what it waited for, and keeps it */
            assert_true(job_is("a", "state", "swapped"));
            assert_true(job_int("lat", "memory_bytes") >= 2147483648LL);
        }
        kill_program(lat);
        comes_back(a);
        AWAIT(job_gone("lat"));
    }
    json_decref(load_end("a", a));
}

E2E(the_daemon_is_killed)
{
    pid_t a;
    struct ceded d = wait_begin(&a);
    pid_t lat = program("latency", "120");
    AWAIT(said("asked"));
    ceded_kill(&d);
    d = ceded_start();
    AWAIT(said("granted"));
    kill_program(lat);
    comes_back(a);
    json_decref(load_end("a", a));
}

int main(void)
{
    return e2e_at_once();
}
