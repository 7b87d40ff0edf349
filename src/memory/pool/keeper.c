/* The keeper of a pool: see pool.h. It starts the MPS control daemon, or takes over one whose
 * keeper was killed; writes a line when a server ends while it is used; and ends everything when
 * there are no users. If it is killed, the pool works on, and the next user starts another keeper.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/child.h"
#include "base/util.h"
#include "memory/pool/files.h"
#include "memory/pool/pool.h"
#include "who/cgroup.h"

#define TURN_NS     (200 * NSEC_PER_MSEC)
#define IDLE_NS     (3 * NSEC_PER_SEC) /* without users */
#define BEGIN_NS    (15 * NSEC_PER_SEC)
#define QUIT_NS     (5 * NSEC_PER_SEC)
#define SERVERS_MAX 64
#define LOG_MAX     (1 << 20) /* bytes; a longer log is truncated */
#define LOG         "log/control.err"
#define ENDED       "ended, and with it the work"

struct keeper {
    const char *dir;
    char program[POOL_PROGRAM];
    struct proc_id control;
    int lock, start, users;
    struct server {
        struct proc_id id;
        bool condemned; /* the reason of its end is in `faults` already */
    } servers[SERVERS_MAX];
    unsigned nservers;
    off_t log_read;
};

/* Waits for children. The control daemon's children become this process's when it ends, because
 * process 1 of a container may not wait for them. */
static void nap(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    nanosleep(&(struct timespec){.tv_nsec = TURN_NS}, NULL);
}

static int keeper_answer(int fd, const char *text)
{
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return n < 0 ? 1 : 0;
}

/* Writes the record in the child before that becomes the control daemon, so that it is on record
 * even if this process is killed. */
static int record_self(void *dir)
{
    struct proc_stat st;
    return proc_stat_read(getpid(), &st) == 0 && pool_control_put(dir, st.id) == 0 ? 0 : 1;
}

/* Runs MPS's control program: with option -f as the daemon, which writes its log to standard error;
 * otherwise to pass an order to the daemon. 0: it could not be started. */
static pid_t run_control(const struct keeper *k, const char *option, const char *order)
{
    _cleanup_close_ int log = pool_open(k->dir, LOG, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC);
    const struct child_spec spec = {.file = k->program,
                                    .argv = (const char *const[]){POOL_CONTROL, option, NULL},
                                    .begin = option ? record_self : NULL,
                                    .arg = (void *)(uintptr_t)k->dir,
                                    .fds = {{log, STDOUT_FILENO}, {log, STDERR_FILENO}}};
    pid_t pid;
    _cleanup_close_ int orders = child_start_linked(&spec, CHILD_READS, STDIN_FILENO, &pid);
    if (orders >= 0 && order && write(orders, order, strlen(order)) < 0)
        kill(pid, SIGKILL);
    return pid;
}

static bool control_lives(const struct keeper *k)
{
    waitpid(k->control.pid, NULL, WNOHANG); /* if it is a child */
    return proc_alive(k->control);
}

/* Whether that child has ended, or there is none. */
static bool child_ended(pid_t pid)
{
    return !pid || waitpid(pid, NULL, WNOHANG) != 0;
}

/* Whether the directory was removed, as a user's is at logout: no order reaches the daemon then. */
static bool is_removed(const struct keeper *k)
{
    struct stat st;
    return fstat(k->lock, &st) == 0 && st.st_nlink == 0;
}

/* Ends the control daemon. The record says so first, so that no program joins if this process is
 * killed. The daemon waits for its clients, such as a program that has closed all its descriptors;
 * the order is repeated in case it was lost. */
static bool quit(const struct keeper *k, uint64_t until_ns)
{
    pid_t order = 0;
    pool_control_end(k->dir);
    for (uint64_t again = 0; control_lives(k) && monotonic_ns() < until_ns; nap()) {
        if (is_removed(k))
            proc_signal(k->control, SIGKILL);
        if (monotonic_ns() < again || !child_ended(order))
            continue;
        order = run_control(k, NULL, "quit\n");
        again = monotonic_ns() + QUIT_NS;
    }
    return !control_lives(k);
}

/* Starts the control daemon, or takes over an earlier keeper's, and waits until it answers. NULL,
 * or the reason of a failure. */
