/* See testbed.h. */
#include "doctor/testbed.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/child.h"
#include "base/json_text.h"
#include "doctor/cleanup.h"

/* A load drains for up to 2 s before it ends; a daemon undoes its changes. */
#define END_NS         (4 * NSEC_PER_SEC)
#define START_NS       (10 * NSEC_PER_SEC)
#define ORPHAN_NS      (5 * NSEC_PER_SEC)
#define CALIBRATION_NS (60 * NSEC_PER_SEC)

/* The signal that a child gets when this process is killed; SIGTERM lets it undo its changes. */
static const int death_signals[] = {
    [CHILD_SOFTGPU] = SIGTERM,
    [CHILD_DAEMON] = SIGTERM,
    [CHILD_LOAD] = SIGKILL,
    [CHILD_HELPER] = SIGTERM,
};

static void testbed_path(const struct testbed *s, const char *name, const char *suffix, char *buf,
                         size_t size)
{
    snprintf(buf, size, "%s/%s%s", s->dir, name, suffix);
}

void testbed_words(const struct testbed *s, const struct child *c, char *buf, size_t size)
{
    char path[128];
    testbed_path(s, c->name, ".log", path, sizeof(path));
    buf[0] = '\0';
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    if (!f)
        return;
    if (fseek(f, 0, SEEK_END) == 0 && ftell(f) >= (long)size)
        fseek(f, -(long)size + 1, SEEK_END);
    else
        fseek(f, 0, SEEK_SET);
    buf[fread(buf, 1, size - 1, f)] = '\0';
}

/* The last line that a child wrote to its standard error, as the end of a message; "" if none. */
static void last_words(const struct testbed *s, const struct child *c, char *buf, size_t size)
{
    char text[400], *save = NULL;
    testbed_words(s, c, text, sizeof(text));
    buf[0] = '\0';
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save))
        snprintf(buf, size, ": %s", l);
}

/* ---- starting ---- */

static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP};

void testbed_signals(sigset_t *set)
{
    sigemptyset(set);
    for (size_t i = 0; i < ARRAY_SIZE(stop_signals); i++)
        sigaddset(set, stop_signals[i]);
}

/* Lets the daemon, not an ancestor, steer the load where kernel.yama.ptrace_scope is 1. */
static int allow_tracing(void *arg)
{
    (void)arg;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    return 0;
}

int testbed_program(struct testbed *s, enum child_kind kind, const char *name,
                    const char *const *argv, const char *const *env, struct child **out,
                    struct error *err)
{
    size_t slot = 0;
    while (slot < TESTBED_CHILDREN && s->children[slot])
        slot++;
    if (slot == TESTBED_CHILDREN)
        return error_set(err, -ENOSPC, "too many programs at once");
    struct child *c = calloc(1, sizeof(*c));
    if (!c)
        return error_set(err, -ENOMEM, "out of memory");
    c->kind = kind;
    c->pidfd = c->out = -1;
    snprintf(c->name, sizeof(c->name), "%s", name);

    char log_path[128];
    testbed_path(s, name, ".log", log_path, sizeof(log_path));
    _cleanup_close_ int log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0) {
        int r = -errno;
        free(c);
        return error_set(err, r, "cannot start %s: %s", name, strerror(-r));
    }
    sigset_t mask = s->old_mask; /* without the stop signals, which the caller may have blocked */
    for (size_t i = 0; i < ARRAY_SIZE(stop_signals); i++)
        sigdelset(&mask, stop_signals[i]);
    const struct child_spec spec = {
        .file = strncmp(argv[0], "cede", 4) == 0 ? CHILD_SELF : NULL,
        .argv = argv,
        .begin = kind == CHILD_LOAD ? allow_tracing : NULL,
        .env = env,
        .fds = {{-1, STDIN_FILENO}, {log, STDERR_FILENO}},
        .inherit = true,
        .group = true,
        .fresh = true,
        .mask = &mask,
        .death_signal = death_signals[kind],
    };
    int r = c->out = child_start_linked(&spec, CHILD_WRITES, STDOUT_FILENO, &c->pid);
    if (r >= 0) {
        c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
        if (c->pidfd < 0) {
            r = -errno;
            kill(c->pid, SIGKILL);
            waitpid(c->pid, NULL, 0);
        }
    }
    if (r < 0) {
        close_p(&c->out);
        free(c);
        return error_set(err, r, "cannot start %s: %s", name, strerror(-r));
    }
    s->children[slot] = c;
    *out = c;
    return 0;
}

