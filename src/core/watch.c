/* See watch.h. */
#include "core/watch.h"

#include <errno.h>
#include <stdlib.h>

#include "base/loop_poll.h"

struct watch {
    uv_poll_t *poll;
    struct watches *watches;
    bool *flag; /* NULL: the driver's */
    int fd;
    struct watch *next; /* of the driver's */
};

void watch_stop(struct watch *w)
{
    if (!w)
        return;
    loop_poll_stop(&w->poll);
    free(w);
}

/* A pidfd stays readable, so polling stops at the first event. */
static void on_readable(uv_poll_t *p, int status, int events)
{
    struct watch *w = p->data;
    w->watches->pending = true;
    if (w->flag) {
        *w->flag = true;
        uv_poll_stop(p);
    } else {
        w->watches->driver->ops->ready(w->watches->driver, w->fd);
    }
}

int watch_start(struct watches *x, int fd, bool *flag, struct watch **out)
{
    struct watch *w = calloc(1, sizeof(*w));
    int r = w ? loop_poll_start(x->loop, fd, UV_READABLE, on_readable, w, &w->poll) : -ENOMEM;
    if (r < 0) {
        free(w);
        return r;
    }
    w->watches = x;
    w->flag = flag;
    w->fd = fd;
    *out = w;
    return 0;
}

/* Without a watch, what the descriptor would report is found once per second by processes(). */
static void driver_add(void *arg, int fd)
{
    struct watches *x = arg;
    struct watch *w;
    if (watch_start(x, fd, NULL, &w) < 0)
        return;
    w->next = x->drivers;
    x->drivers = w;
}

static void driver_remove(void *arg, int fd)
{
    struct watches *x = arg;
    struct watch **link = &x->drivers;
    while (*link && (*link)->fd != fd)
        link = &(*link)->next;
    if (*link) {
        struct watch *w = *link;
        *link = w->next;
        watch_stop(w);
    }
}

void watch_driver(struct watches *x, struct device_driver *driver)
{
    const struct device_watcher watcher = {driver_add, driver_remove, x};
    x->driver = driver;
    if (driver->ops->watch)
        driver->ops->watch(driver, &watcher);
}

void unwatch_driver(struct watches *x)
{
    if (x->driver && x->driver->ops->watch)
        x->driver->ops->watch(x->driver, NULL);
    while (x->drivers)
        driver_remove(x, x->drivers->fd);
}
