/* See process.h. */
#include "testbed/process.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* In the new process: never returns. */
static void become(const struct process_spec *s, pid_t parent)
{
    const char *file = s->file ? s->file : s->argv[0];
    bool ready = true;
    if (s->own_group)
        setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, s->death_signal);
    if (s->traceable)
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    signal(SIGPIPE, SIG_DFL);
    if (s->mask)
        sigprocmask(SIG_SETMASK, s->mask, NULL);
    for (const char *const *e = s->env; e && e[0]; e += 2)
        setenv(e[0], e[1], 1);
    for (int i = 0; i < 3; i++) {
        int fd = s->fds[i] >= 0 ? s->fds[i] : open("/dev/null", O_RDWR | O_CLOEXEC);
        ready &= fd >= 0 && dup2(fd, i) >= 0;
    }
    if (ready && (!s->death_signal || getppid() == parent)) {
        execvp(file, (char *const *)(uintptr_t)s->argv);
        dprintf(STDERR_FILENO, "cannot execute %s: %s\n", file, strerror(errno));
    }
    _exit(127);
}

int process_start(const struct process_spec *spec, pid_t *pid)
{
    pid_t parent = getpid();
    fflush(NULL);
    *pid = fork();
    if (*pid == 0)
        become(spec, parent);
    if (*pid > 0 && spec->own_group)
        setpgid(*pid, *pid); /* the new process does the same: either may run first */
    return *pid < 0 ? -errno : 0;
}

int process_make_dir(const char *prefix, char *buf, size_t size)
{
    int n = snprintf(buf, size, "%sXXXXXX", prefix);
    int r = n < 0 || (size_t)n >= size ? -ENAMETOOLONG : mkdtemp(buf) ? 0 : -errno;
    if (r < 0)
        buf[0] = '\0';
    return r;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

void process_remove_dir(const char *dir)
{
    nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* Each child that is killed leaves its own children to us, so this goes on until there are none. */
void process_end_all(uint64_t patience_ns)
{
    uint64_t deadline = monotonic_ns() + patience_ns;
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0) {
        if (pid > 0)
            continue;
        if (monotonic_ns() < deadline) {
            poll(NULL, 0, 10);
            continue;
        }
        _cleanup_fclose_ FILE *f = fopen("/proc/thread-self/children", "re");
        if (!f)
            return;
        while (fscanf(f, "%d", &pid) == 1)
            kill(pid, SIGKILL);
        waitpid(-1, NULL, 0);
    }
}
