/* First contact: jobs beside GPU programs that no job owns. They are named, with what to type, and
 * typing exactly that changes what they get. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"

#define AS_NOBODY "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"

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
    assert_true(EVENTUALLY(job_is(name, "state", "running")));
    return pid;
}

static void end_service(const char *name, pid_t pid)
{
    json_decref(load_end(name, pid));
}

static pid_t train(const char *name)
{
    pid_t pid = LOAD(name, "batch");
    assert_true(EVENTUALLY(all_have_contexts(&pid, 1)));
    return pid;
}

static void note_and_what_it_says(void **state)
{
    (void)state;
    char note[300], hint[300];
    pid_t batch = train("train");
    pid_t lat = serve("serve", "latency");
    snprintf(
        note, sizeof(note),
        "cede: note: train (pid %d) uses GPU 0 and is not scheduled: nothing yields to this job "
        "there until you type: cede set %d -c batch\n",
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
    CEDE("ps", "--json");
    assert_string_equal(result.err, "");
    json_t *all = json_loads(result.out, 0, NULL);
    const json_t *u = json_array_get(json_object_get(all, "unmanaged"), 0);
    assert_int_equal(json_integer_value(json_object_get(u, "pid")), batch);
    assert_string_equal(json_string_value(json_object_get(u, "name")), "train");
    assert_int_equal(json_integer_value(json_object_get(u, "uid")), getuid());
    json_decref(all);

    *strchr(note, '\n') = '\0';
    type(strstr(note, "type: ") + strlen("type: "));
    assert_true(EVENTUALLY(job_is("train", "class", "batch")));
    assert_true(EVENTUALLY(job_int("train", "timeslice_us") == 1));
    assert_true(job_int("serve", "timeslice_us") > SLICE_DEFAULT_US);
    CEDE("ps");
    assert_string_equal(result.err, "");
    end_service("second", serve("second", "latency"));
    assert_string_equal(contents("second.err"), "");
    end_service("serve", lat);
    json_decref(load_end("train", batch));
}

static void says_nothing_without_need(void **state)
{
    (void)state;
    pid_t lat = serve("serve", "latency");
    assert_string_equal(contents("serve.err"), "");
    CEDE("ps");
    assert_string_equal(result.err, "");
    /* It is there already when the next is started, and may be silenced. */
    pid_t batch = train("train");
    CEDE("run", "-q", "-c", "latency", "--", "true");
    assert_string_equal(result.err, "");
    CEDE("run", "-c", "latency", "--", "true");
    assert_non_null(strstr(result.err, "train (pid "));
    end_service("serve", lat);
    json_decref(load_end("train", batch));
}

/* Several are taken at once, but for one that was detached. */
static void takes_others(void **state)
{
    enum { N = 5 };
    (void)state;
    static const char *const names[N] = {"a", "b", "c", "d", "e"};
    pid_t pids[N];
    struct ceded d = ceded_start();
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
    assert_string_equal(result.err, "cede: 1 GPU program was detached by -c none: not set\n");
    for (int i = 0; i < N - 1; i++)
        assert_true(job_is(names[i], "class", "batch"));
    assert_true(EVENTUALLY(suspended(pids[0]) || suspended(pids[1])));
    assert_true(job_gone("e"));
    assert_true(all_slices_default(&pids[N - 1], 1));
    CEDE("set", "--others", "-c", "normal", "-w", "7");
    assert_string_equal(result.out, "no unmanaged GPU programs: nothing to set\n");
    assert_true(job_gone("e"));
    CEDE("ps");
    assert_string_equal(result.err, "");

    CEDE("set", pid_text(pids[N - 1]), "-c", "batch"); /* by name it is taken again */
    assert_true(job_is("e", "class", "batch"));
    end_service("serve", lat);
    for (int i = 0; i < N; i++)
        json_decref(load_end(names[i], pids[i]));
    ceded_stop(&d);
}

static void without_a_daemon(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b"};
    pid_t pids[] = {train("a"), train("b")};
    CEDE("set", "--others", "-c", "batch");
    assert_non_null(strstr(result.out, " a: batch, weight 100\n"));
    assert_non_null(strstr(result.out, " b: batch, weight 100\n"));
    CEDE("set", "--others", "-c", "batch");
    assert_non_null(strstr(result.out, "nothing to set\n"));
    CEDE("ps");
    assert_non_null(strstr(result.out, "batch"));
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
        json_decref(load_end(names[i], pids[i]));
    CEDE("set", "--others", "-c", "batch");
    assert_non_null(strstr(result.out, "nothing to set\n"));
}

