/* See restorer.h. Must not die before its work is done: ignores every polite signal, allocates
 * nothing it needs late, opens the driver at the start. */
#include "daemon/restorer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "daemon/swapper.h"

#define GOOD_BYE 'Q'

int restorer_start(struct journal *j, pid_t *pid, int *pipe_fd, struct error *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return error_set(err, -errno, "cannot make a pipe for the restorer: %s", strerror(errno));
    pid_t child = fork();
    if (child < 0) {
        int r = -errno;
        close(fds[0]);
        close(fds[1]);
        return error_set(err, r, "cannot start the restorer: %s", strerror(-r));
    }
    if (child == 0) {
        char journal_arg[16], pipe_arg[16];
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        setsid();
        fcntl(fds[0], F_SETFD, 0);
        fcntl(journal_fd(j), F_SETFD, 0);
        snprintf(journal_arg, sizeof(journal_arg), "%d", journal_fd(j));
        snprintf(pipe_arg, sizeof(pipe_arg), "%d", fds[0]);
        execl("/proc/self/exe", "cede-restore", journal_arg, pipe_arg, (char *)NULL);
        _exit(127);
    }
    close(fds[0]);
    *pid = child;
    *pipe_fd = fds[1];
    return 0;
}

void restorer_dismiss(int pipe_fd)
{
    char c = GOOD_BYE;
    while (write(pipe_fd, &c, 1) < 0 && errno == EINTR)
        ;
    close(pipe_fd);
}

static bool anything_suspended(const struct journal *j)
{
    for (uint32_t i = 0; i < journal_groups_end(j); i++) {
        uint32_t flags;
        if (journal_group(j, i, &flags) && (flags & JG_SUSPENDED))
            return true;
    }
    return false;
}

static unsigned undo(struct journal *j, struct device_driver **driver)
{
    struct error err = {""};
    struct journal_shared *s = journal_shared(j);
    journal_refresh(j);
    if (!*driver && device_open(s->driver, s->where[0] ? s->where : NULL, driver, &err) < 0) {
        fprintf(stderr, "cede-restore: %s\n", err.text);
        return 1;
    }
    unsigned failed = journal_undo(j, *driver, NULL, NULL);
    atomic_fetch_add(&s->restored, 1);
    return failed;
}

static bool daemon_hangs(struct journal *j)
{
    uint64_t beat = journal_shared(j)->heartbeat_ns, now = monotonic_ns();
    if (!beat || now < beat || now - beat < RESTORER_HANG_MS * NSEC_PER_MSEC)
        return false;
    journal_refresh(j);
    return anything_suspended(j);
}

int restore_main(int argc, char **argv)
{
    uint64_t fd, pipe_fd;
    if (argc != 3 || parse_u64(argv[1], 3, 1 << 20, &fd) < 0 ||
        parse_u64(argv[2], 3, 1 << 20, &pipe_fd) < 0) {
        fprintf(stderr, "cede-restore is started by ceded, not by hand\n");
        return 2;
    }
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
        signal(ignored[i], SIG_IGN);
    prctl(PR_SET_NAME, "cede-restore");
    if (chdir("/") < 0)
        return 1;

    struct journal *j;
    struct error err = {""};
    if (journal_from_fd((int)fd, &j, &err) < 0) {
        fprintf(stderr, "cede-restore: %s\n", err.text);
        return 1;
    }
    /* Opened now, because later there is a second to lose. */
    struct device_driver *driver = NULL;
    const struct journal_shared *s = journal_shared(j);
    if (device_open(s->driver, s->where[0] ? s->where : NULL, &driver, &err) < 0)
        fprintf(stderr, "cede-restore: %s (will try again when needed)\n", err.text);

    bool undone_for_hang = false;
    for (;;) {
        struct pollfd p = {.fd = (int)pipe_fd, .events = POLLIN};
        int n = poll(&p, 1, 500);
        if (n == 0) {
            bool hangs = daemon_hangs(j);
            if (hangs && !undone_for_hang) {
                fprintf(stderr, "cede-restore: ceded does not answer; its jobs run again\n");
                undo(j, &driver);
            }
            undone_for_hang = hangs;
            continue;
        }
        char c;
        ssize_t got = n < 0 ? -1 : read((int)pipe_fd, &c, 1);
        if (got < 0)
            continue; /* EINTR */
        if (got > 0 && c == GOOD_BYE)
            break;
        if (got > 0)
            continue;
        for (int i = 0; i < 20 && undo(j, &driver) > 0; i++)
            nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        /* What takes longer comes last. */
        if (swapper_undo(j, &err) > 0)
            fprintf(stderr, "cede-restore: a job stays swapped out until the next ceded: %s\n",
                    err.text);
        break;
    }
    device_close(driver);
    journal_close(j);
    return 0;
}
