/* One daemon over two software GPUs, each a server of its own: each is scheduled by itself, and
 * the end of one server, of the daemon, or of both leaves nobody suspended on the other. */
#include "fixture.h"

enum { LAT, A1, A2, ON_A, B1 = ON_A, B2, N };
static const char *const names[N] = {"lat", "a1", "a2", "b1", "b2"};
static pid_t pids[N], second;

static void use_server(bool b)
{
    setenv("CEDE_SOFT_SOCKET", in_dir(b ? "gpu2" : "gpu"), 1);
}

static void start_second(const char *name)
{
    use_server(true);
    second = ANOTHER_GPU(name, NULL);
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
    AWAIT(all_have_contexts(pids + B1, 2));
    use_server(false);
    AWAIT(all_have_contexts(pids, ON_A));
    snprintf(list, sizeof(list), "soft@%s,soft@%s", in_dir("gpu"), in_dir("gpu2"));
    set_device(list);
    configure(20, "");
    struct ceded d = ceded_start();
    for (int i = 0; i < N; i++)
        CEDE("set", pid_text(pids[i]), "-c", i == LAT ? "latency" : "batch");
    return d;
}

/* Its programs may have ended before they are killed. */
static void end_second(void)
{
    slay_child(second);
    for (int i = B1; i < N; i++) {
        kill(pids[i], SIGKILL);
        await_child(pids[i]);
    }
}

static void await_turns(void)
{
    AWAIT(suspended(pids[A1]));
    AWAIT(suspended(pids[A2]));
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

static long long gpu_of(const char *name)
{
    return job_count(name, "gpus") == 1 ? job_int(name, "gpus.0") : -1;
}

E2E(each_by_itself)
{
    struct ceded d = begin();
    await_turns();
    for (int i = 0; i < N; i++) {
        AWAIT(gpu_of(names[i]) == (i >= ON_A));
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
    json_t *all = ask_jobs();
    assert_string_equal(json_string_value(value_at(all, "gpus.0.label")), "soft0");
    assert_string_equal(json_string_value(value_at(all, "gpus.1.label")), "soft1");
    assert_string_equal(json_string_value(value_at(all, "device")), "soft");
    json_decref(all);
    CEDE("resume", "b1");
    ceded_stop(&d);
    assert_all_default();
    loads_end(N, names, pids);
}

E2E(one_server_killed)
{
    struct ceded d = begin();
    await_turns();
    CEDE("pause", "b2");
    end_second();
    await_progress(pids, ON_A);
    await_turns();
    for (int i = 0; i < ON_A; i++) {
        json_t *job = job_named(names[i]);
        assert_non_null(job);
        assert_null(json_object_get(job, "error"));
        json_decref(job);
    }
    AWAIT(strstr(contents("ceded.err"), "gpu2"));

    /* Another server at that place. */
    start_second("softgpu3");
    pid_t late = LOAD("late", "batch");
    AWAIT(all_have_contexts(&late, 1));
    CEDE("set", pid_text(late), "-c", "batch");
    AWAIT(gpu_of("late") == 1);
    CEDE("pause", "late");
    assert_true(suspended(late));
    ceded_stop(&d);
    assert_int_equal(records(NULL), 0);
    await_progress(&late, 1);
    json_decref(load_end("late", late));
    use_server(false);
    assert_true(all_slices_default(pids, ON_A));
    loads_end(ON_A, names, pids);
}

E2E(daemon_killed)
{
    struct ceded d = begin();
    await_turns();
    CEDE("pause", "b1");
    assert_true(suspended(pids[B1]));
    AWAIT(suspended(pids[A1]) || suspended(pids[A2]));
    ceded_kill(&d);
    assert_all_default();
    d = ceded_start();
    AWAIT(gpu_of("b1") == 1);
    assert_true(job_is("b1", "state", "paused"));
    await_turns();
    CEDE("resume", "b1");
    ceded_stop(&d);
    assert_all_default();
    loads_end(N, names, pids);
}

/* Daemon, restorer and one server at once: whoever comes next reaches the other server. */
E2E(all_killed)
{
    struct ceded d = begin();
    CEDE("pause", "b1");
    AWAIT(({
        kill(d.pid, SIGSTOP);
        await_state(d.pid, "T");
        if (!suspended(pids[A1]))
            kill(d.pid, SIGCONT);
        suspended(pids[A1]);
    }));
    ceded_kill_both(&d);
    end_second();
    assert_true(suspended(pids[A1]));
    CEDE("ps");
    assert_false(suspended(pids[A1]));
    await_progress(pids, ON_A);
    for (int i = 0; i < ON_A; i++)
        CEDE("set", names[i], "-c", "none");
    assert_int_equal(records(NULL), 0);
    assert_true(all_slices_default(pids, ON_A));
    loads_end(ON_A, names, pids);
}

static bool daemon_has(const char *device)
{
    json_t *o = ask_jobs();
    const char *is = json_string_value(json_object_get(o, "device"));
    bool has = is && strcmp(is, device) == 0;
    json_decref(o);
    return has;
}

/* A job of the second one leaves and comes back, by a process that has only the journal's address.
 */
E2E(swapped)
{
    struct ceded d = begin();
    use_server(true);
    pid_t load = LOAD("load", "batch", "--memory", "67108864");
    AWAIT(all_have_contexts(&load, 1));
    CEDE("set", pid_text(load), "-c", "batch");
    AWAIT(gpu_of("load") == 1);
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
    loads_end(N, names, pids);
}

/* Started before there is anything, as at boot. */
E2E(gpu_appears)
{
    if (access("/dev/nvidiactl", F_OK) == 0 || access("/dev/kfd", F_OK) == 0)
        skip();
    use_server(true);
    set_device("auto");
    configure(20, "");
    struct ceded d = ceded_start();
    assert_true(daemon_has("gate"));
    json_t *o = ask_jobs();
    assert_int_equal(json_array_size(json_object_get(o, "gpus")), 0); /* nobody has used any */
    json_decref(o);
    CEDE("ps");
    start_second("softgpu2");
    AWAIT(daemon_has("soft,gate"));
    pid_t load = LOAD("load", "batch");
    AWAIT(all_have_contexts(&load, 1));
    CEDE("set", pid_text(load), "-c", "batch");
    CEDE("pause", "load");
    assert_true(suspended(load));
    /* The same process, with a restorer of its own. */
    AWAIT((d.restorer = restorer_of(d.pid)) != 0);
    ceded_kill(&d);
    assert_int_equal(records(NULL), 0);
    await_progress(&load, 1);
    json_decref(load_end("load", load));
}
