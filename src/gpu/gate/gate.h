/* The gate driver's state, for its files and their tests.
 *   gate.c      the driver's ops
 *   programs.c  the socket: connections, messages, and limits on both
 *   devices.c   maps a program's devices to the driver's few ones
 *   wants.c     which programs' wants are believed */
#ifndef CEDE_GPU_GATE_GATE_H
#define CEDE_GPU_GATE_GATE_H

#include "base/accept.h"
#include "base/gate_proto.h"
#include "base/principal.h"
#include "base/quota.h"
#include "base/util.h"
#include "gpu/ops.h"

#define GATE_GPUS             4 /* kinds of devices at once */
#define GATE_GPUS_OF_USER     2 /* of these, that no other user has */
#define GATE_PROGRAMS         512
#define GATE_PROGRAMS_OF_USER 128 /* the limit of all users but root together: USERS_PART */
#define GATE_REFUSED          16  /* programs without room that are remembered */

/* The time for which a program may want a device through an open gate without one of its commands
 * ending. It is longer than a program waits before it withdraws its want (10 s, gate/gate.c). */
#define GATE_FRUITLESS_MAX_NS (12 * NSEC_PER_SEC)
#define GATE_FRUITLESS_PART   16 /* a user's debt falls by this part of the time that passes */

struct gate_entry {      /* a device of a program */
    bool used, reported; /* reported: demand() has reported `wants` */
    bool wants;
    uint32_t gpu, level;
    uint64_t key;
    uint64_t first_until; /* end of a new program's first limit; 0: the scheduler has decided */
    uint64_t busy_ns;     /* at the last usage() */
    /* For wants.c, as of its last update. */
    bool raw_wants, was_open, worked;
    uint64_t looked_ns, ended, fruitless_ns;
};

struct gate_program {
    int fd; /* -1: free */
    bool welcomed;
    bool muted;             /* its messages are not read until MUTE_NS after d->unmuted_ns */
    unsigned sent;          /* messages since d->unmuted_ns */
    unsigned stopped_looks; /* number of looks in a row at which it was stopped */
    struct proc_id proc;
    uid_t principal; /* by whom limits are counted: base/principal.h */
    struct gate_control *control;
    struct gate_slot *slot;
    struct gate_entry v[GATE_DEVICES];
};

struct gate_driver {
    struct device_driver base;
    char path[108];
    const char *left_out;     /* id of devices that another driver steers; NULL: none */
    struct acceptor acceptor; /* .fd < 0: the driver does not listen yet */
    struct device_watcher watcher;
    struct principals principals;
    struct quotas debts; /* of principals, for connecting */
    bool paused;         /* no connection is accepted for a while */
    bool any_muted;
    uint64_t next_key, usage_ns, unmuted_ns;
    struct gate_name {
        char name[64], id[64];
    } gpus[GATE_GPUS];
    struct gate_program programs[GATE_PROGRAMS];
    unsigned end; /* programs below may be in use */
    struct proc_id refused[GATE_REFUSED];
    unsigned nrefused;       /* since the start */
    struct quotas fruitless; /* debts for fruitless wants; left_out: wants are not believed */
    uint64_t stops_ns;       /* time of the next look for stopped programs */
    bool stops_looked;       /* there are programs to look at */
    uint64_t (*now_ns)(void);
};

/* Programs' devices with this id, which has to stay valid, are not scheduled from now on. */
void gate_leave_out(struct device_driver *base, const char *id);

/* ---- programs.c ---- */

/* Writes the word that the program's submissions read, and wakes those that wait for it. */
void gate_set_state(struct gate_program *p, unsigned device, uint32_t state);
int gate_listen(struct gate_driver *d, struct error *err);
/* device_ops.watch, .ready and .due_ns. */
void gate_watch(struct device_driver *base, const struct device_watcher *w);
void gate_ready(struct device_driver *base, int fd);
uint64_t gate_due_ns(struct device_driver *base);
/* Does what gate_ready() does, for all readable descriptors. */
void gate_poll(struct gate_driver *d);
/* After MUTE_NS, reads again from programs that sent too much, and accepts connections again. */
void gate_unmute(struct gate_driver *d);
/* Whether the program runs unscheduled because there was no room for it. */
bool gate_refused(const struct gate_driver *d, struct proc_id proc);
/* Closes the connection. The program notices that, and runs unscheduled. */
void gate_drop(struct gate_driver *d, struct gate_program *p);

/* ---- devices.c ---- */

uint32_t gate_gpu_of(struct gate_driver *d, const struct gate_program *p, const struct gate_msg *m);

/* ---- wants.c ---- */

/* Charge the time since the last update: to all programs; to one, before and after its gate is
 * opened or closed. */
void gate_wants_update(struct gate_driver *d);
void gate_entry_update(struct gate_driver *d, struct gate_program *p, unsigned device);
/* Whether the program wants the device and is believed. */
bool gate_believed(struct gate_driver *d, const struct gate_program *p, unsigned device);

#endif
