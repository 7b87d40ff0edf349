/* The software GPU's driver: its state, and the functions of asks.c. */
#ifndef CEDE_GPU_SOFT_DRIVER_H
#define CEDE_GPU_SOFT_DRIVER_H

#include "gpu/ops.h"
#include "gpu/soft/proto.h"

/* The timeslice that a group had when it was first seen. */
struct soft_seen {
    uint64_t key;
    uint32_t shared;
    uint32_t timeslice_us;
    int32_t pid;
};

/* All groups at one time, in the order of their keys; ns 0: never read. */
struct soft_sample {
    struct soft_group *v;
    size_t n, room;
    uint64_t ns;
};

/* The values that were last read for a GPU. */
struct soft_gpu {
    uint64_t ns, parts_ns[GPU_PARTS]; /* counters; ns 0: never */
    bool recording;
    uint64_t switch_next; /* number of the next switch to ask for */
    uint64_t switch_ns;   /* time of the last switch; 0: there was none */
};

struct soft_driver {
    struct device_driver base;
    int fd;    /* -1: no server */
    int opens; /* connection that reports opened contexts; -1: there is no watcher */
    struct device_watcher watcher;
    struct demand_list opened; /* since the last demand() */
    pid_t server;              /* the server that was reached last */
    unsigned gpus;
    char path[112];
    struct soft_seen *seen;
    size_t seen_n, seen_cap;
    struct soft_sample usage, activity; /* at the last call of each */
    struct soft_gpu gpu[DEVICE_GPUS_MAX];
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

/* Closes a broken connection. Returns the error with which the call fails. */
int soft_no_server(struct soft_driver *d, int code, struct error *err);
/* Connects if there is no connection. 0, -ENODEV, -EPERM. */
int soft_reach(struct soft_driver *d, struct error *err);
/* Sends one request and gets its answer, of type `want`. -ENODEV: the server has gone. */
int soft_ask(struct soft_driver *d, struct soft_msg *m, uint32_t want, struct error *err);

/* If there is a watcher, connects for reports of opened contexts. */
void soft_watch_opens(struct soft_driver *d);
void soft_unwatch_opens(struct soft_driver *d);
/* device_ops.watch, ready, demand */
void soft_watch(struct device_driver *base, const struct device_watcher *w);
void soft_ready(struct device_driver *base, int fd);
int soft_demand(struct device_driver *base, struct demand_list *out, struct error *err);

#endif