static const char *begin(struct keeper *k)
{
    char path[POOL_PATH];
    struct proc_stat st;
    const uint64_t until = monotonic_ns() + BEGIN_NS;
    bool ending, lives = pool_control(k->dir, &k->control, &ending);
    if (lives && ending) {
        if (!quit(k, until))
            return "the one before it has not ended, as a program is its client still";
        lives = false;
    }
    if (!lives) {
        snprintf(path, sizeof(path), "%s/" POOL_SOCKET, k->dir);
        unlink(path); /* that of a daemon that was killed */
        pid_t pid = run_control(k, "-f", NULL);
        if (!pid || proc_stat_read(pid, &st) < 0)
            return "it cannot be executed";
        k->control = st.id;
    }
    for (; monotonic_ns() < until; nap()) {
        if (pool_answers(k->dir))
            return NULL;
        if (!control_lives(k))
            return "it has ended";
    }
    proc_signal(k->control, SIGKILL);
    return "it did not begin in time";
}

static void fault(const struct keeper *k, const char *what, pid_t pid, const char *did)
{
    _cleanup_close_ int fd = pool_open(k->dir, "faults", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC);
    if (fd >= 0)
        dprintf(fd, "%s (pid %d) %s of all programs in it\n", what, (int)pid, did);
}

/* Notices servers that have ended, and new ones. Known servers are checked one by one, so that none
 * is forgotten if no list can be had. used: the pool was not empty since the last turn. */
static void watch_servers(struct keeper *k, bool used)
{
    _cleanup_free_ pid_t *pids = NULL;
    size_t all = 0;
    unsigned n = 0;
    for (unsigned i = 0; i < k->nservers; i++) {
        if (proc_alive(k->servers[i].id))
            k->servers[n++] = k->servers[i];
        else if (used && !k->servers[i].condemned)
            fault(k, "its MPS server", k->servers[i].id.pid, ENDED);
    }
    k->nservers = n;
    if (proc_list(&pids, &all) < 0)
        return;
    /* Children of the control daemon, by name. */
    for (size_t i = 0; i < all && k->nservers < SERVERS_MAX; i++) {
        struct proc_stat st;
        bool known = false;
        for (n = 0; n < k->nservers && !known; n++)
            known = k->servers[n].id.pid == pids[i];
        if (!known && proc_stat_read(pids[i], &st) == 0 && st.ppid == k->control.pid &&
            !proc_ended(&st) && strncmp(st.comm, "nvidia-cuda-mps", 15) == 0)
            k->servers[k->nservers++] = (struct server){.id = st.id};
    }
}

static void end_servers(struct keeper *k)
{
    for (unsigned i = 0; i < k->nservers; i++) {
        proc_signal(k->servers[i].id, SIGKILL);
        k->servers[i].condemned = true;
    }
}

/* Looks in MPS's log for a client whose kernel failed, such as by an access to memory that does not
 * exist. All clients of the server get that error, and new ones are refused until the last of them
 * has ended (H100, driver 580.159.04, 2026-11-23). The server is killed, also for GPUs on which
 * nothing failed, so that the next client gets a new one. */