static int start_softgpu(struct testbed *s, unsigned gpus, struct error *err)
{
    char path[128], n[16];
    struct child *c = NULL;
    testbed_path(s, "gpu", "", path, sizeof(path));
    setenv("CEDE_SOFT_SOCKET", path, 1);
    snprintf(n, sizeof(n), "%u", gpus);
    const char *argv[] = {"cede-softgpu", "--socket", path, "--gpus", n, NULL};
    int r = testbed_program(s, CHILD_SOFTGPU, argv[0], argv, NULL, &c, err);
    uint64_t deadline = monotonic_ns() + START_NS;
    while (r == 0 && c && !c->spoke) {
        if (monotonic_ns() >= deadline)
            return error_set(err, -ETIMEDOUT, "cede-softgpu does not start");
        r = testbed_turn(s, deadline, err);
    }
    return r;
}

int testbed_calibrate(struct testbed *s, const char *device, char *buf, size_t size,
                      struct error *err)
{
    struct child *c = NULL;
    if (strcmp(device, "soft") == 0)
        return 0;
    const char *argv[] = {"cede-load", "calibrate", "--device", device, NULL};
    int r = testbed_program(s, CHILD_LOAD, "calibrate", argv, NULL, &c, err);
    if (r == 0)
        r = testbed_await_end(s, c, CALIBRATION_NS, err);
    if (r == 0)
        snprintf(buf, size, "--iterations-per-us=%.9g", c->series.iterations_per_us);
    return r;
}

/* -ENOENT: no daemon listens there yet. */
static int connect_daemon(const struct testbed *s, int *fd)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/socket", s->dir);
    *fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        return -errno;
    if (connect(*fd, (struct sockaddr *)&sa, sizeof(sa)) == 0)
        return 0;
    int r = errno == ECONNREFUSED ? -ENOENT : -errno;
    close(*fd);
    *fd = -1;
    return r;
}

int testbed_request(const struct testbed *s, const char *text, double *us, json_t **answer,
                    struct error *err)
{
    char reply[1 << 18];
    const struct timeval patience = {.tv_sec = END_NS / NSEC_PER_SEC};
    _cleanup_close_ int fd = -1;
    int r = connect_daemon(s, &fd);
    if (r < 0)
        return error_set(err, r, "cannot connect to ceded in %s: %s", s->dir, strerror(-r));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    uint64_t start = monotonic_ns();
    ssize_t n = send(fd, text, strlen(text), MSG_NOSIGNAL);
    if (n > 0)
        n = recv(fd, reply, sizeof(reply) - 1, 0);
    *us = (double)(monotonic_ns() - start) / (double)NSEC_PER_USEC;
    if (n <= 0)
        return error_set(err, -EIO, "ceded gave no answer: %s", n ? strerror(errno) : "it ended");
    reply[n] = '\0';
    _cleanup_json_ json_t *o = json_loads(reply, 0, NULL);
    const bool ok = json_is_true(json_object_get(o, "ok"));
    if (ok && answer)
        *answer = json_incref(o);
    return ok ? 0 : error_set(err, -EPROTO, "ceded: %.300s", reply);
}

int testbed_daemon(struct testbed *s, const char *device, const char *settings, struct error *err)
{
    char config[128];
    /* The machine's configuration is not read, because its rules would disturb a measurement. */
    testbed_path(s, "cede.conf", "", config, sizeof(config));
    _cleanup_close_ int fd = open(config, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write_full(fd, settings, strlen(settings)) < 0)
        return error_set(err, -errno, "cannot write %s: %s", config, strerror(errno));
    const char *argv[] = {"ceded", "--dir", s->dir, "--device", device, "--config", config, NULL};
    int r = testbed_program(s, CHILD_DAEMON, argv[0], argv, NULL, &s->daemon, err);
    uint64_t deadline = monotonic_ns() + START_NS;
    while (r == 0) {
        _cleanup_close_ int socket = -1;
        r = connect_daemon(s, &socket);
        if (r != -ENOENT)
            return r < 0 ? error_set(err, r, "cannot connect to ceded: %s", strerror(-r)) : 0;
        r = monotonic_ns() >= deadline
                ? error_set(err, -ETIMEDOUT, "ceded does not answer in %s", s->dir)
                : testbed_sleep(s, monotonic_ns() + 20 * NSEC_PER_MSEC, err);
    }
    return r;
}

/* ---- listening ---- */

static int take_line(struct child *c, const char *line, size_t n, struct error *err)
{
    c->spoke = true;
    if (c->kind != CHILD_LOAD || n == 0)
        return 0;
    int r = series_line(&c->series, line, n, err);
    return r < 0 ? error_prefix(err, r, "%s", c->name) : 0;
}

/* Reads all that is in the pipe, also after an error, because poll() would report the rest again
 * and again. Returns the first error. */
