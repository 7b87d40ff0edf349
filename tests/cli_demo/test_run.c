/* `cede demo` and `cede doctor` as a whole, on the software GPU: what they find, and that nothing
 * is left behind however they end. Every ratio is of device time.
 *
 * This program is the subreaper of all it starts: what demo would leave running becomes its child,
 * so "no child is left" is exact. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "lib/procfs.h"
#include "lib/util.h"
#include "testbed/process.h"

struct run {
    const char *cede;
    pid_t pid;
    int out, err; /* pipes */
    char dir[256];
    char text[65536]; /* what was read of the pipe that was read last */
};

static void start(struct run *r, const char *const *args)
{
    int out[2], err[2];
    const char *argv[12] = {r->cede};
    for (size_t i = 0; args[i]; i++)
        argv[i + 1] = args[i];
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    r->dir[0] = '\0';
    const struct process_spec spec = {.argv = argv, .fds = {STDIN_FILENO, out[1], err[1]}};
    assert_int_equal(process_start(&spec, &r->pid), 0);
    close(out[1]);
    close(err[1]);
    r->out = out[0];
    r->err = err[0];
}

/* Reads until the text has come, or to the end. */
static bool read_until(struct run *r, int fd, const char *what)
{
    size_t n = 0;
    for (;;) {
        ssize_t k = read(fd, r->text + n, sizeof(r->text) - 1 - n);
        if (k <= 0)
            break;
        n += (size_t)k;
        r->text[n] = '\0';
        if (what && strstr(r->text, what))
            return true;
    }
    r->text[n] = '\0';
    return false;
}

