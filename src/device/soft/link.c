/* See link.h. */
#include "device/soft/link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "device/soft/client.h"

static int no_server(struct soft_driver *d, int code, struct error *err)
{
    if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
    if (code == -EACCES || code == -EPERM)
        return error_set(err, -EPERM, "no right to use the software GPU at %s: it serves one user",
                         d->path);
    return error_set(err, -ENODEV, "no software GPU at %s (%s): start `cede-softgpu`", d->path,
                     strerror(-code));
}

static int link_reach(struct soft_driver *d, struct error *err)
{
    if (d->fd >= 0)
        return 0;
    struct soft_msg m = {.type = SOFT_OPEN_CONTROL};
    int r = soft_connect(d->path, &m, &d->fd);
    if (r < 0)
        return no_server(d, r, err);
    d->gpus = (unsigned)min_u64(m.u.reply.gpus, DEVICE_GPUS_MAX);
    d->seen_n = d->usage.n = d->activity.n = 0; /* another server, other groups */
    d->usage.ns = d->activity.ns = 0;
    return 0;
}

int soft_link_transact(struct soft_driver *d, struct soft_msg *m, uint32_t want, struct error *err)
{
    int r = link_reach(d, err);
    if (r < 0)
        return r;
    r = soft_transact(d->fd, m, want);
    return r < 0 ? no_server(d, r, err) : 0;
}

int soft_link_wait(struct soft_driver *d, struct soft_msg *m, struct error *err)
{
    int r = link_reach(d, err);
    /* Moving memory takes seconds; a server that goes ends the wait. */
    if (r == 0 && setsockopt(d->fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0},
                             sizeof(struct timeval)) < 0)
        r = -errno;
    return r < 0 ? r : soft_link_transact(d, m, SOFT_REPLY, err);
}
