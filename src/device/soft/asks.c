/* How the driver asks the software GPU's server. One request at a time, each waited for. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "device/soft/driver.h"

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
        d->seen_n = 0; /* another server, other groups */
    d->server = server;
    memset(d->parts, 0, sizeof(d->parts));
    memset(d->recording, 0, sizeof(d->recording));
    sample_free(&d->usage);
    sample_free(&d->activity);
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
