/* First contact: jobs beside GPU programs that no job owns. They are named, with what to type, and
 * typing exactly that changes what they get. */
#include <sys/stat.h>

#include "fixture.h"

#define NOBODY_RUNS "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"

/* A command line as a note has it. */
static void type(const char *line)
{
    char script[256];
    snprintf(script, sizeof(script), "cede() { \"$CEDE_EXE\" \"$@\"; }; %s", line);
    RUN(&result, "sh", "-c", script);
    if (result.status)
        fail_msg("%s: status %d: %s%s", line, status_of(result.status), result.out, result.err);
}

static pid_t serve(const char *name, const char *class)
{
    pid_t pid = SPAWN(name, "cede", "run", "--gpu-device", "soft", "-c", class, "-n", name, "--",
                      harness_exe(), "load", "latency", "--device", "soft", "--verify");
    AWAIT(job_is(name, "state", "running"));
    return pid;
}

static pid_t train(const char *name)
{
    pid_t pid = LOAD(name, "batch");
    AWAIT(all_have_contexts(&pid, 1));
    return pid;
}

E2E(note_and_what_it_says)
{
    char note[300], hint[300];
    pid_t batch = train("train");
    pid_t lat = serve("serve", "latency");
    snprintf(
        note, sizeof(note),
        "cede: note: train (pid %d) uses GPU 0 and is not scheduled: it does not yield to this "
        "job until you type: cede set %d -c batch\n",
        (int)batch, (int)batch);
    assert_string_equal(contents("serve.err"), note);

    /* It is so. */
    assert_true(all_slices_default(&batch, 1));
    snprintf(
        hint, sizeof(hint),
        "cede: note: train (pid %d) uses GPU 0 and is not scheduled: it yields to no job until "
        "you type: cede set %d -c batch\n",
        (int)batch, (int)batch);
    CEDE("ps");
    assert_string_equal(result.err, hint);
    CEDE("ps", "serve");
    assert_string_equal(result.err, "");
    json_t *all = ask_jobs(), *u = value_at(all, "unmanaged.0");
    assert_int_equal(json_integer_value(json_object_get(u, "pid")), batch);
    assert_string_equal(json_string_value(json_object_get(u, "name")), "train");
    assert_int_equal(json_integer_value(json_object_get(u, "uid")), getuid());
    json_decref(all);

    *strchr(note, '\n') = '\0';
    type(strstr(note, "type: ") + strlen("type: "));
    AWAIT(job_is("train", "class", "batch"));
    AWAIT(job_int("train", "timeslice_us") == 1);
    assert_true(job_int("serve", "timeslice_us") > SLICE_DEFAULT_US);
    CEDE("ps");
    assert_string_equal(result.err, "");
    json_decref(load_end("second", serve("second", "latency")));
    assert_string_equal(contents("second.err"), "");
    json_decref(load_end("serve", lat));
    json_decref(load_end("train", batch));
}

/* Several are taken at once, but for one that was detached. */
E2E(takes_others)
{
    enum { N = 5 };
    static const char *const names[N] = {"a", "b", "c", "d", "e"};
    pid_t pids[N];
    ceded_start();
    for (int i = 0; i < N; i++)
        pids[i] = train(names[i]);
    CEDE("set", pid_text(pids[N - 1]), "-c", "batch");
    CEDE("set", "e", "-c", "none");
    pid_t lat = serve("serve", "latency");
    const char *said = contents("serve.err");
    assert_non_null(strstr(said, " and 1 more use GPU"));
    assert_null(strstr(said, "e (pid "));
    char line[64] = "";
    snprintf(line, sizeof(line), "%s", strstr(said, "type: ") + strlen("type: "));
    assert_string_equal(line, "cede set --others -c batch\n");
    type(line);
    assert_string_equal(result.err, "cede: 1 GPU program was detached by hand: not set\n");
    for (int i = 0; i < N - 1; i++)
        assert_true(job_is(names[i], "class", "batch"));
    AWAIT(suspended(pids[0]) || suspended(pids[1]));
    assert_true(job_gone("e"));
    assert_true(all_slices_default(&pids[N - 1], 1));
    CEDE("set", "--others", "-c", "normal", "-w", "7");
    assert_string_equal(result.out, "no unmanaged GPU programs: nothing to set\n");
    assert_true(job_gone("e"));
    CEDE("ps");
    assert_string_equal(result.err, "");

    CEDE("set", pid_text(pids[N - 1]), "-c", "batch"); /* by name it is taken again */
    assert_true(job_is("e", "class", "batch"));
    json_decref(load_end("serve", lat));
    loads_end(N, names, pids);
}

