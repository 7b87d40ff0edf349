/* A word in the environment makes a job: from outside, after the program has opened the GPU; what
 * raising takes; which word counts where there are several; and that ceded waits for no program
 * that does not let itself be read. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static void loads_end(size_t n, const pid_t *v)
{
    for (size_t i = 0; i < n; i++) {
        kill(v[i], SIGKILL);
        await_child(v[i]);
    }
}

/* What `cede rules test` says of a process; the caller's. */
static json_t *tested(pid_t pid)
{
    CEDE("rules", "test", pid_text(pid), "--json");
    json_t *o = json_loads(result.out, 0, NULL);
    assert_non_null(o);
    return o;
}

static void outcome_is(pid_t pid, const char *by, const char *class)
{
    json_t *o = tested(pid), *outcome = json_object_get(o, "outcome");
    const char *is = json_string_value(json_object_get(outcome, "by")),
               *c = json_string_value(json_object_get(outcome, "class"));
    if (!is || strcmp(is, by) != 0 || (class && (!c || strcmp(c, class) != 0)))
        fail_msg("%s", result.out);
    json_decref(o);
}

static void one_word_is_enough(void **state)
{
    configure(200, "");
    struct ceded d = ceded_start();
    setenv("CEDE_NAME", "nightly", 1);
    pid_t v[3] = {load_with("l0", "batch", "40")};
    unsetenv("CEDE_NAME");
    v[1] = load_with("l1", "latency", "300");
    v[2] = load_with("l2", NULL, NULL);
    assert_true(EVENTUALLY(job_is("nightly", "class", "batch")));
    assert_int_equal(job_int("nightly", "weight"), 40);
    assert_true(job_is("nightly", "source", "environment"));
    /* It only lowers, and ceded says so. */
    assert_true(EVENTUALLY(job_is("l1", "class", "normal")));
    assert_int_equal(job_int("l1", "weight"), 100);
    assert_true(EVENTUALLY(strstr(contents("ceded.err"), "CEDE_CLASS=latency: the environment only "
                                                         "lowers")));
    outcome_is(v[1], "environment", "normal");
    assert_non_null(strstr(result.out, "only lowers"));
    /* Who says nothing is left alone. */
    outcome_is(v[2], "nothing", NULL);
    assert_true(job_gone("l2"));
    loads_end(3, v);
    ceded_stop(&d);
}

/* By hand, then a rule, then the environment, then `others`. */
static void which_word_counts(void **state)
{
    configure(200, "swap_start = 0\nothers = normal\n"
                   "[rule raise]\narguments = *--name l0*\nclass = environment\n"
                   "[rule lower]\narguments = *--name l1*\nclass = batch\n");
    struct ceded d = ceded_start();
    pid_t v[4] = {load_with("l0", "latency", "300"), load_with("l1", "normal", NULL),
                  load_with("l2", "batch", NULL), load_with("l3", "nonsense", "50")};
    assert_true(EVENTUALLY(job_is("l0", "class", "latency")));
    assert_int_equal(job_int("l0", "weight"), 300);
    assert_true(job_is("l0", "source", "rule"));
    assert_true(EVENTUALLY(job_is("l1", "class", "batch")));
    assert_true(job_is("l1", "source", "rule"));
    assert_true(EVENTUALLY(job_is("l2", "class", "batch")));
    assert_true(job_is("l2", "source", "environment"));
    assert_true(EVENTUALLY(job_is("l3", "class", "normal")));
    assert_int_equal(job_int("l3", "weight"), 50);
    assert_non_null(strstr(contents("ceded.err"), "neither latency, normal nor batch"));
    outcome_is(v[0], "rule", "latency");
    outcome_is(v[3], "others", "normal");
    /* A person's word stays, also over a reload. */
    CEDE("set", "-c", "normal", "l1");
    kill(d.pid, SIGHUP);
    assert_true(EVENTUALLY(strstr(contents("ceded.err"), "configuration read again")));
    assert_true(job_is("l1", "class", "normal"));
    setenv("CEDE_CLASS", "batch", 1);
    pid_t run = SPAWN("run", "cede", "run", "-c", "latency", "-n", "run", "--", harness_exe(),
                      "load", "batch", "--device", "soft");
    pid_t said = SPAWN("said", "cede", "run", "-n", "said", "--", harness_exe(), "load", "batch",
                       "--device", "soft");
    unsetenv("CEDE_CLASS");
    assert_true(EVENTUALLY(job_is("run", "class", "latency")));
    assert_true(EVENTUALLY(job_is("said", "class", "batch"))); /* its options say nothing */
    loads_end(4, v);
    kill(run, SIGTERM);
    kill(said, SIGTERM);
    await_child(run);
    await_child(said);
    ceded_stop(&d);
}

