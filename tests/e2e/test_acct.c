/* Accounts: jobs run, end, and `cede acct` shows what they had; users see their own; and whatever
 * is killed, each job is there once. Asserts ratios and counts. */
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "acct/database.h"
#include "acct/recorder.h"
#include "fixture.h"
#include "who/procfs.h"

/* The rows of `cede acct --json` with these options; the caller's. */
static json_t *acct_rows(const char *key, const char *const more[])
{
    const char *argv[16] = {"cede", "acct", "--json"};
    for (size_t i = 0; more && more[i]; i++)
        argv[3 + i] = more[i];
    run_program(&result, NULL, argv);
    if (result.status)
        fail_msg("status %d: %s%s", status_of(result.status), result.out, result.err);
    json_t *all = json_loads(result.out, 0, NULL), *rows = json_object_get(all, key);
    assert_int_equal(json_integer_value(json_object_get(all, "lost")), 0);
    assert_true(json_is_array(rows));
    json_incref(rows);
    json_decref(all);
    return rows;
}
#define ACCT(key, ...) acct_rows(key, (const char *const[]){__VA_ARGS__, NULL})

static double value(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

/* The only row of that name, and one of its values; -1: there is none. */
static double named(const char *name, const char *key)
{
    json_t *rows = ACCT("jobs", "-n", name);
    assert_true(json_array_size(rows) <= 1);
    double v = json_array_size(rows) ? value(json_array_get(rows, 0), key) : -1;
    json_decref(rows);
    return v;
}

static bool state_is(const char *name, const char *state)
{
    json_t *rows = ACCT("jobs", "-n", name);
    const char *is = json_string_value(json_object_get(json_array_get(rows, 0), "state"));
    bool same = is && strcmp(is, state) == 0;
    json_decref(rows);
    return same;
}

static size_t count(const char *key, const char *by)
{
    json_t *rows = by ? ACCT(key, "--sum-by", by) : acct_rows(key, NULL);
    size_t n = json_array_size(rows);
    json_decref(rows);
    return n;
}

static struct ceded start_with(const char *more)
{
    set_accounts(true);
    configure(20, more);
    return ceded_start();
}

static pid_t recorder_of(pid_t ceded)
{
    return children_named(ceded, "cede-acct").pid;
}

/* ---- shares ---- */

E2E(shares)
{
    struct ceded d = start_with("");
    pid_t pids[] = {LOAD("three", "batch", "--depth", "100"),
                    LOAD("one", "batch", "--depth", "100"), LOAD("above", "latency")};
    AWAIT(all_have_contexts(pids, 3));
    CEDE("set", pid_text(pids[2]), "-c", "latency");
    AWAIT(count("jobs", NULL) == 1); /* it is counted after a minute */
    CEDE("acct", "-P", "--format", "State,Elapsed,GPUTime,Waited");
    assert_string_equal(result.out, "State|Elapsed|GPUTime|Waited\nopen|-|-|-\n");
    CEDE("set", pid_text(pids[0]), "-c", "batch", "-w", "300");
    CEDE("set", pid_text(pids[1]), "-c", "batch", "-w", "100");
    nap_ms(4000);
    json_t *finals[2] = {load_end("three", pids[0]), load_end("one", pids[1])};
    json_decref(finals[0]);
    json_decref(finals[1]);
    json_decref(load_end("above", pids[2]));
    AWAIT(state_is("three", "ended") && state_is("one", "ended"));
    const double three = named("three", "gpu_s"), one = named("one", "gpu_s"),
                 known = named("one", "known_s");
    if (!(three / one > 1.5 && three / one < 6)) /* on a busy machine turns end late */
        fail_msg("300:100 gives %.3f:%.3f", three, one);
    if (!(three + one > 0.6 * known && three + one < 1.2 * known))
        fail_msg("%.3f and %.3f s of %.3f s are counted", three, one, known);
    assert_true(named("three", "exact_s") <= three);
    /* They take turns: what one has, the other waits for. */
    const double waited = named("one", "waited_s");
    if (!(waited > 0.4 * known && named("three", "waited_s") < waited))
        fail_msg("it waited %.3f s of %.3f s", waited, known);
    assert_true(named("one", "turns") > 3 && named("one", "gpus") == 1);

    json_t *sums = ACCT("sums", "--sum-by", "class", "--class", "batch"),
           *sum = json_array_get(sums, 0);
    assert_int_equal(json_array_size(sums), 1);
    assert_true(value(sum, "jobs") == 2 && value(sum, "gpu_s") > (three + one) * 0.999);
    json_decref(sums);
    CEDE("acct", "-P", "--format", "jobname,class,STATE,Exact", "-n", "three");
    assert_non_null(strstr(result.out, "JobName|Class|State|Exact\nthree|batch|ended|"));
    assert_int_equal(count("jobs", NULL), 3);
    CEDE("acct", "-E", "now-1days", "-S", "now-2days");
    assert_null(strstr(result.out, "three"));
    ceded_stop(&d);
    assert_int_equal(count("jobs", NULL), 3); /* read from the file */
}

/* ---- who sees what ---- */

#define NOBODY 65534

/* In a child: it has no rights from here on. */
static void become_user(uid_t uid)
{
    if (setgroups(0, NULL) < 0 || setgid(uid) < 0 || setuid(uid) < 0)
        _exit(126);
}

/* The status of a verb of that user's, 127 where the build cannot be read; what it says goes to
 * nobody.out. */
static int as_nobody(const char *const argv[])
{
    FILE *out = fopen(in_dir("nobody.out"), "we");
    assert_non_null(out);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fileno(out), STDOUT_FILENO);
        dup2(fileno(out), STDERR_FILENO);
        become_user(NOBODY);
        execv(harness_exe(), (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    fclose(out);
    return await_child(pid);
}
#define AS_NOBODY(...) as_nobody((const char *const[]){"cede", __VA_ARGS__, NULL})

static bool nobody_sees(const char *name)
{
    assert_int_equal(AS_NOBODY("acct", "-P"), 0);
    return strstr(contents("nobody.out"), name) != NULL;
}

E2E(users)
{
    const struct group *g = getgrgid(NOBODY);
    char more[96];
    if (geteuid() != 0 || !g)
        skip();
    snprintf(more, sizeof(more), "swap_start = 0\ngroup = %s", g->gr_name);
    assert_int_equal(chmod(harness_dir(), 0711), 0);
    struct ceded d = start_with("");
    if (AS_NOBODY("run", "-q", "-n", "theirs", "--", "/bin/true") == 127)
        skip(); /* the build is where others may not look */
    CEDE("run", "-q", "-n", "ours", "--", "/bin/true");
    AWAIT(state_is("ours", "ended") && state_is("theirs", "ended"));
    assert_true(named("theirs", "uid") == NOBODY && named("ours", "uid") == 0);
    assert_true(nobody_sees("theirs") && !nobody_sees("ours"));
    assert_int_equal(AS_NOBODY("acct", "-P", "-u", "root"), 0);
    assert_null(strstr(contents("nobody.out"), "ours"));
    assert_int_equal(AS_NOBODY("acct", "-P", "--sum-by", "name"), 0);
    assert_null(strstr(contents("nobody.out"), "ours"));
    CEDE("acct", "-P", "-u", "65534");
    assert_true(strstr(result.out, "theirs") && !strstr(result.out, "ours"));
    assert_int_equal(AS_NOBODY("acct", "-P", "--format", "nothing"), 2);

    configure(20, more);
    kill(d.pid, SIGHUP);
    AWAIT(nobody_sees("ours"));
    configure(20, "");
    kill(d.pid, SIGHUP);
    AWAIT(!nobody_sees("ours"));
    assert_true(nobody_sees("theirs"));
    ceded_stop(&d);
    assert_int_equal(AS_NOBODY("acct"), 1); /* the file is root's */
}

/* In a child of another user, until it is killed: connections that say nothing, or what is no
 * question, or a question whose answer nobody reads; and again. */
_Noreturn static void pester(const char *path)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    struct acct_query q = {
        .proto = ACCT_PROTO, .end_s = INT64_MAX, .uid = ACCT_ANYBODY, .class = 99, .by = ~0U};
    int fds[48];
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
    memset(q.name, 0xff, sizeof(q.name));
    become_user(NOBODY);
    for (unsigned i = 0;; i++) {
        int *fd = &fds[i % ARRAY_SIZE(fds)];
        if (i >= ARRAY_SIZE(fds))
            close(*fd);
        *fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
        if (connect(*fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
            continue;
        q.by = i % 16;
        if (i % 3)
            (void)!send(*fd, &q, i % 3 == 1 ? sizeof(q) : 1 + i % sizeof(q), MSG_NOSIGNAL);
        nap_ms(i % 3);
    }
}

E2E(pestered)
{
    if (geteuid() != 0)
        skip();
    assert_int_equal(chmod(harness_dir(), 0711), 0);
    struct ceded d = start_with("");
    pid_t recorder = 0, child = fork();
    if (child == 0)
        pester(in_dir(ACCT_SOCKET));
    AWAIT(recorder = recorder_of(d.pid));
    for (unsigned i = 0; i < 10; i++)
        CEDE("run", "-q", "-n", "amid", "--", "/bin/true");
    AWAIT(count("jobs", NULL) == 10);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(count("jobs", NULL), 10); /* root has room of its own */
    assert_true(recorder_of(d.pid) == recorder);
    size_t readers = children_of(recorder, NULL, 0);
    assert_true(readers <= ACCT_READERS_MAX);
    slay_child(child);
    AWAIT(children_of(recorder, NULL, 0) == 0);
}

/* Holds as many questions as one may, and asks none. */
static void hold_questions(const char *path, uid_t uid)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int fds[ACCT_READERS_PER_USER];
    char c;
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
    memset(fds, -1, sizeof(fds));
    become_user(uid);
    for (unsigned i = 0;; i++) {
        int *fd = &fds[i % ARRAY_SIZE(fds)];
        nap_ms(2);
        if (*fd >= 0 && recv(*fd, &c, 1, MSG_DONTWAIT) < 0)
            continue;
        close(*fd);
        *fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        (void)!connect(*fd, (struct sockaddr *)&sa, sizeof(sa));
    }
}

/* A user's subordinate uids are that user. */
E2E(subordinates_ask)
{
    enum { FIRST = 300000, HOLDERS = 3 };
    const char *subuid = in_dir("subuid");
    pid_t holders[HOLDERS], recorder = 0;
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0)
        skip();
    FILE *f = fopen(subuid, "we");
    fprintf(f, "%d:%d:65536\n", NOBODY, FIRST);
    assert_int_equal(fclose(f), 0);
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        access("/etc/subuid", F_OK) < 0 || mount(subuid, "/etc/subuid", NULL, MS_BIND, NULL) < 0)
        skip();
    assert_int_equal(chmod(harness_dir(), 0711), 0);
    struct ceded d = start_with("");
    AWAIT(recorder = recorder_of(d.pid));
    for (uid_t i = 0; i < HOLDERS; i++) {
        if ((holders[i] = fork()) == 0)
            hold_questions(in_dir(ACCT_SOCKET), FIRST + i);
    }
    AWAIT(children_of(recorder, NULL, 0) >= ACCT_READERS_PER_USER);
    for (unsigned i = 0; i < 10; i++) {
        assert_true(children_of(recorder, NULL, 0) <= ACCT_READERS_PER_USER);
        nap_ms(50);
    }
    for (int i = 0; i < HOLDERS; i++) {
        slay_child(holders[i]);
    }
    ceded_stop(&d);
    assert_int_equal(umount2("/etc/subuid", MNT_DETACH), 0);
}

