/* Descriptors on the caller's libuv loop: pidfds of processes, roots and swappers, and what the
 * driver hands over. A callback only takes a note; the next tick acts on it. */
#ifndef CEDE_MODEL_WATCH_H
#define CEDE_MODEL_WATCH_H

#include <uv.h>

#include "device/ops.h"

struct watch;

struct watches {
    uv_loop_t *loop;
    struct device_driver *driver;
    bool pending;          /* a flag was set, or the driver has news */
    struct watch *drivers; /* list of the driver's descriptors */
};

/* Watches fd until watch_stop(); *flag becomes true, once, when it is readable. The fd stays the
 * caller's, who closes it after watch_stop(). 0 or -errno. */
int watch_start(struct watches *x, int fd, bool *flag, struct watch **out);
void watch_stop(struct watch *w); /* NULL: nothing */

/* Watches what the driver hands over. */
void watch_driver(struct watches *x, struct device_driver *driver);
void unwatch_driver(struct watches *x);

#endif