static void ignored_if_the_administrator_says_so(void **state)
{
    configure(200, "swap_start = 0\nenvironment = ignore\n"
                   "[rule lost]\nuid = no-such-user-here\nclass = latency\n"
                   "[rule a]\narguments = *--name l1*\nclass = batch\n"
                   "[rule b]\narguments = *--name l1*\nexe = cede\nclass = latency\n");
    struct ceded d = ceded_start();
    pid_t v[2] = {load_with("l0", "batch", NULL), load_with("l1", NULL, NULL)};
    assert_true(EVENTUALLY(job_is("l1", "class", "batch")));
    outcome_is(v[0], "nothing", NULL);
    assert_true(job_gone("l0"));
    assert_non_null(strstr(contents("ceded.err"), "rule lost never matches: uid = "));
    assert_non_null(strstr(contents("ceded.err"), "rule b never matches: rule a before it"));
    CEDE("rules");
    assert_non_null(strstr(result.out, "never matches: rule a before it"));
    CEDE("rules", "test", pid_text(v[1]));
    assert_non_null(strstr(result.out, "class batch by rule a"));
    RUN(&result, "cede", "rules", "test", "1");
    assert_int_equal(status_of(result.status), 0);
    RUN(&result, "cede", "rules", "test", "2147483647");
    assert_int_equal(status_of(result.status), 1);
    assert_non_null(strstr(result.err, "there is no process"));
    loads_end(2, v);
    ceded_stop(&d);
}

/* The child of ceded that reads what programs say; 0: none. */
static pid_t identifier_of(const struct ceded *d)
{
    return children_named(d->pid, "cede-identify").pid;
}

/* While a program's words cannot be read, whatever holds them up, ceded decides and answers as
 * before; and the program gets its class when they can. */
static void ceded_waits_for_nobody(void **state)
{
    configure(200, "");
    struct ceded d = ceded_start();
    pid_t v[3] = {load_with("first", "batch", NULL)};
    assert_true(EVENTUALLY(job_is("first", "class", "batch")));
    pid_t reader = identifier_of(&d);
    assert_true(reader > 0);
    kill(reader, SIGSTOP);
    await_state(reader, "T");
    v[1] = load_with("second", "batch", NULL);
    assert_true(EVENTUALLY(all_have_contexts(&v[1], 1)));
    json_t *o = NULL;
    char text[96];
    snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"rules\",\"pid\":%d}", (int)v[1]);
    o = ask(text);
    assert_true(json_is_true(json_object_get(o, "pending")));
    assert_null(json_object_get(o, "outcome"));
    json_decref(o);
    /* A latency job comes, preempts and goes. */
    v[2] = SPAWN("lat", "cede", "run", "-c", "latency", "-n", "lat", "--", harness_exe(), "load",
                 "latency", "--device", "soft");
    assert_true(EVENTUALLY(job_int("first", "timeslice_us") == 1));
    CEDE("pause", "first");
    assert_true(EVENTUALLY(suspended(v[0])));
    CEDE("resume", "first");
    assert_true(job_gone("second"));
    assert_int_equal(process_state(reader), 'T');
    kill(v[2], SIGTERM);
    await_child(v[2]);
    kill(reader, SIGCONT);
    assert_true(EVENTUALLY(job_is("second", "class", "batch")));
    loads_end(2, v);
    ceded_stop(&d);
}

static void reader_is_killed(void **state)
{
    configure(200, "");
    struct ceded d = ceded_start();
    pid_t v[2] = {load_with("first", "batch", NULL)};
    assert_true(EVENTUALLY(job_is("first", "class", "batch")));
    pid_t reader = identifier_of(&d);
    kill(reader, SIGSTOP);
    await_state(reader, "T");
    v[1] = load_with("second", "batch", NULL);
    char text[96];
    snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"rules\",\"pid\":%d}", (int)v[1]);
    json_decref(ask(text)); /* it has been asked about, at the latest now */
    kill(reader, SIGKILL);
    assert_true(EVENTUALLY(job_is("second", "class", "batch")));
    assert_true(identifier_of(&d) != reader);
    loads_end(2, v);
    ceded_stop(&d);
    assert_true(EVENTUALLY(identifier_of(&d) == 0));
}