static void takes_only_what_is_ones_own(void **state)
{
    (void)state;
    char path[96], sub[96];
    if (getuid() != 0)
        skip();
    RUN(&result, AS_NOBODY, "test", "-x", harness_exe());
    if (result.status)
        skip(); /* built where that user may not look */
    assert_int_equal(chmod(harness_dir(), 0755), 0);
    snprintf(path, sizeof(path), "%s/gpu", harness_dir());
    assert_int_equal(chmod(path, 0666), 0);
    snprintf(sub, sizeof(sub), "%s/home", harness_dir());
    assert_int_equal(mkdir(sub, 0755), 0);
    set_cede_home(sub);
    struct ceded d = ceded_start();
    pid_t roots = train("roots");
    pid_t own = SPAWN("own", AS_NOBODY, harness_exe(), "load", "batch", "--device", "soft",
                      "--name", "own", "--verify");
    pid_t lat = serve("serve", "latency");
    assert_true(EVENTUALLY(all_have_contexts(&own, 1)));

    CEDE("run", "-c", "latency", "--", "true");
    assert_non_null(strstr(result.err, "cede set --others -c batch\n"));
    RUN(&result, AS_NOBODY, harness_exe(), "run", "-c", "normal", "--", "true");
    assert_int_equal(status_of(result.status), 0);
    assert_non_null(strstr(result.err, "own (pid "));
    assert_null(strstr(result.err, "roots"));

    RUN(&result, AS_NOBODY, harness_exe(), "set", "--others", "-c", "batch");
    assert_int_equal(status_of(result.status), 0);
    assert_non_null(strstr(result.out, " own: batch, weight 100\n"));
    assert_null(strchr(strchr(result.out, '\n') + 1, '\n'));
    assert_string_equal(
        result.err, "cede: 1 GPU program belongs to another user: not set; that takes root or the "
                    "administrators' group\n");
    assert_true(job_is("own", "class", "batch"));
    assert_true(job_gone("roots"));
    CEDE("set", "--others", "-c", "batch");
    assert_true(job_is("roots", "class", "batch"));
    end_service("serve", lat);
    json_decref(load_end("own", own));
    json_decref(load_end("roots", roots));
    ceded_stop(&d);
}

/* Has the daemon take `others` from its configuration, and waits until it has. */
static void reconfigure(const struct ceded *d, const char *others, const char *rule)
{
    char key[64];
    long size = (long)strlen(contents("ceded.err"));
    snprintf(key, sizeof(key), "soft\nothers = %s", others); /* after `device` */
    set_device(key);
    configure(20, rule);
    assert_int_equal(kill(d->pid, SIGHUP), 0);
    assert_true(EVENTUALLY(strstr(contents("ceded.err") + size, "configuration read again")));
}

/* `others` of the configuration: a last rule, also for what runs already when it is read again. */
static void configured(void **state)
{
    (void)state;
    static const char rule[] = "[rule one]\nexe = cede*\nuid = 4000000000\nclass = latency\n";
    configure(20, rule);
    struct ceded d = ceded_start();
    pid_t a = train("a"), b = train("b");
    CEDE("set", pid_text(b), "-c", "batch");
    CEDE("set", "b", "-c", "none");
    assert_true(job_gone("a"));

    reconfigure(&d, "batch", rule);
    assert_true(EVENTUALLY(job_is("a", "class", "batch")));
    assert_true(job_is("a", "source", "rule"));
    pid_t c = train("c");
    assert_true(EVENTUALLY(job_is("c", "class", "batch")));
    assert_true(job_gone("b"));
    pid_t lat = serve("serve", "latency");
    assert_string_equal(contents("serve.err"), "");
    assert_true(EVENTUALLY(suspended(a) != suspended(c)));
    assert_false(suspended(b));
    end_service("serve", lat);

    reconfigure(&d, "normal", rule);
    pid_t e = train("e");
    assert_true(EVENTUALLY(job_is("e", "class", "normal")));
    assert_true(job_is("a", "class", "batch"));
    json_decref(load_end("e", e)); /* first: batch jobs wait for it */
    json_decref(load_end("a", a));
    json_decref(load_end("b", b));
    json_decref(load_end("c", c));
    ceded_stop(&d);
}

/* A program's name may hold what a terminal obeys. */
static void hostile_names(void **state)
{
    (void)state;
    pid_t odd = SPAWN("odd", "cede", "load", "batch", "--device", "soft", "--verify", "--name",
                      "\033[31m\n\rx");
    assert_true(EVENTUALLY(all_have_contexts(&odd, 1)));
    pid_t lat = serve("serve", "latency");
    const char *said = contents("serve.err");
    assert_non_null(strstr(said, "note: _[31m__x (pid "));
    assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
    assert_null(strpbrk(said, "\033\r"));
    CEDE("ps");
    assert_non_null(strstr(result.err, "note: _[31m__x (pid "));
    assert_null(strpbrk(result.err, "\033\r"));
    end_service("serve", lat);
    json_decref(load_end("odd", odd));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        e2e(note_and_what_it_says), e2e(says_nothing_without_need),   e2e(takes_others),
        e2e(without_a_daemon),      e2e(takes_only_what_is_ones_own), e2e(configured),
        e2e(hostile_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
