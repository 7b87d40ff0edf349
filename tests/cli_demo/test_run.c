/* `cede demo` and `cede doctor` as a whole, on the software GPU: what they find, and that nothing
 * is left behind however they end. Every ratio is of device time.
 *
 * This program is the subreaper of all it starts: what demo would leave running becomes its child,
 * so "no child is left" is exact. */
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../cli/harness.h"
#include "base/util.h"
#include "who/procfs.h"

static struct result r;
static char bed[256]; /* the directory of the demo */

static void await_phase(int err, const char *phase)
{
    char line[512];
    do
        read_line(err, line, sizeof(line));
    while (strncmp(line, phase, strlen(phase)) != 0);
    poll(NULL, 0, 300); /* some way into it; any time will do */
}

/* Until some way into a phase. What it says then is to be read from *err. */
static pid_t start_demo(int *err, const char *phase)
{
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    bed[0] = '\0';
    pid_t pid = harness_start(
        (const char *const[]){"cede", "demo", "--device", "soft", "--seconds", "10", NULL}, -1, -1,
        fds[1], false);
    close(fds[1]);
    *err = fds[0];
    await_phase(*err, phase);
    return pid;
}

/* A process's arguments with blanks between them; "": it has ended. */
static const char *command_line(pid_t pid)
{
    static char line[1024];
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, line, sizeof(line) - 1);
    for (ssize_t i = 0; i < n; i++)
        line[i] = line[i] ? line[i] : ' ';
    line[n > 0 ? n : 0] = '\0';
    return line;
}

/* The child of the demo whose command line holds the words; its directory is noted. */
static pid_t find_child(pid_t demo, const char *words)
{
    pid_t *pids, found = 0;
    size_t n;
    assert_int_equal(proc_list(&pids, &n), 0);
    for (size_t i = 0; i < n; i++) {
        if (process_parent(pids[i]) != demo)
            continue;
        const char *line = command_line(pids[i]);
        const char *dir = strstr(line, "/tmp/cede-demo-");
        if (dir)
            snprintf(bed, sizeof(bed), "%.*s", (int)(strcspn(dir + 5, "/ ") + 5), dir);
        if (strstr(line, words))
            found = pids[i];
    }
    free(pids);
    assert_true(found > 0);
    return found;
}

static void no_child_is_left(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void nothing_left(void)
{
    no_child_is_left();
    assert_true(bed[0]);
    assert_int_equal(access(bed, F_OK), -1);
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

/* One object in one line, and, where all is well, nothing else on either stream. */
#define RUN_JSON(status, ...)                                                                      \
    (SAYS(&r, status, NULL, (status) ? NULL : "", "cede", __VA_ARGS__), said_json())
static json_t *said_json(void)
{
    json_t *o = json_loads(r.out, 0, NULL);
    assert_true(json_is_object(o));
    no_child_is_left();
    return o;
}

TEST(demo_shows_what_cede_does)
{
    json_t *o = RUN_JSON(0, "demo", "--device", "soft", "--json", "--seconds", "12");
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

TEST(doctor_measures)
{
    json_t *o = RUN_JSON(0, "doctor", "--device", "soft", "--json");
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

/* Where there is no GPU: what is missing and the mend, once, and status 1. */
TEST(doctor_says_what_is_missing)
{
    if (access("/dev/nvidiactl", F_OK) == 0)
        skip();
    json_t *o = RUN_JSON(1, "doctor", "--json");
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
    assert_int_equal(failed, 1);
    assert_int_equal(json_object_size(json_object_get(o, "measured")), 0);
    json_decref(o);
}

/* A signal at the start, beside programs alone, and with a daemon that has changed things. */
TEST(faults_by_signals)
{
    static const struct {
        int signal;
        const char *when;
    } cases[] = {{SIGTERM, "[1/7]"}, {SIGHUP, "[2/7]"}, {SIGINT, "[5/7]"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int err;
        pid_t demo = start_demo(&err, cases[i].when);
        find_child(demo, "cede-softgpu");
        kill(demo, cases[i].signal);
        ends_with(demo, 128 + cases[i].signal);
        nothing_left();
        close(err);
    }
}

/* Nobody can tidy the directory then, but nothing goes on running. */
TEST(faults_by_kill)
{
    int err;
    pid_t demo = start_demo(&err, "[5/7]");
    find_child(demo, "ceded");
    kill(demo, SIGKILL);
    ends_with(demo, 1000 + SIGKILL);
    while (waitpid(-1, NULL, 0) > 0) /* the test's time limit ends it if one stays */
        ;
    no_child_is_left();
    assert_int_equal(strncmp(bed, "/tmp/cede-demo-", 15), 0);
    RUN(&r, "rm", "-rf", "--", bed);
    close(err);
}

/* A program that dies under it: said, status 1, nothing left. */
TEST(faults_of_programs)
{
    static const char *const victims[] = {"--name=batch", "cede-softgpu", "ceded"};
    for (size_t i = 0; i < ARRAY_SIZE(victims); i++) {
        char text[4096];
        int err;
        pid_t demo = start_demo(&err, i == 2 ? "[5/7]" : "[3/7]");
        kill(find_child(demo, victims[i]), SIGKILL);
        ends_with(demo, 1);
        ssize_t n = read(err, text, sizeof(text) - 1);
        text[n > 0 ? n : 0] = '\0';
        /* Killing the GPU makes its programs end too: which is told first is chance. */
        if (i != 1)
            assert_non_null(strstr(text, "was killed by signal 9"));
        assert_non_null(strstr(text, "cede: demo: "));
        nothing_left();
        close(err);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s NAMES_OF_TESTS, such as 'doctor_*'\n", argv[0]);
        return 2;
    }
    cmocka_set_test_filter(argv[1]);
    return test_run(harness_begin, harness_end);
}
