/* See transient.h. The daemon must not descend from its starter, which is a job's root, and must
 * not inherit its descriptors, terminal or signal dispositions. */
#include "cli/transient.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/child.h"
#include "base/paths.h"
#include "daemon/daemonize.h"
#include "who/cgroup.h"

#define CONNECT_MS 20000
#define TURN_MS    5000 /* after which a starter is taken for stopped, or waiting for a lock */
#define RETRY_MS   20
#define LOG_MAX    (1 << 20) /* bytes; a larger log is begun anew */

static int daemon_begins(void *arg)
{
    (void)arg;
    cgroup_run_leave(true); /* the daemon is part of no job */
    /* The service that this process may belong to must not get the daemon's state and log. */
    unsetenv("NOTIFY_SOCKET");
    unsetenv("JOURNAL_STREAM");
    return 0;
}

/* Whether dir is the folder in which containers find a permanent ceded: no other may run there. */
static bool is_for_guests(const char *dir)
{
    const char *name = strrchr(dir, '/');
    char journal[300];
    snprintf(journal, sizeof(journal), "%s/../journal", dir);
    return name && strcmp(name, "/container") == 0 && access(journal, F_OK) == 0;
}

static int start(struct transient *t, const char *device, struct error *err)
{
    char dir[256], log[300];
    int r = cede_dir(dir, sizeof(dir), err);
    if (r == 0 && is_for_guests(dir))
        return error_set(err, -EAGAIN, "ceded, which containers reach by %s, does not run", dir);
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

    const struct child_spec spec = {
        .file = CHILD_SELF,
        .argv = (const char *const[]){"ceded", "--transient", "--dir", dir,
                                      device ? "--device" : NULL, device, NULL},
        .begin = daemon_begins,
        .fds = {{-1, STDIN_FILENO}, {-1, STDOUT_FILENO}, {t->log_fd, STDERR_FILENO}},
        .detached = true,
        .fresh = true,
    };
    r = t->alive_fd = child_start_linked(&spec, CHILD_WRITES, DAEMON_STARTER_FD, NULL);
    return r < 0 ? error_set(err, r, "cannot start ceded: %s", strerror(-r)) : 0;
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

/* Why a daemon that was started said nothing, as far as can be told: on a full file system it can
 * write neither its journal nor its log. */
static void silent(const struct transient *t, bool ended, char *buf, size_t size)
{
    struct statvfs fs;
    char dir[256] = "its directory";
    (void)cede_dir(dir, sizeof(dir), NULL);
    if (ended && t->log_fd >= 0 && fstatvfs(t->log_fd, &fs) == 0 && fs.f_bavail == 0)
        snprintf(buf, size, "ceded cannot start: no space is left for %.200s", dir);
    else if (ended)
        snprintf(buf, size, "ceded ended when it started, and %.200s/log does not say why", dir);
    else
        snprintf(buf, size, "ceded was started in %.200s and does not answer", dir);
}

/* Of the processes that find no daemon one at a time starts one. True: it is this one's turn, or
 * the starter has not succeeded within TURN_MS. */
static bool my_turn(struct transient *t, uint64_t since_ns)
{
    char dir[256], path[300];
    if (t->turn_fd < 0 && cede_dir(dir, sizeof(dir), NULL) == 0 && !is_for_guests(dir) &&
        cede_dir_make(dir, NULL) == 0) {
        snprintf(path, sizeof(path), "%s/starting", dir);
        t->turn_fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    }
    return t->turn_fd < 0 || flock(t->turn_fd, LOCK_EX | LOCK_NB) == 0 ||
           monotonic_ns() > since_ns + TURN_MS * NSEC_PER_MSEC;
}

enum started { NONE, BEGINS, FAILED };

/* The state of the daemon that was started, after RETRY_MS at most. NONE: it has listened, or found
 * another; it may have ended since. */
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
    bool told = false; /* err has why none could be started */
    int r;
    while ((r = client_open_until(c, until_ns, err)) == -ENOENT && state != FAILED &&
           monotonic_ns() < since + CONNECT_MS * NSEC_PER_MSEC) {
        t->none_ns = monotonic_ns();
        if (state == BEGINS) {
            state = transient_look(t);
        } else if (!my_turn(t, since)) {
            poll(NULL, 0, RETRY_MS);
        } else if ((r = client_open(c, err)) != -ENOENT ||
                   (told = (r = start(t, device, err)) < 0)) {
            break; /* another starter's daemon may have come before this one's turn */
        } else {
            state = BEGINS;
        }
    }
    close_p(&t->turn_fd);
    t->turn_fd = -1;
    if (r != -ENOENT || told)
        return r;
    char why[400] = "";
    if (t->log_fd >= 0)
        complaint(t, why, sizeof(why));
    if (!why[0])
        silent(t, state == FAILED, why, sizeof(why));
    return error_set(err, -ENOENT, "%s", why);
}

void transient_close(struct transient *t)
{
    close_p(&t->alive_fd);
    close_p(&t->log_fd);
    t->alive_fd = t->log_fd = -1;
}
