/* The driver's requests to the software GPU's server, one at a time, and the server's reports of
 * opened contexts, which come on a separate connection. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gpu/soft/driver.h"

int soft_no_server(struct soft_driver *d, int code, struct error *err)
{
    if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
    if (code == -EACCES || code == -EPERM)
        return error_set(err, -EPERM, "the software GPU at %s is another user's", d->path);
    return error_set(err, -ENODEV, "no software GPU at %s (%s): start `cede-softgpu`", d->path,
                     strerror(-code));
}

int soft_reach(struct soft_driver *d, struct error *err)
{
    if (d->fd >= 0)
        return 0;
    struct soft_msg m = {.type = SOFT_OPEN_CONTROL};
    pid_t server = 0;
    int r = soft_connect(d->path, &m, &d->fd, &server);
    if (r < 0)
        return soft_no_server(d, r, err);
    d->gpus = (unsigned)min_u64(m.u.reply.gpus, DEVICE_GPUS_MAX);
    if (server != d->server)
        d->seen_n = 0; /* a new server has other groups */
    d->server = server;
    memset(d->gpu, 0, sizeof(d->gpu));
    sample_free(&d->usage);
    sample_free(&d->activity);
    soft_watch_opens(d);
    return 0;
}

int soft_ask(struct soft_driver *d, struct soft_msg *m, uint32_t want, struct error *err)
{
    int r = soft_reach(d, err);
    if (r < 0)
        return r;
    r = soft_transact(d->fd, m, want);
    return r < 0 ? soft_no_server(d, r, err) : 0;
}

/* ---- contexts that are opened ---- */

#define OPENED_MAX 4096U /* processes() finds those beyond */
#define READY_MAX  256   /* in one call */

void soft_unwatch_opens(struct soft_driver *d)
{
    if (d->opens < 0)
        return;
    if (d->watcher.remove)
        d->watcher.remove(d->watcher.arg, d->opens);
    close(d->opens);
    d->opens = -1;
}

void soft_watch_opens(struct soft_driver *d)
{
    if (!d->watcher.add || d->fd < 0)
        return;
    soft_unwatch_opens(d); /* the old connection may be to another server */
    struct soft_msg m = {.type = SOFT_OPEN_CONTROL};
    int r = soft_connect(d->path, &m, &d->opens, NULL);
    if (r == 0) {
        m = (struct soft_msg){.type = SOFT_WATCH};
        r = soft_transact(d->opens, &m, SOFT_REPLY);
    }
    if (r < 0) {
        close_p(&d->opens);
        d->opens = -1;
        return;
    }
    d->watcher.add(d->watcher.arg, d->opens);
}

void soft_watch(struct device_driver *base, const struct device_watcher *w)
{
    struct soft_driver *d = soft(base);
    if (!w)
        soft_unwatch_opens(d);
    d->watcher = w ? *w : (struct device_watcher){.add = NULL};
    soft_watch_opens(d);
}

void soft_ready(struct device_driver *base, int fd)
{
    struct soft_driver *d = soft(base);
    for (int i = 0; i < READY_MAX && fd == d->opens; i++) {
        struct soft_msg m;
        ssize_t n = recv(fd, &m, sizeof(m), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n != (ssize_t)soft_msg_size(SOFT_OPENED) || m.type != SOFT_OPENED ||
            m.version != SOFT_VERSION) {
            soft_unwatch_opens(d); /* until a server is reached again */
            return;
        }
        const struct gpu_demand x = {.pid = m.u.opened.pid, .gpu = m.u.opened.gpu, .wants = true};
        if (d->opened.n < OPENED_MAX)
            (void)demand_list_push(&d->opened, &x);
    }
}

int soft_demand(struct device_driver *base, struct demand_list *out, struct error *err)
{
    struct soft_driver *d = soft(base);
    int r = 0;
    for (size_t i = 0; i < d->opened.n && r == 0; i++)
        r = demand_list_push(out, &d->opened.v[i]);
    d->opened.n = 0;
    return r < 0 ? error_set(err, r, "no memory for the list of programs") : 0;
}
