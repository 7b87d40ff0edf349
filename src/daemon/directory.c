/* See directory.h. It uses inotify, because a daemon without jobs must not need a timer. */
#include "daemon/directory.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/loop_poll.h"
#include "base/util.h"
#include "who/procfs.h"

#define JOURNAL_WAIT_MS 2000  /* a restorer that is at work holds the journal until it is done */
#define RELIEF_WAIT_MS  10000 /* all changes are undone before a holder that is to end does */

static bool directory_whole(const struct directory *d)
{
    char path[128];
    struct stat st;
    snprintf(path, sizeof(path), "%s/lock", d->path);
    if (lstat(path, &st) < 0 || st.st_dev != d->lock.device || st.st_ino != d->lock.inode)
        return false;
    snprintf(path, sizeof(path), "%s/socket", d->path);
    return lstat(path, &st) == 0 && S_ISSOCK(st.st_mode);
}

static void on_change(uv_poll_t *p, int status, int events)
{
    struct directory *d = p->data;
    char buf[4096];
    while (read(d->fd, buf, sizeof(buf)) > 0)
        ;
    if (!directory_whole(d))
        d->lost(d->arg);
}

/* Whether the process is a ceded of this user that a verb started, and that ends by itself. */
static bool is_transient(const struct proc_stat *st)
{
    static const char option[] = "--transient";
    char text[4096];
    uid_t owner;
    const ssize_t n = proc_read(st->id.pid, "cmdline", text, sizeof(text));
    return strcmp(st->comm, "ceded") == 0 && n > 0 &&
           memmem(text, (size_t)n, option, sizeof(option)) && proc_owner(st->id.pid, &owner) == 0 &&
           owner == geteuid();
}

int directory_journal(const char *dir, bool transient, struct journal **out, struct error *err)
{
    int r = journal_open(dir, JOURNAL_WAIT_MS, out, err);
    struct proc_stat st;
    if (r != -EBUSY)
        return r;
    const pid_t holder = journal_holder(dir);
    const bool gone = holder == getpid() || proc_stat_read(holder, &st) < 0;
    if (!gone && (transient || !is_transient(&st)))
        return r;
    if (!gone) { /* else its restorer has the lock */
        log_say(LOG_INFO, "a transient ceded (pid %d) is here, and is relieved", (int)st.id.pid);
        proc_signal(st.id, SIGTERM);
    }
    return journal_open(dir, RELIEF_WAIT_MS, out, err);
}

int directory_watch(struct directory *d, uv_loop_t *loop, const char *path,
                    struct journal_lock_id lock, void (*lost)(void *arg), void *arg)
{
    _cleanup_close_ int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd < 0 ||
        inotify_add_watch(fd, path, IN_DELETE | IN_DELETE_SELF | IN_MOVE | IN_MOVE_SELF) < 0)
        return -errno;
    int r = loop_poll_start(loop, fd, UV_READABLE, on_change, d, &d->poll);
    if (r < 0)
        return r;
    d->path = path;
    d->lock = lock;
    d->lost = lost;
    d->arg = arg;
    d->fd = TAKE_FD(fd);
    return directory_whole(d) ? 0 : -ENOENT; /* removed before the watch began */
}

void directory_unwatch(struct directory *d)
{
    if (d->fd < 0)
        return;
    loop_poll_stop(&d->poll);
    close_p(&d->fd);
    d->fd = -1;
}
