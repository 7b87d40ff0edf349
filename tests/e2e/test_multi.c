/* One daemon over two software GPUs, each a server of its own: each is scheduled by itself, and
 * the end of one server, of the daemon, or of both leaves nobody suspended on the other. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

enum { LAT, A1, A2, ON_A, B1 = ON_A, B2, N };
static const char *const names[N] = {"lat", "a1", "a2", "b1", "b2"};
static pid_t pids[N], second;

static void use_server(bool b)
{
    char path[96];
    snprintf(path, sizeof(path), "%s/gpu%s", harness_dir(), b ? "2" : "");
    setenv("CEDE_SOFT_SOCKET", path, 1);
}

static void start_second(const char *name)
{
    char file[32];
    use_server(true);
    second = SPAWN(name, "cede", "softgpu");
    snprintf(file, sizeof(file), "%s.out", name);
    assert_true(EVENTUALLY(strstr(contents(file), "listening")));
}

/* A latency job and two batch jobs on the first GPU, two batch jobs on the second. */
static struct ceded begin(void)
{
    char list[256];
    start_second("softgpu2");
    for (int i = 0; i < N; i++) {
        use_server(i >= ON_A);
        pids[i] =
            i == LAT ? LOAD(names[i], "latency", "--period-us", "20000") : LOAD(names[i], "batch");
    }
    assert_true(EVENTUALLY(all_have_contexts(pids + B1, 2)));
    use_server(false);
    assert_true(EVENTUALLY(all_have_contexts(pids, ON_A)));
    snprintf(list, sizeof(list), "soft@%s/gpu,soft@%s/gpu2", harness_dir(), harness_dir());
    set_device(list);
    configure(20, "");
    struct ceded d = ceded_start();
    for (int i = 0; i < N; i++)
        CEDE("set", pid_text(pids[i]), "-c", i == LAT ? "latency" : "batch");
    return d;
}

static void await_turns(void)
{
    assert_true(EVENTUALLY(suspended(pids[A1])));
    assert_true(EVENTUALLY(suspended(pids[A2])));
}

static void assert_all_default(void)
{
    assert_int_equal(records(NULL), 0);
    assert_true(all_slices_default(pids, ON_A));
    use_server(true);
    assert_true(all_slices_default(pids + B1, 2));
    await_progress(pids + B1, 2);
    use_server(false);
    await_progress(pids, ON_A);
}

static void end_loads(int n)
{
    for (int i = 0; i < n; i++)
        json_decref(load_end(names[i], pids[i]));
}

static long long gpu_of(const char *name)
{
    json_t *job = job_named(name), *gpus = json_object_get(job, "gpus");
    long long gpu = json_array_size(gpus) == 1 ? json_integer_value(json_array_get(gpus, 0)) : -1;
    json_decref(job);
    return gpu;
}

static void each_by_itself(void **state)
{
    (void)state;
    struct ceded d = begin();
    await_turns();
    for (int i = 0; i < N; i++) {
        assert_true(EVENTUALLY(gpu_of(names[i]) == (i >= ON_A)));
        assert_true(job_is(names[i], "level_name", "hardware"));
        assert_int_equal(job_int(names[i], "level"), LEVEL_QUEUE);
    }
    /* No latency job is on the second one: nobody there has to wait. */
    assert_true(runs_on(pids + B1, 2));
    assert_int_equal(job_int(names[LAT], "timeslice_us"), 1000000);
    assert_int_equal(job_int(names[B1], "timeslice_us"), job_int(names[B2], "timeslice_us"));
    assert_true(job_int(names[B1], "timeslice_us") > SLICE_DEFAULT_US);

    CEDE("pause", "b1");
    assert_true(suspended(pids[B1]));
    CEDE("ps", "--json");
    json_t *o = json_loads(result.out, 0, NULL), *gpus = json_object_get(o, "gpus");
    static const char *const labels[] = {"soft0", "soft1"};
    assert_int_equal(json_array_size(gpus), 2);
    for (size_t i = 0; i < 2; i++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(gpus, i), "label")),
                            labels[i]);
    assert_string_equal(json_string_value(json_object_get(o, "device")), "soft");
    json_decref(o);
    CEDE("resume", "b1");
    ceded_stop(&d);
    assert_all_default();
    end_loads(N);
}

static void one_server_killed(void **state)
{
    (void)state;
    struct ceded d = begin();
    await_turns();
    CEDE("pause", "b2");
    assert_int_equal(kill(second, SIGKILL), 0);
    assert_int_equal(await_child(second), 1000 + SIGKILL);
    for (int i = B1; i < N; i++) {
        kill(pids[i], SIGKILL);
        await_child(pids[i]);
    }
    await_progress(pids, ON_A);
    await_turns();
    for (int i = 0; i < ON_A; i++) {
        json_t *job = job_named(names[i]);
        assert_non_null(job);
        assert_null(json_object_get(job, "error"));
        json_decref(job);
    }
    assert_true(EVENTUALLY(strstr(contents("ceded.err"), "gpu2")));

    /* Another server at that place. */
    start_second("softgpu3");
    pid_t late = LOAD("late", "batch");
    assert_true(EVENTUALLY(all_have_contexts(&late, 1)));
    CEDE("set", pid_text(late), "-c", "batch");
    assert_true(EVENTUALLY(gpu_of("late") == 1));
    CEDE("pause", "late");
    assert_true(suspended(late));
    ceded_stop(&d);
    assert_int_equal(records(NULL), 0);
    await_progress(&late, 1);
    json_decref(load_end("late", late));
    use_server(false);
    assert_true(all_slices_default(pids, ON_A));
    end_loads(ON_A);
}

