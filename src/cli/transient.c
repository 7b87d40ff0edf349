/* See transient.h. The daemon must be no descendant of its starter, which is a job's root, and must
 * inherit nothing of it: no descriptor, no terminal, no signal disposition. */
#include "cli/transient.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "lib/cgroup.h"
#include "lib/paths.h"

#define CONNECT_MS 20000
#define TURN_MS    5000 /* who has been starting one for so long was stopped, or waits for a lock */
#define RETRY_MS   20
#define LOG_MAX    (1 << 20) /* bytes; a larger log is begun anew */

/* In the daemon-to-be. Descriptor 3 is the end of the pipe whose other end shows that it lives, and
 * by a byte that it listens, or that another has the place. */
static void become_daemon(int log_fd, int alive_fd, const char *dir, const char *device)
{
    sigset_t none;
    sigemptyset(&none);
    for (int sig = 1; sig <= SIGRTMAX; sig++)
        signal(sig, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);

    int null = open("/dev/null", O_RDWR), from[4] = {null, null, log_fd, alive_fd};
    for (int i = 0; i < 4; i++)
        from[i] = fcntl(from[i], F_DUPFD, 10); /* out of the way of 0 to 3 */
    for (int i = 0; i < 4; i++)
        dup2(from[i], i);
    close_range(4, ~0U, 0);

    cgroup_run_leave(true); /* the daemon is part of no job */
    /* Of a service that runs us: its state and its log are not this daemon's. */
    unsetenv("NOTIFY_SOCKET");
    unsetenv("JOURNAL_STREAM");

    char name[] = "ceded", transient[] = "--transient", dir_opt[] = "--dir", dev_opt[] = "--device";
    char dir_arg[512], device_arg[256];
    snprintf(dir_arg, sizeof(dir_arg), "%s", dir);
    snprintf(device_arg, sizeof(device_arg), "%s", device ? device : "");
    char *argv[] = {name, transient, dir_opt, dir_arg, device ? dev_opt : NULL, device_arg, NULL};
    execv("/proc/self/exe", argv);
    dprintf(2, "cannot execute /proc/self/exe: %s\n", strerror(errno));
}

static int start(struct transient *t, const char *device, struct error *err)
{
    char dir[256], log[300];
    int r = cede_dir(dir, sizeof(dir), err);
    if (r == 0)
        r = cede_dir_make(dir, err);
    if (r < 0)
        return r;
    transient_close(t);
    snprintf(log, sizeof(log), "%s/log", dir);
    t->log_fd = open(log, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat st;
    if (t->log_fd < 0 || fstat(t->log_fd, &st) < 0)
        return error_set(err, -errno, "cannot write %s: %s", log, strerror(errno));
    if (st.st_size > LOG_MAX && ftruncate(t->log_fd, 0) == 0)
        st.st_size = 0;
    t->log_start = st.st_size;

    int alive[2];
    if (pipe2(alive, O_CLOEXEC) < 0)
        return error_set(err, -errno, "cannot make a pipe: %s", strerror(errno));
    t->alive_fd = alive[0];
    pid_t middle = fork();
    if (middle == 0) {
        setsid();
        if (fork() == 0)
            become_daemon(t->log_fd, alive[1], dir, device);
        _exit(1);
    }
    r = middle < 0 ? error_set(err, -errno, "cannot start ceded: %s", strerror(errno)) : 0;
    close(alive[1]);
    if (middle > 0) {
        while (waitpid(middle, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    return r;
}

/* The last line that the daemon wrote, without its name and log level. */
static void complaint(const struct transient *t, char *buf, size_t size)
{
    struct stat st;
    buf[0] = '\0';
    if (fstat(t->log_fd, &st) < 0)
        return;
    off_t from = st.st_size - (off_t)size + 1;
    from = from > t->log_start ? from : t->log_start;
    ssize_t n = pread(t->log_fd, buf, size - 1, from);
    while (n > 0 && (buf[n - 1] == '\n' || buf[n - 1] == '\0'))
        n--;
    buf[n > 0 ? n : 0] = '\0';
    char *line = strrchr(buf, '\n');
    line = line ? line + 1 : buf;
    if (line[0] == '<' && line[1] && line[2] == '>')
        line += 3;
    if (strncmp(line, "ceded: ", 7) == 0)
        line += 7;
    memmove(buf, line, strlen(line) + 1);
}

/* Of those that find no daemon one at a time starts one. True: it is this one's turn, or who has it
 * does not get on. */
static bool my_turn(struct transient *t, uint64_t since_ns)
{
    char dir[256], path[300];
    if (t->turn_fd < 0 && cede_dir(dir, sizeof(dir), NULL) == 0 && cede_dir_make(dir, NULL) == 0) {
        snprintf(path, sizeof(path), "%s/starting", dir);
        t->turn_fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    }
    return t->turn_fd < 0 || flock(t->turn_fd, LOCK_EX | LOCK_NB) == 0 ||
           monotonic_ns() > since_ns + TURN_MS * NSEC_PER_MSEC;
}

enum started { NONE, BEGINS, FAILED };

/* How the daemon that was started gets on, after RETRY_MS at most. One that did listen may have
 * served others and ended since: then, too, none begins. */
static enum started transient_look(const struct transient *t)
{
    char c;
    struct pollfd p = {.fd = t->alive_fd, .events = POLLIN};
    if (poll(&p, 1, RETRY_MS) <= 0)
        return BEGINS;
    return read(t->alive_fd, &c, 1) == 1 ? NONE : FAILED;
}

int transient_connect(struct transient *t, const char *device, struct client *c, uint64_t until_ns,
                      struct error *err)
{
    const uint64_t since = monotonic_ns();
    enum started state = NONE;
    int r;
    while ((r = client_open_until(c, until_ns, err)) == -ENOENT && state != FAILED &&
           monotonic_ns() < since + CONNECT_MS * NSEC_PER_MSEC) {
        t->none_ns = monotonic_ns();
        if (state == BEGINS) {
            state = transient_look(t);
        } else if (!my_turn(t, since)) {
            poll(NULL, 0, RETRY_MS);
        } else if ((r = client_open(c, err)) != -ENOENT || (r = start(t, device, err)) < 0) {
            break; /* another's may have come before the turn did */
        } else {
            state = BEGINS;
        }
    }
    close_p(&t->turn_fd);
    t->turn_fd = -1;
    if (r != -ENOENT)
        return r;
    char why[400] = "";
    if (t->log_fd >= 0)
        complaint(t, why, sizeof(why));
    return error_set(err, -ENOENT, "%s", why[0] ? why : "ceded was started and does not answer");
}

void transient_close(struct transient *t)
{
    close_p(&t->alive_fd);
    close_p(&t->log_fd);
    t->alive_fd = t->log_fd = -1;
}
