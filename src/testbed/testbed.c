/* See children.h. */
#include "bench/children.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
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

/* How long each kind may take to end: a load drains for up to 2 s, a daemon undoes its changes. */
#define END_NS    (4 * NSEC_PER_SEC)
#define START_NS  (10 * NSEC_PER_SEC)
#define ORPHAN_NS (5 * NSEC_PER_SEC)

static const struct {
    const char *program;
    int death_signal; /* when we are killed: the first two have something to tidy */
} kinds[] = {
    [CHILD_SOFTGPU] = {"cede-softgpu", SIGTERM},
    [CHILD_DAEMON] = {"ceded", SIGTERM},
    [CHILD_LOAD] = {"cede-load", SIGKILL},
    [CHILD_HELPER] = {"helper", SIGTERM},
};

static void stage_path(const struct stage *s, const char *name, const char *suffix, char *buf,
                       size_t size)
{
    snprintf(buf, size, "%s/%s%s", s->dir, name, suffix);
}

/* The last line a child wrote to its standard error, for a person; "" if none. */
static void last_words(const struct stage *s, const struct child *c, char *buf, size_t size)
{
    char path[128], line[400];
    stage_path(s, c->name, ".log", path, sizeof(path));
    buf[0] = '\0';
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0])
            snprintf(buf, size, ": %s", line);
    }
}

void stage_words(const struct stage *s, const struct child *c, char *buf, size_t size)
{
    char path[128];
    stage_path(s, c->name, ".log", path, sizeof(path));
    buf[0] = '\0';
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    if (fseek(f, 0, SEEK_END) == 0 && ftell(f) >= (long)size)
        fseek(f, -(long)size + 1, SEEK_END);
    else
        fseek(f, 0, SEEK_SET);
    buf[fread(buf, 1, size - 1, f)] = '\0';
    fclose(f);
}

/* ---- starting ---- */

void stage_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
}

/* In the new process: never returns. */
static void become(const struct stage *s, enum child_kind kind, const char *file, char *const *argv,
                   const char *const *env, pid_t parent, int out, int log)
{
    int null = open("/dev/null", O_RDONLY);
    /* A group of its own: ^C is for us to answer, in order. */
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, kinds[kind].death_signal);
    /* Where kernel.yama.ptrace_scope is 1 the daemon, no ancestor of the loads, may steer them. */
    if (kind == CHILD_LOAD)
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    signal(SIGPIPE, SIG_DFL);
    sigset_t ours;
    stage_signals(&ours);
    sigprocmask(SIG_SETMASK, &s->old_mask, NULL);
    sigprocmask(SIG_UNBLOCK, &ours, NULL); /* whoever opened the stage may have blocked them */
    for (; env && env[0]; env += 2)
        setenv(env[0], env[1], 1);
    if (getppid() == parent && null >= 0 && dup2(null, STDIN_FILENO) >= 0 &&
        dup2(out, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0) {
        execvp(file, argv);
        dprintf(STDERR_FILENO, "cannot execute %s: %s\n", file, strerror(errno));
    }
    _exit(127);
}

static int launch(struct stage *s, enum child_kind kind, const char *name, const char *file,
                  const char *const *argv, const char *const *env, struct child **out,
                  struct error *err)
{
    size_t slot = 0;
    while (slot < STAGE_CHILDREN && s->children[slot])
        slot++;
    if (slot == STAGE_CHILDREN)
        return error_set(err, -ENOSPC, "too many programs at once");
    struct child *c = calloc(1, sizeof(*c));
    if (!c)
        return error_set(err, -ENOMEM, "out of memory");
    c->kind = kind;
    c->pidfd = c->out = -1;
    snprintf(c->name, sizeof(c->name), "%s", name);

    char log_path[128];
    int pipes[2];
    stage_path(s, name, ".log", log_path, sizeof(log_path));
    _cleanup_close_ int log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0 || pipe2(pipes, O_CLOEXEC) < 0) {
        int r = -errno;
        free(c);
        return error_set(err, r, "cannot start %s: %s", name, strerror(-r));
    }
    fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    fflush(NULL);
    pid_t parent = getpid();
    c->pid = fork();
    if (c->pid == 0)
        become(s, kind, file, (char *const *)(uintptr_t)argv, env, parent, pipes[1], log);
    if (c->pid > 0)
        setpgid(c->pid, c->pid); /* whoever of the two comes first */
    int r = c->pid < 0 ? -errno : 0;
    close(pipes[1]);
    c->out = pipes[0];
    if (r == 0) {
        c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
        if (c->pidfd < 0) {
            r = -errno;
            kill(c->pid, SIGKILL);
            waitpid(c->pid, NULL, 0);
        }
    }
    if (r < 0) {
        close(c->out);
        free(c);
        return error_set(err, r, "cannot start %s: %s", name, strerror(-r));
    }
    s->children[slot] = c;
    *out = c;
    return 0;
}