/* ---- kills ---- */

E2E(recorder_killed)
{
    enum { JOBS = 24 };
    unsigned kills = 0;
    char name[16];
    struct ceded d = start_with("");
    AWAIT(recorder_of(d.pid));
    for (unsigned i = 0; i < JOBS; i++) {
        snprintf(name, sizeof(name), "j%u", i);
        pid_t recorder = i % 2 ? recorder_of(d.pid) : 0;
        CEDE("run", "-q", "-n", name, "--", "/bin/true");
        kills += recorder && kill(recorder, SIGKILL) == 0;
    }
    assert_true(kills > 0);
    AWAIT(recorder_of(d.pid));
    AWAIT(count("jobs", NULL) == JOBS);
    assert_int_equal(count("rows", "none"), JOBS);
    assert_int_equal(count("sums", "name"), JOBS);
    /* And what ceded does meanwhile does not depend on it. */
    kill(recorder_of(d.pid), SIGSTOP);
    for (unsigned i = 0; i < 5; i++)
        CEDE("run", "-q", "-n", "while", "--", "/bin/true");
    pid_t stopped = recorder_of(d.pid);
    kill(stopped, SIGCONT);
    AWAIT(count("jobs", NULL) == JOBS + 5);
}

E2E(ceded_killed)
{
    struct ceded d = start_with("");
    pid_t pid = LOAD("lives", "batch");
    AWAIT(all_have_contexts(&pid, 1));
    CEDE("set", pid_text(pid), "-c", "batch");
    await_progress(&pid, 1);
    ceded_stop(&d);
    assert_true(state_is("lives", "open"));
    const double first = named("lives", "known_s");
    assert_true(first > 0);
    /* Of what this one counts the last minute is lost, and nothing of before. */
    d = ceded_start();
    await_progress(&pid, 1);
    pid_t recorder = recorder_of(d.pid);
    ceded_kill(&d);
    if (recorder)
        assert_int_equal(await_child(recorder), 0); /* an orphan of ours now */
    const double killed = named("lives", "known_s");
    assert_true(killed >= first && state_is("lives", "open"));
    d = ceded_start();
    await_progress(&pid, 1);
    json_decref(load_end("lives", pid));
    AWAIT(state_is("lives", "ended"));
    assert_true(named("lives", "known_s") > killed);
    assert_int_equal(count("jobs", NULL), 1);
    const size_t rows = count("rows", "none"); /* of each ceded, if it came to count */
    assert_true(rows == 2 || rows == 3);
}

