/* Inside the driver for the software GPU: asks.c below, driver.c and switches.c. */
#ifndef CEDE_DEVICE_SOFT_DRIVER_H
#define CEDE_DEVICE_SOFT_DRIVER_H

#include "device/ops.h"
#include "device/soft/proto.h"

/* The timeslice that a group had when it was first seen. */
struct soft_seen {
    uint64_t key;
    uint32_t shared;
    uint32_t timeslice_us;
    int32_t pid;
};

/* Groups at some moment, in the order of their keys; ns 0: never taken. */
struct soft_sample {
    struct soft_group *v;
    size_t n, room;
    uint64_t ns;
};

/* Counters at the last call; ns 0: there was none. */
struct soft_parts {
    uint64_t ns, parts_ns[GPU_PARTS];
};

struct soft_driver {
    struct device_driver base;
    int fd;    /* -1: no server */
    int opens; /* which reports contexts that are opened; -1: nobody watches */
    struct device_watcher watcher;
    struct demand_list opened; /* since demand() was asked */
    pid_t server;              /* that was reached last */
    unsigned gpus;
    char path[112];
    struct soft_seen *seen; /* by their keys */
    size_t seen_n, seen_cap;
    struct soft_sample usage, activity; /* at the last call of each */
    struct soft_parts parts[DEVICE_GPUS_MAX];
    bool recording[DEVICE_GPUS_MAX];
    uint64_t switch_next[DEVICE_GPUS_MAX]; /* number of the next switch to ask for, */
    uint64_t switch_ns[DEVICE_GPUS_MAX];   /* and when the last was; 0: there was none */
};

static inline struct soft_driver *soft(struct device_driver *d)
{
    return (struct soft_driver *)d;
}

static inline void sample_free(struct soft_sample *s)
{
    free(s->v);
    *s = (struct soft_sample){.v = NULL};
}

/* The connection is of no use any more. Returns what a call then fails with. */
int soft_no_server(struct soft_driver *d, int code, struct error *err);
/* Connects if there is no connection. -ENODEV, -EPERM. */
int soft_reach(struct soft_driver *d, struct error *err);
/* One request and its answer, of type `want`. -ENODEV: the server has gone. */
int soft_ask(struct soft_driver *d, struct soft_msg *m, uint32_t want, struct error *err);

/* Watches for contexts that are opened, if there is a watcher and this is not so already. */
void soft_watch_opens(struct soft_driver *d);
void soft_unwatch_opens(struct soft_driver *d);
/* device_ops.watch, ready, demand */
void soft_watch(struct device_driver *base, const struct device_watcher *w);
void soft_ready(struct device_driver *base, int fd);
int soft_demand(struct device_driver *base, struct demand_list *out, struct error *err);

/* device_ops.switches */
int soft_switches(struct device_driver *base, struct switch_list *out, struct error *err);

#endif