static void daemon_killed(void **state)
{
    (void)state;
    struct ceded d = begin();
    await_turns();
    CEDE("pause", "b1");
    assert_true(suspended(pids[B1]) && suspended(pids[A1]) + suspended(pids[A2]) > 0);
    ceded_kill(&d);
    assert_all_default();
    d = ceded_start();
    assert_true(EVENTUALLY(gpu_of("b1") == 1));
    assert_true(job_is("b1", "state", "paused"));
    await_turns();
    CEDE("resume", "b1");
    ceded_stop(&d);
    assert_all_default();
    end_loads(N);
}

/* Daemon, restorer and one server at once: whoever comes next reaches the other server. */
static void all_killed(const char *const verb[])
{
    struct ceded d = begin();
    CEDE("pause", "b1");
    assert_true(EVENTUALLY(({
        kill(d.pid, SIGSTOP);
        await_state(d.pid, "T");
        if (!suspended(pids[A1]))
            kill(d.pid, SIGCONT);
        suspended(pids[A1]);
    })));
    kill(d.restorer, SIGSTOP);
    await_state(d.restorer, "T");
    kill(d.pid, SIGKILL);
    assert_int_equal(await_child(d.pid), 1000 + SIGKILL);
    kill(d.restorer, SIGKILL);
    assert_int_equal(await_child(d.restorer), 1000 + SIGKILL);
    kill(second, SIGKILL);
    assert_int_equal(await_child(second), 1000 + SIGKILL);
    for (int i = B1; i < N; i++) {
        kill(pids[i], SIGKILL);
        await_child(pids[i]);
    }
    assert_true(suspended(pids[A1]));
    run_program(&result, NULL, verb);
    assert_int_equal(result.status, 0);
    assert_false(suspended(pids[A1]));
    await_progress(pids, ON_A);
    for (int i = 0; i < ON_A; i++)
        CEDE("set", names[i], "-c", "none");
    assert_int_equal(records(NULL), 0);
    assert_true(all_slices_default(pids, ON_A));
    end_loads(ON_A);
}

static void ps_after_all_killed(void **state)
{
    (void)state;
    all_killed((const char *const[]){"cede", "ps", NULL});
}

static void resume_after_all_killed(void **state)
{
    (void)state;
    all_killed((const char *const[]){"cede", "resume", "a1", NULL});
}

static bool daemon_has(const char *device)
{
    json_t *o = ask("{\"v\":1,\"op\":\"ps\"}");
    const char *is = json_string_value(json_object_get(o, "device"));
    bool has = is && strcmp(is, device) == 0;
    json_decref(o);
    return has;
}

/* A job of the second one leaves and comes back, by a process that has only the journal's address.
 */
static void swapped(void **state)
{
    (void)state;
    struct ceded d = begin();
    use_server(true);
    pid_t load = LOAD("load", "batch", "--memory", "67108864");
    assert_true(EVENTUALLY(all_have_contexts(&load, 1)));
    CEDE("set", pid_text(load), "-c", "batch");
    assert_true(EVENTUALLY(gpu_of("load") == 1));
    await_progress(&load, 1);
    CEDE("swap-out", "load");
    assert_true(job_is("load", "state", "swapped"));
    await_progress(pids + B1, 2);
    CEDE("swap-in", "load");
    await_progress(&load, 1);
    CEDE("swap-out", "load");
    ceded_kill(&d); /* its restorer brings back */
    await_progress(&load, 1);
    json_decref(load_end("load", load));
    use_server(false);
    assert_all_default();
    end_loads(N);
}

/* Started before there is anything, as at boot. */
static void gpu_appears(void **state)
{
    (void)state;
    if (access("/dev/nvidiactl", F_OK) == 0 || access("/dev/kfd", F_OK) == 0)
        skip();
    use_server(true);
    set_device("auto");
    configure(20, "");
    struct ceded d = ceded_start();
    assert_true(daemon_has("gate"));
    json_t *o = ask("{\"v\":1,\"op\":\"ps\"}");
    assert_int_equal(json_array_size(json_object_get(o, "gpus")), 0); /* nobody has used any */
    json_decref(o);
    CEDE("ps");
    start_second("softgpu2");
    assert_true(EVENTUALLY(daemon_has("soft,gate")));
    pid_t load = LOAD("load", "batch");
    assert_true(EVENTUALLY(all_have_contexts(&load, 1)));
    CEDE("set", pid_text(load), "-c", "batch");
    CEDE("pause", "load");
    assert_true(suspended(load));
    /* The same process, with a restorer of its own. */
    assert_true(EVENTUALLY((d.restorer = restorer_of(d.pid)) != 0));
    ceded_kill(&d);
    assert_int_equal(records(NULL), 0);
    await_progress(&load, 1);
    json_decref(load_end("load", load));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        e2e(each_by_itself),      e2e(one_server_killed),       e2e(daemon_killed),
        e2e(ps_after_all_killed), e2e(resume_after_all_killed), e2e(swapped),
        e2e(gpu_appears),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