E2E(without_a_daemon)
{
    static const char *const names[] = {"a", "b"};
    pid_t pids[] = {train("a"), train("b")};
    CEDE("set", "--others", "-c", "batch");
    assert_non_null(strstr(result.out, " a: batch, weight 100\n"));
    assert_non_null(strstr(result.out, " b: batch, weight 100\n"));
    CEDE("set", "--others", "-c", "batch");
    assert_non_null(strstr(result.out, "nothing to set\n"));
    CEDE("ps");
    assert_non_null(strstr(result.out, "batch"));
    loads_end(2, names, pids);
    CEDE("set", "--others", "-c", "batch");
    assert_non_null(strstr(result.out, "nothing to set\n"));
}

E2E(takes_only_what_is_ones_own)
{
    if (getuid() != 0)
        skip();
    RUN(&result, NOBODY_RUNS, "test", "-x", harness_exe());
    if (result.status)
        skip(); /* built where that user may not look */
    assert_int_equal(chmod(harness_dir(), 0755), 0);
    assert_int_equal(chmod(in_dir("gpu"), 0666), 0);
    assert_int_equal(mkdir(in_dir("home"), 0755), 0);
    set_cede_home(in_dir("home"));
    ceded_start();
    pid_t roots = train("roots");
    pid_t own = SPAWN("own", NOBODY_RUNS, harness_exe(), "load", "batch", "--device", "soft",
                      "--name", "own", "--verify");
    pid_t lat = serve("serve", "latency");
    AWAIT(all_have_contexts(&own, 1));

    CEDE("run", "-c", "latency", "--", "true");
    assert_non_null(strstr(result.err, "cede set --others -c batch\n"));
    RUN(&result, NOBODY_RUNS, harness_exe(), "run", "-c", "normal", "--", "true");
    assert_int_equal(status_of(result.status), 0);
    assert_non_null(strstr(result.err, "own (pid "));
    assert_null(strstr(result.err, "roots"));

    RUN(&result, NOBODY_RUNS, harness_exe(), "set", "--others", "-c", "batch");
    assert_int_equal(status_of(result.status), 0);
    assert_non_null(strstr(result.out, " own: batch, weight 100\n"));
    assert_null(strchr(strchr(result.out, '\n') + 1, '\n'));
    assert_string_equal(result.err, ""); /* a user has asked for theirs */
    assert_true(job_is("own", "class", "batch"));
    assert_true(job_gone("roots"));
    CEDE("set", "--others", "-c", "batch");
    assert_true(job_is("roots", "class", "batch"));
    json_decref(load_end("serve", lat));
    json_decref(load_end("own", own));
    json_decref(load_end("roots", roots));
}

/* A program's name may hold what a terminal obeys. */
E2E(hostile_names)
{
    pid_t odd = SPAWN("odd", "cede", "load", "batch", "--device", "soft", "--verify", "--name",
                      "\033[31m\n\rx");
    AWAIT(all_have_contexts(&odd, 1));
    pid_t lat = serve("serve", "latency");
    const char *said = contents("serve.err");
    assert_non_null(strstr(said, "note: _[31m__x (pid "));
    assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
    assert_null(strpbrk(said, "\033\r"));
    CEDE("ps");
    assert_non_null(strstr(result.err, "note: _[31m__x (pid "));
    assert_null(strpbrk(result.err, "\033\r"));
    json_decref(load_end("serve", lat));
    json_decref(load_end("odd", odd));
}