/* This executable, under the name that its kind goes by. */
static int start(struct stage *s, enum child_kind kind, const char *name, const char *const *args,
                 struct child **out, struct error *err)
{
    const char *argv[STAGE_ARGS + 2] = {kinds[kind].program};
    for (size_t n = 0; args[n]; n++) {
        if (n == STAGE_ARGS)
            return error_set(err, -E2BIG, "too many arguments for %s", name);
        argv[n + 1] = args[n];
    }
    return launch(s, kind, name, "/proc/self/exe", argv, NULL, out, err);
}

int stage_load(struct stage *s, const char *name, const char *const *args, struct child **out,
               struct error *err)
{
    return start(s, CHILD_LOAD, name, args, out, err);
}

int stage_program(struct stage *s, enum child_kind kind, const char *name, const char *const *argv,
                  const char *const *env, struct child **out, struct error *err)
{
    const char *file = strncmp(argv[0], "cede", 4) == 0 ? "/proc/self/exe" : argv[0];
    return launch(s, kind, name, file, argv, env, out, err);
}

static int start_softgpu(struct stage *s, unsigned gpus, struct error *err)
{
    char path[128], n[16];
    struct child *c = NULL;
    stage_path(s, "gpu", "", path, sizeof(path));
    setenv("CEDE_SOFT_SOCKET", path, 1);
    snprintf(n, sizeof(n), "%u", gpus);
    int r = start(s, CHILD_SOFTGPU, "cede-softgpu",
                  (const char *[]){"--socket", path, "--gpus", n, NULL}, &c, err);
    uint64_t deadline = monotonic_ns() + START_NS;
    while (r == 0 && c && !c->spoke) {
        if (monotonic_ns() >= deadline)
            return error_set(err, -ETIMEDOUT, "cede-softgpu does not start");
        r = stage_turn(s, deadline, err);
    }
    return r;
}

/* -ENOENT: nobody listens there yet. */
static int connect_daemon(const struct stage *s, int *fd)
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

int stage_request(const struct stage *s, const char *text, double *us, struct error *err)
{
    char reply[8192];
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
    return strstr(reply, "\"ok\":true") || strstr(reply, "\"ok\": true")
               ? 0
               : error_set(err, -EPROTO, "ceded: %.300s", reply);
}

