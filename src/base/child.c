/* See child.h. */
#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "base/util.h"

#define FAILED 126

/* Removes the parent's handlers, which might write into its event loop. */
static void signals_reset(bool ignored_too)
{
    for (int sig = 1; sig <= SIGRTMAX; sig++) {
        struct sigaction now;
        if (ignored_too || (sigaction(sig, NULL, &now) == 0 && now.sa_handler != SIG_IGN))
            signal(sig, SIG_DFL);
    }
}

/* Each descriptor is first moved above all numbers that are wanted, so that none overwrites one
 * that is still needed. */
static int descriptors_set(const struct child_spec *s)
{
    const int above_all = STDERR_FILENO + 1 + CHILD_FDS_MAX;
    int above[CHILD_FDS_MAX], last = STDERR_FILENO;
    for (size_t i = 0; i < CHILD_FDS_MAX; i++) {
        const int from = s->fds[i].from;
        above[i] = from == 0 && s->fds[i].as == 0
                       ? -1 /* an element that is not used */
                       : fcntl(from >= 0 ? from : open("/dev/null", O_RDWR | O_CLOEXEC),
                               F_DUPFD_CLOEXEC, above_all);
        if (above[i] < 0 && (from || s->fds[i].as))
            return -errno;
    }
    for (size_t i = 0; i < CHILD_FDS_MAX; i++) {
        if (above[i] >= 0 && dup2(above[i], s->fds[i].as) < 0)
            return -errno;
        last = s->fds[i].as > last ? s->fds[i].as : last;
    }
    if (!s->inherit)
        close_range((unsigned)last + 1, ~0U, 0);
    return 0;
}

static int fail(const char *what, const char *name, int error)
{
    char text[1024];
    snprintf(text, sizeof(text), "%s '%s': %s", what, name, strerror(error));
    text_show(text);
    dprintf(STDERR_FILENO, "%s: %s\n", program_invocation_short_name, text);
    return error == ENOENT ? 127 : FAILED;
}

/* In the new process, all of whose signals are blocked. Returns its exit status. */
static int begin(const struct child_spec *s, pid_t parent, const sigset_t *before)
{
    sigset_t none;
    sigemptyset(&none);
    if (s->session || s->detached)
        setsid();
    if (s->detached) {
        const pid_t pid = fork();
        if (pid != 0)
            return pid < 0 ? errno : 0;
    }
    if (s->group)
        setpgid(0, 0);
    if (s->death_signal)
        prctl(PR_SET_PDEATHSIG, s->death_signal);
    if (s->death_signal && getppid() != parent) /* it died before that */
        return FAILED;
    for (const char *const *e = s->env; e && e[0]; e += 2)
        setenv(e[0], e[1], 1);
    const int r = descriptors_set(s);
    if (r < 0)
        return fail("cannot pass descriptors to", s->argv ? s->argv[0] : "a child", -r);
    signals_reset(s->fresh);
    sigprocmask(SIG_SETMASK, s->mask ? s->mask : s->fresh ? &none : before, NULL);
    const int status = s->begin ? s->begin(s->arg) : 0;
    if (status || !s->argv)
        return status;
    const char *file = s->file ? s->file : s->argv[0];
    return fail("cannot run", file, -child_become(file, s->argv));
}

int child_start(const struct child_spec *spec, pid_t *pid)
{
    const pid_t parent = getpid();
    sigset_t all, before;
    int status = 0;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    const pid_t child = fork();
    int r = child < 0 ? -errno : 0;
    if (child == 0)
        _exit(begin(spec, parent, &before));
    if (child > 0 && spec->group)
        setpgid(child, child); /* as the child does: either may run first */
    sigprocmask(SIG_SETMASK, &before, NULL);
    while (child > 0 && spec->detached && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (status)
        r = WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
    if (pid)
        *pid = child > 0 ? child : 0;
    return r;
}

int child_start_linked(const struct child_spec *spec, enum child_link link, int as, pid_t *pid)
{
    struct child_spec with = *spec;
    int ends[2], i = 0;
    if (pid)
        *pid = 0;
    if ((link == CHILD_SOCKET ? socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)
                              : pipe2(ends, O_CLOEXEC)) < 0)
        return -errno;
    const int theirs = ends[link != CHILD_READS], ours = ends[link == CHILD_READS];
    if (link == CHILD_WRITES)
        fcntl(ours, F_SETFL, O_NONBLOCK);
    while (i < CHILD_FDS_MAX - 1 && (with.fds[i].from || with.fds[i].as))
        i++;
    with.fds[i].from = theirs;
    with.fds[i].as = as;
    const int r = child_start(&with, pid);
    close(theirs);
    if (r < 0)
        close(ours);
    return r < 0 ? r : ours;
}

int child_become(const char *file, const char *const argv[])
{
    execvp(file, (char *const *)(uintptr_t)argv);
    return -errno;
}

int child_begin(const char *name)
{
    static const int ignored[] = {SIGTERM, SIGINT,  SIGHUP,  SIGQUIT,
                                  SIGPIPE, SIGUSR1, SIGUSR2, SIGXFSZ};
    for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
        signal(ignored[i], SIG_IGN);
    prctl(PR_SET_NAME, name);
    log_open(name, LOG_INFO);
    return chdir("/") < 0 ? -errno : 0;
}
