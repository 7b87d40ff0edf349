/* Descriptors on the caller's libuv loop: pidfds of processes, roots and swappers, and those of the
 * driver. A callback only sets a flag; the next tick acts on it. */
#ifndef CEDE_CORE_WATCH_H
#define CEDE_CORE_WATCH_H

#include <uv.h>

#include "gpu/ops.h"

struct watch;

struct watches {
    uv_loop_t *loop;
    struct device_driver *driver;
    bool pending;          /* a flag was set, or the driver has news */
    struct watch *drivers; /* list of the driver's descriptors */
};

/* Watches fd until watch_stop(); *flag becomes true, once, when it is readable. The caller owns fd
 * and closes it after watch_stop(). 0 or -errno. */
int watch_start(struct watches *x, int fd, bool *flag, struct watch **out);
void watch_stop(struct watch *w); /* NULL: nothing */

/* Watches the descriptors that the driver adds and removes. */
void watch_driver(struct watches *x, struct device_driver *driver);
void unwatch_driver(struct watches *x);

#endif
