/* A word in the environment makes a job: from outside, after the program has opened the GPU; what
 * raising takes; which word counts where there are several; and that ceded waits for no program
 * that does not let itself be read. */
#include "fixture.h"

/* A load that has these in its environment. */
static pid_t load_with(const char *name, const char *class, const char *weight)
{
    if (class)
        setenv("CEDE_CLASS", class, 1);
    if (weight)
        setenv("CEDE_WEIGHT", weight, 1);
    pid_t pid = LOAD(name, "batch");
    unsetenv("CEDE_CLASS");
    unsetenv("CEDE_WEIGHT");
    return pid;
}

static void kill_loads(size_t n, const pid_t *v)
{
    for (size_t i = 0; i < n; i++) {
        slay_child(v[i]);
    }
}

/* What `cede rules test` says of a process; class NULL: it becomes no job. */
static void outcome_is(pid_t pid, const char *by, const char *class)
{
    CEDE("rules", "test", pid_text(pid), "--json");
    json_t *o = json_loads(result.out, 0, NULL);
    const char *is = json_string_value(value_at(o, "outcome.by")),
               *c = json_string_value(value_at(o, "outcome.class"));
    if (!is || strcmp(is, by) != 0 || (class && (!c || strcmp(c, class) != 0)))
        fail_msg("%s", result.out);
    json_decref(o);
}

E2E(one_word_is_enough)
{
    configure(200, "");
    ceded_start();
    setenv("CEDE_NAME", "nightly", 1);
    pid_t v[3] = {load_with("l0", "batch", "40")};
    unsetenv("CEDE_NAME");
    v[1] = load_with("l1", "latency", "300");
    v[2] = load_with("l2", NULL, NULL);
    AWAIT(job_is("nightly", "class", "batch"));
    assert_int_equal(job_int("nightly", "weight"), 40);
    assert_true(job_is("nightly", "source", "environment"));
    /* It only lowers, and ceded says so. */
    AWAIT(job_is("l1", "class", "normal"));
    assert_int_equal(job_int("l1", "weight"), 100);
    AWAIT(strstr(contents("ceded.err"), "CEDE_CLASS=latency: the environment only "
                                        "lowers"));
    outcome_is(v[1], "environment", "normal");
    assert_non_null(strstr(result.out, "only lowers"));
    /* Who says nothing is left alone. */
    outcome_is(v[2], "nothing", NULL);
    assert_true(job_gone("l2"));
    kill_loads(3, v);
}

/* By hand, then a rule, then the environment, then `others`. */
E2E(which_word_counts)
{
    configure(200, "swap_start = 0\nothers = normal\n"
                   "[rule raise]\narguments = *--name l0*\nclass = environment\n"
                   "[rule lower]\narguments = *--name l1*\nclass = batch\n");
    struct ceded d = ceded_start();
    pid_t v[4] = {load_with("l0", "latency", "300"), load_with("l1", "normal", NULL),
                  load_with("l2", "batch", NULL), load_with("l3", "nonsense", "50")};
    AWAIT(job_is("l0", "class", "latency"));
    assert_int_equal(job_int("l0", "weight"), 300);
    assert_true(job_is("l0", "source", "rule"));
    AWAIT(job_is("l1", "class", "batch"));
    assert_true(job_is("l1", "source", "rule"));
    AWAIT(job_is("l2", "class", "batch"));
    assert_true(job_is("l2", "source", "environment"));
    AWAIT(job_is("l3", "class", "normal"));
    assert_int_equal(job_int("l3", "weight"), 50);
    assert_non_null(strstr(contents("ceded.err"), "neither latency, normal nor batch"));
    outcome_is(v[0], "rule", "latency");
    outcome_is(v[3], "others", "normal");
    /* A person's word stays, also over a reload. */
    CEDE("set", "-c", "normal", "l1");
    kill(d.pid, SIGHUP);
    AWAIT(strstr(contents("ceded.err"), "configuration read again"));
    assert_true(job_is("l1", "class", "normal"));
    setenv("CEDE_CLASS", "batch", 1);
    pid_t run = SPAWN("run", "cede", "run", "-c", "latency", "-n", "run", "--", harness_exe(),
                      "load", "batch", "--device", "soft");
    pid_t said = SPAWN("said", "cede", "run", "-n", "said", "--", harness_exe(), "load", "batch",
                       "--device", "soft");
    unsetenv("CEDE_CLASS");
    AWAIT(job_is("run", "class", "latency"));
    AWAIT(job_is("said", "class", "batch")); /* its options say nothing */
    kill_loads(4, v);
    kill(run, SIGTERM);
    kill(said, SIGTERM);
    await_child(run);
    await_child(said);
}

/* While a program's words cannot be read, whatever holds them up, ceded decides and answers as
 * before; and the program gets its class when they can. */
E2E(ceded_waits_for_nobody)
{
    configure(200, "");
    struct ceded d = ceded_start();
    pid_t v[3] = {load_with("first", "batch", NULL)};
    AWAIT(job_is("first", "class", "batch"));
    pid_t reader = children_named(d.pid, "cede-identify").pid;
    assert_true(reader > 0);
    kill(reader, SIGSTOP);
    await_state(reader, "T");
    v[1] = load_with("second", "batch", NULL);
    AWAIT(all_have_contexts(&v[1], 1));
    char text[96];
    snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"rules\",\"pid\":%d}", (int)v[1]);
    json_t *o = ask(text);
    assert_true(json_is_true(json_object_get(o, "pending")));
    assert_null(json_object_get(o, "outcome"));
    json_decref(o);
    /* A latency job comes, preempts and goes. */
    v[2] = SPAWN("lat", "cede", "run", "-c", "latency", "-n", "lat", "--", harness_exe(), "load",
                 "latency", "--device", "soft");
    AWAIT(job_int("first", "timeslice_us") == 1);
    CEDE("pause", "first");
    AWAIT(suspended(v[0]));
    CEDE("resume", "first");
    assert_true(job_gone("second"));
    assert_int_equal(process_state(reader), 'T');
    kill(v[2], SIGTERM);
    await_child(v[2]);
    kill(reader, SIGCONT);
    AWAIT(job_is("second", "class", "batch"));

    /* One that is killed is replaced, and what it had to read is not lost. */
    kill(reader, SIGSTOP);
    await_state(reader, "T");
    v[2] = load_with("third", "batch", NULL);
    snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"rules\",\"pid\":%d}", (int)v[2]);
    json_decref(ask(text)); /* it has been asked about, at the latest now */
    kill(reader, SIGKILL);
    AWAIT(job_is("third", "class", "batch"));
    kill_loads(3, v);
    ceded_stop(&d);
}

/* What was read of a program says nothing of the one that it becomes by exec(2). */
E2E(exec_in_between)
{
    configure(200, "[rule a]\nenvironment = STEP=two\nclass = batch\n");
    ceded_start();
    pid_t pid = SPAWN("steps", "sh", "-c",
                      "while ! [ -e $CEDE_DIR/go ]; do sleep 0.05; done; STEP=two exec sleep 600");
    outcome_is(pid, "nothing", NULL);
    touch("go");
    char exe[256] = "", path[64];
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    AWAIT(readlink(path, exe, sizeof(exe) - 1) > 0 && strstr(exe, "sleep"));
    outcome_is(pid, "rule", "batch");
    slay_child(pid);
}