static int take_output(struct child *c, struct error *err)
{
    int result = 0;
    for (;;) {
        ssize_t n = read(c->out, c->line + c->nline, sizeof(c->line) - c->nline);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return result;
        c->nline += (size_t)n;
        char *from = c->line, *end = c->line + c->nline, *nl;
        while ((nl = memchr(from, '\n', (size_t)(end - from)))) {
            int r = take_line(c, from, (size_t)(nl - from), result == 0 ? err : NULL);
            if (result == 0)
                result = r;
            from = nl + 1;
        }
        c->nline = (size_t)(end - from);
        memmove(c->line, from, c->nline);
        if (c->nline == sizeof(c->line)) {
            c->nline = 0;
            if (result == 0)
                result = error_set(err, -EPROTO, "%s prints a line without end", c->name);
        }
    }
}

static int take_end(struct testbed *s, struct child *c, struct error *err)
{
    int r = take_output(c, err);
    if (waitpid(c->pid, &c->status, WNOHANG) != c->pid)
        return r;
    close(c->pidfd);
    close(c->out);
    c->pidfd = c->out = -1;
    pid_t pid = c->pid;
    c->pid = 0;
    if (r < 0 || c->kind == CHILD_HELPER || (c->status == 0 && (c->ending || c->series.final)))
        return r;
    char words[400];
    last_words(s, c, words, sizeof(words));
    if (WIFSIGNALED(c->status))
        return error_set(err, -ECHILD, "%s (pid %d) was killed by signal %d%s", c->name, pid,
                         WTERMSIG(c->status), words);
    return error_set(err, -ECHILD, "%s (pid %d) ended with status %d%s", c->name, pid,
                     WEXITSTATUS(c->status), words);
}

