/* See daemonize.h. */
#include "daemon/daemonize.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/log.h"
#include "base/util.h"
#include "who/procfs.h"

#define NOFILE_FEW 4096
#define NOTIFY_US  500000 /* the restorer takes a daemon for hung after six times that */
#define NOFILE_MAX 65536  /* a descriptor per process of a job and per client, and spare */

/* Raises the limit, beyond the hard limit where the process has the right. */
static void raise_descriptors(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur >= NOFILE_MAX)
        return;
    struct rlimit more = {NOFILE_MAX, max_u64(l.rlim_max, NOFILE_MAX)};
    if (setrlimit(RLIMIT_NOFILE, &more) == 0)
        return;
    l.rlim_cur = min_u64(l.rlim_max, NOFILE_MAX);
    setrlimit(RLIMIT_NOFILE, &l);
    if (l.rlim_cur < NOFILE_FEW)
        log_say(LOG_WARNING,
                "only %llu descriptors are allowed (RLIMIT_NOFILE, LimitNOFILE): each job and each "
                "GPU process takes one",
                (unsigned long long)l.rlim_cur);
}

void process_become_daemon(void)
{
    umask(022);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond RLIMIT_FSIZE fails instead */
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, STDIN_FILENO); /* if it were closed, the next file opened would be number 0 */
        if (null != STDIN_FILENO)
            close(null);
    }
    /* Inherited descriptors must not pass on to the restorer. */
    close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    (void)!chdir("/"); /* a working directory would keep its file system mounted */
    raise_descriptors();
    /* The kernel should kill other processes first when memory is short. */
    _cleanup_close_ int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && geteuid() == 0)
        (void)write_full(fd, "-900", 4);
}

void process_raise_priority(void)
{
    struct sched_param p = {.sched_priority = sched_get_priority_min(SCHED_RR)};
    if (sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &p) == 0 ||
        setpriority(PRIO_PROCESS, 0, -20) == 0)
        return;
}

void process_say_served(void)
{
    struct stat st;
    if (fstat(DAEMON_STARTER_FD, &st) == 0 && S_ISFIFO(st.st_mode))
        (void)write_full(DAEMON_STARTER_FD, "b", 1);
}

int notify_send(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    if (!path || !*path)
        return 0;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || n >= sizeof(a.sun_path))
        return -EINVAL;
    memcpy(a.sun_path, path, n);
    if (path[0] == '@')
        a.sun_path[0] = '\0'; /* abstract: the length ends it */
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    /* A manager that does not read delays the daemon by NOTIFY_US at most; for a status, never. */
    const struct timeval patience = {.tv_usec = NOTIFY_US};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    int flags = MSG_NOSIGNAL | (strncmp(state, "STATUS=", 7) == 0 ? MSG_DONTWAIT : 0);
    if (sendto(fd, state, strlen(state), flags, (struct sockaddr *)&a, len) < 0)
        return -errno;
    return 0;
}

void process_inherit(struct children *x)
{
    siginfo_t si;
    _cleanup_free_ pid_t *pids = NULL;
    size_t n = 0;
    x->n = 0;
    if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || proc_list(&pids, &n) < 0)
        return; /* mostly there are no children */
    for (size_t i = 0; i < n && x->n < CHILDREN_MAX; i++) {
        struct proc_stat st;
        if (proc_stat_read(pids[i], &st) == 0 && st.ppid == getpid())
            x->v[x->n++] = pids[i];
    }
}

void process_leave(struct children *x, pid_t pid)
{
    if (waitpid(pid, NULL, WNOHANG) == 0 && x->n < CHILDREN_MAX)
        x->v[x->n++] = pid;
}

void process_reap(struct children *x)
{
    for (size_t i = x->n; i-- > 0;) {
        if (waitpid(x->v[i], NULL, WNOHANG) == 0)
            continue;
        x->n--;
        x->v[i] = x->v[x->n];
    }
}

void process_mask_signals(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(how, &set, NULL);
}
