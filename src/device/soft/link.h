/* The software GPU's driver: its state, and its connection to the server. For driver.c and swap.c.
 */
#ifndef CEDE_DEVICE_SOFT_LINK_H
#define CEDE_DEVICE_SOFT_LINK_H

#include "device/ops.h"
#include "device/soft/proto.h"

/* The timeslice that a group had when it was first seen. */
struct soft_seen {
    uint64_t key;
    uint32_t timeslice_us;
    int32_t pid;
};

/* All compute groups at some moment; ns 0: never taken. */
struct soft_sample {
    struct soft_group *v;
    size_t n;
    uint64_t ns;
};

struct soft_driver {
    struct device_driver base;
    int fd; /* -1: no server */
    unsigned gpus;
    char path[112];
    struct soft_seen *seen;
    size_t seen_n, seen_cap;
    struct soft_sample usage, activity; /* at the last call of each */
};

/* One request and its answer, of type `want`. -ENODEV: the server has gone; each later call tries
 * once to reach a new one. */
int soft_link_transact(struct soft_driver *d, struct soft_msg *m, uint32_t want, struct error *err);
/* As above, of type SOFT_REPLY, however long it takes. */
int soft_link_wait(struct soft_driver *d, struct soft_msg *m, struct error *err);

#endif