int testbed_turn(struct testbed *s, uint64_t until_ns, struct error *err)
{
    struct pollfd p[1 + 2 * TESTBED_CHILDREN];
    p[0] = (struct pollfd){.fd = s->signal_fd, .events = POLLIN};
    for (size_t i = 0; i < TESTBED_CHILDREN; i++) {
        const struct child *c = s->children[i];
        bool there = c && c->pid;
        p[1 + 2 * i] = (struct pollfd){.fd = there ? c->out : -1, .events = POLLIN};
        p[2 + 2 * i] = (struct pollfd){.fd = there ? c->pidfd : -1, .events = POLLIN};
    }
    uint64_t now = monotonic_ns(), ns = until_ns > now ? until_ns - now : 0;
    struct timespec ts = {(time_t)(ns / NSEC_PER_SEC), (long)(ns % NSEC_PER_SEC)};
    int n = ppoll(p, ARRAY_SIZE(p), &ts, NULL);
    if (n < 0 && errno != EINTR)
        return error_set(err, -errno, "cannot wait for the programs: %s", strerror(errno));
    if (n <= 0)
        return 0;
    struct signalfd_siginfo si;
    if ((p[0].revents & POLLIN) && read(s->signal_fd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
        s->signal = (int)si.ssi_signo;
        return error_set(err, -EINTR, "interrupted by signal %d", s->signal);
    }
    int r = 0;
    for (size_t i = 0; i < TESTBED_CHILDREN; i++) {
        struct child *c = s->children[i];
        int failed = 0;
        if (p[1 + 2 * i].revents & POLLIN)
            failed = take_output(c, r == 0 ? err : NULL);
        if (r == 0)
            r = failed;
        if (p[2 + 2 * i].revents) {
            failed = take_end(s, c, r == 0 ? err : NULL);
            r = r == 0 ? failed : r;
        } else if (p[1 + 2 * i].revents == POLLHUP) {
            /* The child closed its output and lives, so only its end is watched from now on. */
            close(c->out);
            c->out = -1;
        }
    }
    return r;
}

int testbed_sleep(struct testbed *s, uint64_t until_ns, struct error *err)
{
    int r = 0;
    do
        r = testbed_turn(s, until_ns, err);
    while (r == 0 && monotonic_ns() < until_ns);
    return r;
}

/* ---- waiting for something ---- */

int testbed_await_work(struct testbed *s, struct child *const *v, size_t n, double seconds,
                       struct error *err)
{
    uint64_t deadline = clock_ns(clock_s() + seconds);
    int r = 0;
    for (size_t i = 0; i < n; i++) {
        while (r == 0 && v[i]->series.last_t <= 0) {
            if (monotonic_ns() >= deadline)
                return error_set(err, -ETIMEDOUT, "%s does not begin to work within %g s",
                                 v[i]->name, seconds);
            r = testbed_turn(s, deadline, err);
        }
    }
    return r;
}

int testbed_await_lines(struct testbed *s, struct child *const *v, size_t n, double t,
                        struct error *err)
{
    double deadline = clock_s() + TESTBED_COVER_S;
    int r = 0;
    for (size_t i = 0; i < n; i++) {
        while (r == 0 && v[i]->series.last_t < t) {
            if (clock_s() >= deadline)
                return error_set(err, -ETIMEDOUT,
                                 "%s (pid %d) has printed nothing for %g s: is it stuck?",
                                 v[i]->name, (int)v[i]->pid, TESTBED_COVER_S);
            r = testbed_turn(s, clock_ns(deadline), err);
        }
    }
    return r;
}

int testbed_await_end(struct testbed *s, struct child *c, uint64_t limit_ns, struct error *err)
{
    uint64_t deadline = monotonic_ns() + limit_ns;
    int r = 0;
    while (r == 0 && c->pid) {
        if (monotonic_ns() >= deadline) {
            kill(-c->pid, SIGKILL);
            return error_set(err, -ETIMEDOUT, "%s did not end within %llu s", c->name,
                             limit_ns / NSEC_PER_SEC);
        }
        r = testbed_turn(s, deadline, err);
    }
    return r;
}

/* ---- ending ---- */

int testbed_stop(struct testbed *s, struct child *const *v, size_t n, struct error *err)
{
    uint64_t deadline = monotonic_ns() + s->end_ns;
    int result = 0;
    bool interrupted = false; /* true: children are killed at once */
    for (size_t i = 0; i < n; i++) {
        v[i]->ending = true;
        if (v[i]->pid)
            kill(v[i]->pid, SIGTERM);
    }
    for (size_t i = 0; i < n; i++) {
        while (v[i]->pid) {
            int r = testbed_turn(s, deadline, result == 0 ? err : NULL);
            if (r < 0 && result == 0)
                result = r;
            interrupted |= r == -EINTR;
            if (v[i]->pid && (interrupted || monotonic_ns() >= deadline)) {
                kill(-v[i]->pid, SIGKILL);
                deadline = monotonic_ns() + s->end_ns;
                if (result == 0)
                    result = error_set(err, -ETIME, "%s did not end within %llu s", v[i]->name,
                                       (unsigned long long)(s->end_ns / NSEC_PER_SEC));
            }
        }
    }
    return result;
}

void testbed_forget(struct testbed *s, struct child *c)
{
    char log_path[128];
    testbed_path(s, c->name, ".log", log_path, sizeof(log_path));
    for (size_t i = 0; i < TESTBED_CHILDREN; i++) {
        if (s->children[i] == c && c->pid == 0) {
            unlink(log_path);
            series_free(&c->series);
            free(c);
            s->children[i] = NULL;
            return;
        }
    }
}

int testbed_open(struct testbed *s, unsigned softgpus, struct error *err)
{
    memset(s, 0, sizeof(*s));
    s->end_ns = END_NS;
    sigset_t set;
    testbed_signals(&set);
    sigprocmask(SIG_BLOCK, &set, &s->old_mask);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->signal_fd < 0)
        return error_set(err, -errno, "cannot watch for signals: %s", strerror(errno));

    /* Not below $TMPDIR: a socket's path has to be short. */
    int r = process_make_dir("/tmp/cede-demo-", s->dir, sizeof(s->dir));
    if (r < 0)
        return error_set(err, r, "cannot create a directory in /tmp: %s", strerror(-r));
    setenv("CEDE_DIR", s->dir, 1);
    return softgpus ? start_softgpu(s, softgpus, err) : 0;
}

void testbed_close(struct testbed *s)
{
    /* The daemon ends first, as programs that it has suspended could not end; the GPU ends last. */
    static const enum child_kind order[] = {CHILD_DAEMON, CHILD_LOAD, CHILD_HELPER, CHILD_SOFTGPU};
    for (size_t k = 0; k < ARRAY_SIZE(order); k++) {
        struct child *v[TESTBED_CHILDREN] = {NULL};
        size_t n = 0;
        for (size_t i = 0; i < TESTBED_CHILDREN; i++) {
            if (s->children[i] && s->children[i]->kind == order[k])
                v[n++] = s->children[i];
        }
        /* A load's last lines are not needed any more. */
        for (size_t i = 0; i < n && order[k] == CHILD_LOAD; i++) {
            if (v[i]->pid)
                kill(-v[i]->pid, SIGKILL);
        }
        testbed_stop(s, v, n, NULL);
    }
    process_end_all(ORPHAN_NS); /* a daemon's restorer finishes its work */
    for (size_t i = 0; i < TESTBED_CHILDREN; i++) {
        if (s->children[i])
            series_free(&s->children[i]->series);
        free(s->children[i]);
        s->children[i] = NULL;
    }
    if (s->dir[0])
        process_remove_dir(s->dir);
    s->dir[0] = '\0';
    if (s->signal_fd >= 0)
        close(s->signal_fd);
    s->signal_fd = -1;
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    sigprocmask(SIG_SETMASK, &s->old_mask, NULL);
}