int stage_daemon(struct stage *s, const char *device, const char *settings, struct error *err)
{
    char config[128];
    /* Nothing of the machine's: its rules are not for a measurement to carry out. */
    stage_path(s, "cede.conf", "", config, sizeof(config));
    _cleanup_close_ int fd = open(config, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write_full(fd, settings, strlen(settings)) < 0)
        return error_set(err, -errno, "cannot write %s: %s", config, strerror(errno));
    int r = start(s, CHILD_DAEMON, "ceded",
                  (const char *[]){"--dir", s->dir, "--device", device, "--config", config, NULL},
                  &s->daemon, err);
    uint64_t deadline = monotonic_ns() + START_NS;
    while (r == 0) {
        _cleanup_close_ int socket = -1;
        r = connect_daemon(s, &socket);
        if (r != -ENOENT)
            return r < 0 ? error_set(err, r, "cannot connect to ceded: %s", strerror(-r)) : 0;
        r = monotonic_ns() >= deadline
                ? error_set(err, -ETIMEDOUT, "ceded does not answer in %s", s->dir)
                : stage_sleep(s, monotonic_ns() + 20 * NSEC_PER_MSEC, err);
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

/* All that is in the pipe now, whatever is wrong with it: what is not read would be looked at for
 * ever. The first error is returned. */
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

static int take_end(struct stage *s, struct child *c, struct error *err)
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

int stage_turn(struct stage *s, uint64_t until_ns, struct error *err)
{
    struct pollfd p[1 + 2 * STAGE_CHILDREN];
    p[0] = (struct pollfd){.fd = s->signal_fd, .events = POLLIN};
    for (size_t i = 0; i < STAGE_CHILDREN; i++) {
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
    for (size_t i = 0; i < STAGE_CHILDREN; i++) {
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
            /* It closed its output and lives: only its end is news. */
            close(c->out);
            c->out = -1;
        }
    }
    return r;
}

int stage_sleep(struct stage *s, uint64_t until_ns, struct error *err)
{
    int r = 0;
    do
        r = stage_turn(s, until_ns, err);
    while (r == 0 && monotonic_ns() < until_ns);
    return r;
}

/* ---- ending ---- */

int stage_stop(struct stage *s, struct child *const *v, size_t n, struct error *err)
{
    uint64_t deadline = monotonic_ns() + s->end_ns;
    int result = 0;
    bool interrupted = false; /* then none of them is waited for */
    for (size_t i = 0; i < n; i++) {
        v[i]->ending = true;
        if (v[i]->pid)
            kill(v[i]->pid, SIGTERM);
    }
    for (size_t i = 0; i < n; i++) {
        while (v[i]->pid) {
            int r = stage_turn(s, deadline, result == 0 ? err : NULL);
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

void stage_forget(struct stage *s, struct child *c)
{
    char log_path[128];
    stage_path(s, c->name, ".log", log_path, sizeof(log_path));
    for (size_t i = 0; i < STAGE_CHILDREN; i++) {
        if (s->children[i] == c && c->pid == 0) {
            unlink(log_path);
            series_free(&c->series);
            free(c);
            s->children[i] = NULL;
            return;
        }
    }
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

/* Orphans (a daemon's restorer finishing its work) are ours, as we are their subreaper. */
static void await_orphans(void)
{
    uint64_t deadline = monotonic_ns() + ORPHAN_NS;
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0 && monotonic_ns() < deadline) {
        if (pid == 0)
            poll(NULL, 0, 10);
    }
    if (pid < 0)
        return;
    _cleanup_fclose_ FILE *f = fopen("/proc/thread-self/children", "re");
    while (f && fscanf(f, "%d", &pid) == 1)
        kill(pid, SIGKILL);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

int stage_open(struct stage *s, unsigned softgpus, struct error *err)
{
    memset(s, 0, sizeof(*s));
    s->end_ns = END_NS;
    sigset_t set;
    stage_signals(&set);
    sigprocmask(SIG_BLOCK, &set, &s->old_mask);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->signal_fd < 0)
        return error_set(err, -errno, "cannot watch for signals: %s", strerror(errno));

    /* Not below $TMPDIR: a socket's path has to be short. */
    char dir[] = "/tmp/cede-demo-XXXXXX";
    if (!mkdtemp(dir))
        return error_set(err, -errno, "cannot create a directory in /tmp: %s", strerror(errno));
    snprintf(s->dir, sizeof(s->dir), "%s", dir);
    setenv("CEDE_DIR", s->dir, 1);
    return softgpus ? start_softgpu(s, softgpus, err) : 0;
}

void stage_close(struct stage *s)
{
    /* The daemon first: what it has suspended could not end. The GPU last. */
    static const enum child_kind order[] = {CHILD_DAEMON, CHILD_LOAD, CHILD_HELPER, CHILD_SOFTGPU};
    for (size_t k = 0; k < ARRAY_SIZE(order); k++) {
        struct child *v[STAGE_CHILDREN] = {NULL};
        size_t n = 0;
        for (size_t i = 0; i < STAGE_CHILDREN; i++) {
            if (s->children[i] && s->children[i]->kind == order[k])
                v[n++] = s->children[i];
        }
        /* What a load would still say nobody wants. */
        for (size_t i = 0; i < n && order[k] == CHILD_LOAD; i++) {
            if (v[i]->pid)
                kill(-v[i]->pid, SIGKILL);
        }
        stage_stop(s, v, n, NULL);
    }
    await_orphans();
    for (size_t i = 0; i < STAGE_CHILDREN; i++) {
        if (s->children[i])
            series_free(&s->children[i]->series);
        free(s->children[i]);
        s->children[i] = NULL;
    }
    if (s->dir[0])
        nftw(s->dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    s->dir[0] = '\0';
    if (s->signal_fd >= 0)
        close(s->signal_fd);
    s->signal_fd = -1;
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    sigprocmask(SIG_SETMASK, &s->old_mask, NULL);
}