/* Exit status, or -signal. */
static int finish(struct run *r)
{
    int status;
    assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
    close(r->out);
    close(r->err);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* A process's arguments with blanks between them. False: it has ended. */
static bool command_line(pid_t pid, char *buf, size_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(buf, 1, size - 1, f) : 0;
    if (f)
        fclose(f);
    for (size_t i = 0; i < n; i++)
        buf[i] = buf[i] ? buf[i] : ' ';
    buf[n] = '\0';
    return n > 0;
}

/* The child of the demo whose command line holds the words; its directory is noted. */
static pid_t find_child(struct run *r, const char *words)
{
    pid_t *pids, found = 0;
    size_t n;
    assert_int_equal(proc_list(&pids, &n), 0);
    for (size_t i = 0; i < n; i++) {
        struct proc_stat st;
        char line[1024];
        if (proc_stat_read(pids[i], &st) < 0 || st.ppid != r->pid ||
            !command_line(pids[i], line, sizeof(line)))
            continue;
        const char *dir = strstr(line, "/tmp/cede-demo-");
        if (dir)
            snprintf(r->dir, sizeof(r->dir), "%.*s", (int)(strcspn(dir + 5, "/ ") + 5), dir);
        if (strstr(line, words))
            found = pids[i];
    }
    free(pids);
    return found;
}

static void nothing_left(const struct run *r)
{
    int status;
    assert_int_equal(waitpid(-1, &status, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_true(r->dir[0]);
    assert_int_equal(access(r->dir, F_OK), -1);
}

static double field(const json_t *o, const char *a, const char *b)
{
    const json_t *v = json_object_get(json_object_get(o, a), b);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

static bool flag(const json_t *o, const char *a, const char *b)
{
    const json_t *v = json_object_get(json_object_get(o, a), b);
    assert_true(json_is_boolean(v));
    return json_is_true(v);
}

/* One object in one line, and nothing else on either stream. */
static json_t *run_json(struct run *r, const char *const *args, int status)
{
    start(r, args);
    read_until(r, r->out, NULL);
    json_t *o = json_loads(r->text, 0, NULL);
    if (!json_is_object(o))
        print_message("got: %s\n", r->text);
    read_until(r, r->err, NULL);
    if (r->text[0])
        print_message("on standard error: %s\n", r->text);
    int got = finish(r);
    if (got != status) {
        char *text = json_dumps(o, 0);
        print_message("status %d: %s\n", got, text ? text : "no JSON");
        free(text);
    }
    assert_int_equal(got, status);
    assert_non_null(o);
    if (status == 0)
        assert_string_equal(r->text, "");
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    return o;
}

static void demo_shows_what_cede_does(void **state)
{
    json_t *o = run_json(
        *state, (const char *[]){"demo", "--device", "soft", "--json", "--seconds", "12", NULL}, 0);
    char *text = json_dumps(o, JSON_REAL_PRECISION(5));
    print_message("%s\n", text);
    free(text);
    assert_string_equal(json_string_value(json_object_get(o, "device")), "soft");
    /* Times are the device's, but batch programs that a busy machine does not schedule leave it
     * idle: then the tail of requests is shorter, and work in one window says little about work in
     * another. So p99 and shares of what one has alone are compared roughly; strictly, the medians,
     * and the two shares of one window with each other. tests/sim has the rest, in virtual time. */
    double cede50 = field(o, "cede", "p50_us"), cede99 = field(o, "cede", "p99_us");
    assert_true(field(o, "alone", "p50_us") > 0 && field(o, "alone", "p50_us") < cede50);
    assert_true(field(o, "alone", "p99_us") < cede99);
    assert_true(field(o, "default", "p50_us") >= 2 * cede50);
    assert_true(field(o, "default", "p99_us") >= 2 * cede99);
    assert_true(fabs(field(o, "multi", "p50_us") - cede50) <= 0.05 * cede50);
    assert_true(field(o, "multi", "p99_us") <= 2 * cede99);
    assert_true(field(o, "default", "batch_share") >= 0.75);
    assert_true(field(o, "cede", "batch_share") >= 0.75);

    const json_t *shares = json_object_get(o, "shares");
    for (size_t i = 0; i < 2; i++) {
        double asked = json_number_value(json_array_get(json_object_get(shares, "asked"), i));
        double got = json_number_value(json_array_get(json_object_get(shares, "got"), i));
        assert_true(asked == (i ? 0.25 : 0.75));
        assert_true(fabs(got / field(o, "shares", "sum") - asked) <= 0.05);
    }
    assert_true(field(o, "shares", "sum") >= 0.75);
    assert_true(flag(o, "pause", "stopped") && flag(o, "pause", "resumed"));
    assert_true(field(o, "pause", "suspend_us") > 0 && field(o, "pause", "resume_us") > 0);
    assert_true(json_is_true(json_object_get(o, "verified")));
    json_decref(o);
}

static void doctor_measures(void **state)
{
    json_t *o = run_json(*state, (const char *[]){"doctor", "--device", "soft", "--json", NULL}, 0);
    assert_true(json_is_true(json_object_get(o, "ok")));
    json_t *checks = json_object_get(o, "checks"), *m = json_object_get(o, "measured"), *c;
    size_t i;
    assert_true(json_array_size(checks) >= 5);
    json_array_foreach(checks, i, c)
    {
        const char *name, *status, *found, *mend;
        assert_int_equal(json_unpack(c, "{s:s, s:s, s:s, s:s}", "name", &name, "status", &status,
                                     "found", &found, "mend", &mend),
                         0);
        assert_true(name[0] && found[0] && strcmp(status, "fail") != 0);
    }
    assert_true(flag(m, "timeslices", "effective") && flag(m, "suspend", "effective") &&
                flag(m, "latency", "effective"));
    double ratio = field(m, "timeslices", "got_ratio");
    assert_true(ratio > 2.5 && ratio < 3.6);
    assert_true(field(m, "suspend", "work_while_suspended_us") == 0);
    assert_true(field(m, "preempt_block", "p99_us") > 0);
    json_decref(o);
}

/* What has free text is not shown, nor what names this machine or one GPU. */
static void doctor_reports_without_private_data(void **state)
{
    char host[256] = "", *text;
    json_t *o = run_json(
        *state, (const char *[]){"doctor", "--device", "soft", "--report", "--json", NULL}, 0);
    json_t *report = json_object_get(o, "report"), *c;
    static const char *const keys[] = {"cede",   "kernel",         "distribution", "ptrace_scope",
                                       "cgroup", "cap_sys_ptrace", "libcuda",      "nvidia"};
    size_t i, daemon = 0, gpus = 0;
    for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        assert_non_null(json_string_value(json_object_get(report, keys[i])));
    json_array_foreach(json_object_get(o, "checks"), i, c)
    {
        const char *name = json_string_value(json_object_get(c, "name"));
        const char *found = json_string_value(json_object_get(c, "found"));
        gpus += strcmp(name, "gpu") == 0;
        if (strcmp(name, "daemon") == 0) {
            daemon++;
            assert_string_equal(found, "not shown in a report");
        }
        if (strcmp(name, "suspend") == 0)
            assert_non_null(strstr(found, "effective"));
    }
    assert_true(daemon && gpus && flag(json_object_get(o, "measured"), "suspend", "effective"));
    text = json_dumps(o, 0);
    assert_null(strstr(text, "GPU-"));
    assert_null(strstr(text, "/home/"));
    assert_int_equal(gethostname(host, sizeof(host) - 1), 0);
    if (strlen(host) > 5)
        assert_null(strstr(text, host));
    free(text);
    json_decref(o);
}

/* Where there is no GPU: what is missing and the mend, status 1. */
static void doctor_says_what_is_missing(void **state)
{
    if (access("/dev/nvidiactl", F_OK) == 0)
        skip();
    json_t *o = run_json(*state, (const char *[]){"doctor", "--json", NULL}, 1);
    json_t *c;
    size_t i, failed = 0;
    assert_true(json_is_false(json_object_get(o, "ok")));
    json_array_foreach(json_object_get(o, "checks"), i, c)
    {
        if (strcmp(json_string_value(json_object_get(c, "status")), "fail") != 0)
            continue;
        failed++;
        assert_string_not_equal(json_string_value(json_object_get(c, "mend")), "");
    }
    assert_true(failed >= 2); /* devices, driver */
    assert_int_equal(json_object_size(json_object_get(o, "measured")), 0);
    json_decref(o);
}

static const char *const short_demo[] = {"demo", "--device", "soft", "--seconds", "10", NULL};

/* A signal at the start, beside programs alone, and with a daemon that has changed things. */
static void signals_leave_nothing(void **state)
{
    static const struct {
        int signal;
        const char *when;
    } cases[] = {{SIGTERM, "[1/7]"}, {SIGHUP, "[2/7]"}, {SIGINT, "[5/7]"}};
    struct run *r = *state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        start(r, short_demo);
        assert_true(read_until(r, r->err, cases[i].when));
        assert_true(find_child(r, "cede-softgpu") > 0);
        poll(NULL, 0, 400); /* some way into it; any time will do */
        kill(r->pid, cases[i].signal);
        assert_int_equal(finish(r), 128 + cases[i].signal);
        nothing_left(r);
    }
}

/* Nobody can tidy the directory then, but nothing goes on running. */
static void kill_leaves_no_process(void **state)
{
    struct run *r = *state;
    start(r, short_demo);
    assert_true(read_until(r, r->err, "[5/7]"));
    poll(NULL, 0, 300);
    assert_true(find_child(r, "ceded") > 0);
    kill(r->pid, SIGKILL);
    assert_int_equal(finish(r), -SIGKILL);
    int status;
    while (waitpid(-1, &status, 0) > 0) /* the test's time limit ends it if one stays */
        ;
    assert_int_equal(errno, ECHILD);
    char command[300];
    snprintf(command, sizeof(command), "rm -rf -- '%s'", r->dir);
    assert_int_equal(strncmp(r->dir, "/tmp/cede-demo-", 15), 0);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): a test's own directory
}

/* A program that dies under it: said, status 1, nothing left. */
static void deaths_are_told(void **state)
{
    static const char *const victims[] = {"--name=batch", "cede-softgpu", "ceded"};
    struct run *r = *state;
    for (size_t i = 0; i < ARRAY_SIZE(victims); i++) {
        start(r, short_demo);
        assert_true(read_until(r, r->err, i == 2 ? "[5/7]" : "[3/7]"));
        poll(NULL, 0, 300);
        pid_t victim = find_child(r, victims[i]);
        assert_true(victim > 0);
        kill(victim, SIGKILL);
        read_until(r, r->err, NULL);
        /* Killing the GPU makes its programs end too: which is told first is chance. */
        if (i != 1)
            assert_non_null(strstr(r->text, "was killed by signal 9"));
        assert_non_null(strstr(r->text, "cede: demo: "));
        assert_int_equal(finish(r), 1);
        nothing_left(r);
    }
}

static void bad_usage(void **state)
{
    static const char *const cases[][4] = {
        {"demo", "--seconds", "9"},
        {"demo", "--seconds", "601"},
        {"demo", "--seconds", "x"},
        {"demo", "--device", "tpu"},
        {"demo", "--rate", "0"},
        {"demo", "now"},
        {"demo", "--batch-kernel-us", "0"},
        {"demo", "--nonsense"},
        {"doctor", "now"},
        {"doctor", "--device", "tpu"},
        {"doctor", "--nonsense"},
    };
    struct run *r = *state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        start(r, cases[i]);
        assert_true(read_until(r, r->err, "--help"));
        assert_int_equal(finish(r), 2);
    }
}

int main(int argc, char **argv)
{
    static struct run r;
    if (argc != 3) {
        fprintf(stderr, "usage: %s CEDE result|doctor|faults\n", argv[0]);
        return 2;
    }
    r.cede = argv[1];
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const struct CMUnitTest result[] = {
        cmocka_unit_test_prestate(demo_shows_what_cede_does, &r),
    };
    const struct CMUnitTest doctor[] = {
        cmocka_unit_test_prestate(doctor_measures, &r),
        cmocka_unit_test_prestate(doctor_reports_without_private_data, &r),
        cmocka_unit_test_prestate(doctor_says_what_is_missing, &r),
    };
    const struct CMUnitTest faults[] = {
        cmocka_unit_test_prestate(bad_usage, &r),
        cmocka_unit_test_prestate(signals_leave_nothing, &r),
        cmocka_unit_test_prestate(kill_leaves_no_process, &r),
        cmocka_unit_test_prestate(deaths_are_told, &r),
    };
    if (strcmp(argv[2], "result") == 0)
        return cmocka_run_group_tests(result, NULL, NULL);
    if (strcmp(argv[2], "doctor") == 0)
        return cmocka_run_group_tests(doctor, NULL, NULL);
    return cmocka_run_group_tests(faults, NULL, NULL);
}
