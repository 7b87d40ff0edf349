/* See directory.h. inotify, because a daemon without jobs has no timer and has to stay so. */
#include "daemon/directory.h"

#include <errno.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "lib/log.h"
#include "lib/paths.h"
#include "lib/util.h"

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

int directory_watch(struct directory *d, uv_loop_t *loop, const char *path,
                    struct journal_place lock, void (*lost)(void *arg), void *arg)
{
    _cleanup_close_ int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd < 0 ||
        inotify_add_watch(fd, path, IN_DELETE | IN_DELETE_SELF | IN_MOVE | IN_MOVE_SELF) < 0)
        return -errno;
    int r = uv_poll_init(loop, &d->poll, fd);
    if (r < 0)
        return r;
    d->poll.data = d;
    d->path = path;
    d->lock = lock;
    d->lost = lost;
    d->arg = arg;
    d->fd = TAKE_FD(fd);
    r = uv_poll_start(&d->poll, UV_READABLE, on_change);
    return r == 0 && !directory_whole(d) ? -ENOENT : r; /* before it was watched */
}

void directory_unwatch(struct directory *d)
{
    if (d->fd < 0)
        return;
    uv_poll_stop(&d->poll);
    close_p(&d->fd);
    d->fd = -1;
}

void directory_open_containers(const char *dir, struct server *s)
{
    struct error err = {""};
    char path[160];
    snprintf(path, sizeof(path), "%s/container", dir);
    int r = cede_dir_make(path, &err);
    snprintf(path, sizeof(path), "%s/container/socket", dir);
    if (r == 0)
        r = server_listen_guests(s, path, &err);
    if (r < 0)
        log_say(LOG_WARNING, "verbs do not work inside of containers: %s", err.text);
}