/* What was read of a program says nothing of the one that it becomes by exec(2). */
static void exec_in_between(void **state)
{
    configure(200, "[rule a]\nenvironment = STEP=two\nclass = batch\n");
    struct ceded d = ceded_start();
    pid_t pid = SPAWN("steps", "sh", "-c",
                      "while ! [ -e $CEDE_DIR/go ]; do sleep 0.05; done; STEP=two exec sleep 600");
    outcome_is(pid, "nothing", NULL);
    char go[256];
    snprintf(go, sizeof(go), "%s/go", getenv("CEDE_DIR"));
    fclose(fopen(go, "we"));
    char exe[256] = "", path[64];
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    assert_true(EVENTUALLY(readlink(path, exe, sizeof(exe) - 1) > 0 && strstr(exe, "sleep")));
    outcome_is(pid, "rule", "batch");
    kill(pid, SIGKILL);
    await_child(pid);
    ceded_stop(&d);
}

/* Makes the control group of a job of Slurm's, where this machine lets us: the job's path in *path,
 * and the directory above it. */
static bool make_group(char *path, char *dir, size_t size)
{
    static const char *const at[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    char job[512];
    for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
        snprintf(dir, size, "%s/slurm_cede-%d", at[i], (int)getpid());
        snprintf(path, size, "/slurm_cede-%d/job_77", (int)getpid());
        snprintf(job, sizeof(job), "%s/job_77", dir);
        if (mkdir(dir, 0755) == 0 && mkdir(job, 0755) == 0) {
            snprintf(job, sizeof(job), "%s/job_77/cgroup.procs", dir);
            if (access(job, W_OK) == 0)
                return true;
        }
        snprintf(job, sizeof(job), "%s/job_77", dir);
        rmdir(job);
        rmdir(dir);
    }
    return false;
}

/* An agent says which partition and which PriorityClass a control group is of. */
static void an_agent_says(void **state)
{
    char path[128], dir[128], script[1024], text[512];
    if (!make_group(path, dir, sizeof(path)))
        skip();
    configure(200, "[rule job]\nslurm_job = 77\nuid = 12345\nclass = batch\n"
                   "[rule debug]\npartition = debug\nclass = latency\n"
                   "[rule low]\npriority_class = low-*\nlabel:team = a\nclass = batch\n");
    struct ceded d = ceded_start();
    snprintf(script, sizeof(script),
             "echo $$ > %s/job_77/cgroup.procs && exec $CEDE_EXE load batch --device soft --name "
             "in-group",
             dir);
    pid_t pid = SPAWN("in-group", "sh", "-c", script);
    assert_true(EVENTUALLY(all_have_contexts(&pid, 1)));
    outcome_is(pid, "nothing", NULL);
    snprintf(
        text, sizeof(text),
        "{\"v\":1,\"op\":\"identity\",\"cgroup\":\"%s\",\"facts\":{\"priority_class\":\"low-1\","
        "\"label:team\":\"a\",\"namespace\":\"x\"}}",
        path);
    json_t *o = ask(text);
    assert_true(json_is_true(json_object_get(o, "ok")));
    json_decref(o);
    assert_true(EVENTUALLY(job_is("in-group", "class", "batch"))); /* though it was there before */
    outcome_is(pid, "rule", "batch");
    /* It is said anew: what was said before does not count any more. */
    snprintf(text, sizeof(text),
             "{\"v\":1,\"op\":\"identity\",\"cgroup\":\"%s\",\"facts\":{"
             "\"partition\":\"debug\"}}",
             path);
    json_decref(ask(text));
    outcome_is(pid, "rule", "latency");
    snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"identity\",\"cgroup\":\"%s\"}", path);
    json_decref(ask(text));
    outcome_is(pid, "nothing", NULL);
    /* Whose directory is a user's, that user gives the names in it. */
    CEDE("rules", "test", pid_text(pid));
    assert_non_null(strstr(result.out, "slurm_job = 77   yes: it has 77"));
    assert_int_equal(chown(dir, 12345, 12345), 0);
    CEDE("rules", "test", pid_text(pid));
    assert_non_null(strstr(result.out, "slurm_job = 77   no: it has none that is known"));
    kill(pid, SIGKILL);
    await_child(pid);
    snprintf(text, sizeof(text), "%s/job_77", dir);
    assert_true(EVENTUALLY(rmdir(text) == 0));
    assert_true(EVENTUALLY(rmdir(dir) == 0));
    ceded_stop(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        e2e(one_word_is_enough),
        e2e(which_word_counts),
        e2e(ignored_if_the_administrator_says_so),
        e2e(ceded_waits_for_nobody),
        e2e(reader_is_killed),
        e2e(exec_in_between),
        e2e(an_agent_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
