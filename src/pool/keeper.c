/* The keeper of a pool: see pool.h. It starts the MPS control daemon, or takes over one whose
 * keeper was killed; writes down when a server ends under its users; and ends all when there are
 * none.
 *
 * Nothing depends on it: killed at any instant, it leaves a pool that works, and that the next user
 * gives another keeper. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/util.h"
#include "pool/files.h"
#include "pool/pool.h"

#define TURN_NS     (200 * NSEC_PER_MSEC)
#define IDLE_NS     (3 * NSEC_PER_SEC) /* without users */
#define BEGIN_NS    (15 * NSEC_PER_SEC)
#define SERVERS_MAX 64

struct keeper {
    const char *dir;
    struct proc_id control;
    int start, users;
    struct proc_id servers[SERVERS_MAX];
    unsigned nservers;
};

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = TURN_NS}, NULL);
}

static int keeper_answer(int fd, const char *text)
{
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return n < 0 ? 1 : 0;
}

/* Before it becomes the control daemon: whoever kills us, it is on record. */
static bool record_self(const char *dir)
{
    struct proc_stat st;
    return proc_stat_read(getpid(), &st) == 0 && pool_control_put(dir, st.id) == 0;
}

/* Its output goes to log/control.err; input: what it reads, or NULL. */
static pid_t run_control(const char *dir, const char *option, const char *input)
{
    int fds[2] = {-1, -1};
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        char path[POOL_PATH];
        snprintf(path, sizeof(path), "%s/log/control.err", dir);
        int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
        dup2(fds[0], 0);
        dup2(log, 1);
        dup2(log, 2);
        if (option && !record_self(dir))
            _exit(126);
        execlp(POOL_CONTROL, POOL_CONTROL, option, (char *)NULL);
        _exit(127);
    }
    close(fds[0]);
    if (pid > 0 && input && write(fds[1], input, strlen(input)) < 0)
        kill(pid, SIGKILL);
    close(fds[1]);
    return pid;
}

static bool control_lives(const struct keeper *k)
{
    waitpid(k->control.pid, NULL, WNOHANG); /* where it is a child */
    return proc_alive(k->control);
}

/* Until it answers, also one that an earlier keeper has begun. */
static bool begin(struct keeper *k)
{
    char path[POOL_PATH];
    struct proc_stat st;
    pid_t pid = 0;
    if (!pool_control(k->dir, &k->control)) {
        snprintf(path, sizeof(path), "%s/" POOL_SOCKET, k->dir);
        unlink(path); /* of one that was killed */
        pid = run_control(k->dir, "-f", NULL);
        if (pid < 0 || proc_stat_read(pid, &st) < 0)
            return false;
        k->control = st.id;
    }
    for (uint64_t until = monotonic_ns() + BEGIN_NS; monotonic_ns() < until; nap()) {
        if (pool_answers(k->dir))
            return true;
        if (!control_lives(k))
            return false;
    }
    proc_signal(k->control, SIGKILL);
    return false;
}

/* Its children, by name: those that hold the contexts. */
static unsigned find_servers(const struct keeper *k, struct proc_id v[SERVERS_MAX])
{
    _cleanup_free_ pid_t *pids = NULL;
    size_t all = 0;
    unsigned n = 0;
    if (proc_list(&pids, &all) < 0)
        return 0;
    for (size_t i = 0; i < all && n < SERVERS_MAX; i++) {
        struct proc_stat st;
        if (proc_stat_read(pids[i], &st) == 0 && st.ppid == k->control.pid && !proc_ended(&st) &&
            strncmp(st.comm, "nvidia-cuda-mps", 15) == 0)
            v[n++] = st.id;
    }
    return n;
}

static void fault(const struct keeper *k, const char *what, pid_t pid)
{
    _cleanup_close_ int fd = pool_open(k->dir, "faults", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC);
    if (fd >= 0)
        dprintf(fd, "%s (pid %d) ended at %lld, and with it what its clients had on the GPU\n",
                what, (int)pid, (long long)time(NULL));
}

static void watch_servers(struct keeper *k)
{
    struct proc_id now[SERVERS_MAX];
    unsigned n = find_servers(k, now);
    for (unsigned i = 0; i < k->nservers; i++) {
        if (!proc_alive(k->servers[i]))
            fault(k, "its MPS server", k->servers[i].pid);
    }
    memcpy(k->servers, now, n * sizeof(now[0]));
    k->nservers = n;
}

/* Nobody is in it, and nobody is on the way: then both locks are held. */
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

/* However long it takes: a program that has closed all its descriptors may be a client still. Who
 * wants to join meanwhile runs outside of the pool. */
static void quit(const struct keeper *k)
{
    run_control(k->dir, NULL, "quit\n");
    while (control_lives(k))
        nap();
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

static void keep(struct keeper *k)
{
    uint64_t empty_since = 0;
    for (;; nap()) {
        const bool empty = is_empty(k), lives = control_lives(k);
        if (!empty) {
            empty_since = 0;
            watch_servers(k);
        }
        if (!lives && !empty)
            fault(k, "its MPS control daemon", k->control.pid);
        if (!lives)
            return; /* the locks go with this process */
        if (!empty)
            continue;
        empty_since = empty_since ? empty_since : monotonic_ns();
        if (told_to_end || monotonic_ns() - empty_since >= IDLE_NS) {
            quit(k);
            return;
        }
        reopen(k);
    }
}

int pool_keeper_main(int argc, char **argv)
{
    uint64_t lock, ready;
    if (argc != 4 || parse_u64(argv[2], 3, 1 << 20, &lock) < 0 ||
        parse_u64(argv[3], 3, 1 << 20, &ready) < 0) {
        fprintf(stderr, "cede-pool: started by `cede run --pool` only\n");
        return 2;
    }
    fcntl((int)lock, F_SETFD, FD_CLOEXEC);
    fcntl((int)ready, F_SETFD, FD_CLOEXEC);
    struct keeper k = {.dir = argv[1],
                       .start = pool_open(argv[1], "start", O_RDWR | O_CREAT | O_CLOEXEC),
                       .users = pool_open(argv[1], "users", O_RDWR | O_CREAT | O_CLOEXEC)};
    const struct sigaction term = {.sa_handler = on_term}, pipe_gone = {.sa_handler = on_pipe};
    if (k.start < 0 || k.users < 0)
        return keeper_answer((int)ready, "the pool's directory cannot be written");
    sigaction(SIGPIPE, &pipe_gone, NULL); /* not ignored: the control daemon would inherit that */
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    sigaction(SIGTERM, &term, NULL);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd <= 2 && null >= 0; fd++)
        dup2(null, fd);
    /* The programs' numbers of GPUs are the driver's: the server has to see all. */
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    if (pool_environment(k.dir) < 0 || chdir("/") < 0 || !begin(&k)) {
        char text[POOL_PATH + 64];
        snprintf(text, sizeof(text), "the MPS control daemon does not start: %s/log has why",
                 k.dir);
        return keeper_answer((int)ready, text);
    }
    keeper_answer((int)ready, POOL_READY);
    keep(&k);
    return 0;
}