/* Who listens ends before it has taken the question. */
E2E(unanswered)
{
    struct ceded d = start_with("");
    CEDE("run", "-q", "-n", "once", "--", "/bin/true");
    AWAIT(count("jobs", NULL) == 1);
    ceded_stop(&d);
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/" ACCT_SOCKET, cede_home());
    for (unsigned wait_ms = 0; wait_ms <= 50; wait_ms += 50) {
        unlink(sa.sun_path);
        const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
        assert_int_equal(listen(fd, 1), 0);
        const pid_t pid = fork();
        if (pid == 0) {
            poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 10000);
            nap_ms(wait_ms); /* 0: it may not have been sent yet */
            _exit(0);
        }
        close(fd);
        assert_int_equal(count("jobs", NULL), 1);
        assert_int_equal(await_child(pid), 0);
    }
    unlink(sa.sun_path);
}

/* ---- where there can be none ---- */

E2E(damaged)
{
    FILE *f = fopen(in_dir(ACCT_FILE), "we");
    assert_non_null(f);
    assert_true(
        fputs("this is no database, and longer than a hundred bytes, so that nobody can take "
              "it for one that is new",
              f) >= 0);
    fclose(f);
    start_with("");
    CEDE("run", "-q", "-n", "after", "--", "/bin/true");
    AWAIT(state_is("after", "ended"));
    assert_non_null(strstr(contents("ceded.err"), "set aside as "));
}

E2E(not_kept)
{
    struct ceded d;
    for (int i = 0; i < 2; i++) {
        if (i)
            setenv("CEDE_STATE_DIR", "/proc/no-such", 1);
        set_accounts(i);
        configure(20, "");
        d = ceded_start();
        CEDE("run", "-q", "-n", "none", "--", "/bin/true");
        FAILS(1, "no daemon that keeps accounting records is running", "acct");
        assert_int_equal(strstr(contents("ceded.err"), "no accounting: ") != NULL, i);
        ceded_stop(&d);
    }
    unsetenv("CEDE_STATE_DIR");
}

int main(void)
{
    if (!acct_db_built())
        return 77;
    return test_run(NULL, NULL);
}