static void watch_log(struct keeper *k)
{
    static const char *const logs[] = {LOG, "log/control.log", "log/server.log"};
    char line[512];
    int pid;
    int fd = pool_open(k->dir, LOG, O_RDONLY | O_CLOEXEC);
    _cleanup_fclose_ FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    if (f && fseeko(f, k->log_read, SEEK_SET) == 0) {
        /* An incomplete line is read again later. */
        for (off_t n; fgets(line, sizeof(line), f); k->log_read += n) {
            n = ftello(f) - k->log_read; /* not strlen(), because of zeros in it */
            if (n < 1 || (line[n - 1] != '\n' && n + 1 < (off_t)sizeof(line)))
                break;
            const char *at = strstr(line, "Client {PID: ");
            if (!at || !strstr(at, " encountered a fatal ") ||
                sscanf(at, "Client {PID: %d", &pid) != 1)
                continue;
            fault(k, "a program in it", pid,
                  "caused a fatal error on the GPU, which ends the work");
            end_servers(k);
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(logs); i++) {
        struct stat st;
        _cleanup_close_ int log = pool_open(k->dir, logs[i], O_WRONLY | O_CLOEXEC);
        if (log >= 0 && fstat(log, &st) == 0 && st.st_size > LOG_MAX && ftruncate(log, 0) == 0 &&
            i == 0)
            k->log_read = 0;
    }
}

/* Whether the pool has no users and none is joining. If so, both locks are taken. */
static bool is_empty(const struct keeper *k)
{
    if (flock(k->start, LOCK_EX | LOCK_NB) < 0)
        return false;
    if (flock(k->users, LOCK_EX | LOCK_NB) == 0)
        return true;
    flock(k->start, LOCK_UN);
    return false;
}

static void reopen(const struct keeper *k)
{
    flock(k->users, LOCK_UN);
    flock(k->start, LOCK_UN);
}

static volatile sig_atomic_t told_to_end;

static void on_term(int signal)
{
    (void)signal;
    told_to_end = 1;
}

static void on_pipe(int signal)
{
    (void)signal;
}

/* Runs until the control daemon has ended. */
static void keep(struct keeper *k)
{
    uint64_t empty_since = 0;
    for (;; nap()) {
        const bool empty = is_empty(k), lives = control_lives(k);
        watch_servers(k, !empty && !empty_since);
        watch_log(k);
        if (!lives && !empty)
            fault(k, "its MPS control daemon", k->control.pid, ENDED);
        futimens(k->lock, NULL); /* tells pool_fault() that a turn is over */
        if (!lives)
            break; /* the locks end with this process */
        empty_since = !empty ? 0 : empty_since ? empty_since : monotonic_ns();
        if (empty && (told_to_end || monotonic_ns() - empty_since >= IDLE_NS)) {
            close(pool_open(k->dir, "faults", O_WRONLY | O_TRUNC | O_CLOEXEC));
            quit(k, UINT64_MAX);
            break;
        }
        if (empty)
            reopen(k);
    }
    end_servers(k); /* a server that hangs does not notice that the daemon has ended */
    for (const uint64_t until = monotonic_ns() + QUIT_NS;
         waitpid(-1, NULL, WNOHANG) >= 0 && monotonic_ns() < until;)
        nap();
}

/* Clears the environment, because the first user's settings are for its own program. */
static int plain_environment(const char *dir)
{
    static const char *const kept[] = {"PATH", "HOME", "LD_LIBRARY_PATH"};
    const char *values[ARRAY_SIZE(kept)];
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        values[i] = getenv(kept[i]);
    clearenv();
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        r |= values[i] ? setenv(kept[i], values[i], 1) : 0;
    return r < 0 ? -ENOMEM : pool_environment(dir);
}

static void keeper_signals(void)
{
    const struct sigaction term = {.sa_handler = on_term}, pipe_gone = {.sa_handler = on_pipe};
    sigaction(SIGPIPE, &pipe_gone, NULL); /* the control daemon would inherit SIG_IGN */
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    sigaction(SIGTERM, &term, NULL);
}

int pool_keeper_main(int argc, char **argv)
{
    const int lock = POOL_LOCK_FD, ready = POOL_READY_FD;
    if (argc != 2 || fcntl(lock, F_SETFD, FD_CLOEXEC) < 0 ||
        fcntl(ready, F_SETFD, FD_CLOEXEC) < 0) {
        fprintf(stderr, "cede-pool: started by `cede run --pool` only\n");
        return 2;
    }
    struct keeper k = {.dir = argv[1],
                       .lock = lock,
                       .start = pool_open(argv[1], "start", O_RDWR | O_CREAT | O_CLOEXEC),
                       .users = pool_open(argv[1], "users", O_RDWR | O_CREAT | O_CLOEXEC),
                       .log_read = pool_size(argv[1], LOG)};
    if (k.start < 0 || k.users < 0)
        return keeper_answer(ready, "the pool's directory cannot be written");
    keeper_signals();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    cgroup_leave("cede-pool"); /* so that ending the first user's group does not end the keeper */
    const char *why = plain_environment(k.dir) < 0 || chdir("/") < 0 ||
                              !pool_find_control(k.program, sizeof(k.program))
                          ? "it is not found"
                          : begin(&k);
    if (why) {
        char text[POOL_PATH + 160];
        snprintf(text, sizeof(text), "the MPS control daemon does not start: %s; %s/log has more",
                 why, k.dir);
        return keeper_answer(ready, text);
    }
    keeper_answer(ready, POOL_READY);
    keep(&k);
    return 0;
}
