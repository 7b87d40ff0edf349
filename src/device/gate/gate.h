/* Inside the gate driver: its programs and devices, and what its files offer each other.
 *   gate.c      the driver's ops
 *   programs.c  the socket: connections, messages, and how much of them is taken
 *   devices.c   which of the driver's few devices a program's device is
 *   wants.c     which programs' wants are believed
 *   stops.c     which programs are stopped
 * For these and their tests. */
#ifndef CEDE_DEVICE_GATE_GATE_H
#define CEDE_DEVICE_GATE_GATE_H

#include "device/ops.h"
#include "lib/accept.h"
#include "lib/account.h"
#include "lib/gate_proto.h"
#include "lib/quota.h"
#include "lib/util.h"

#define GATE_PLACES           4 /* kinds of devices at once */
#define GATE_PLACES_OF_USER   2 /* that no other user has */
#define GATE_PROGRAMS         512
#define GATE_PROGRAMS_OF_USER 128 /* all but root's together: USERS_PART */
#define GATE_USERS            64  /* whose wants are accounted */
#define GATE_REFUSED          16  /* programs that had no room and are remembered */

/* Time that a program wants an open gate without any command of it ending. What one command may
 * take is more than a program waits before it withdraws its want (10 s, src/gate/gate.c). */
#define GATE_FRUITLESS_MAX_NS (12 * NSEC_PER_SEC)
#define GATE_FRUITLESS_PART   16 /* a user's account falls by this part of the time that passes */

struct gate_entry {      /* a device of a program */
    bool used, reported; /* reported: what demand() handed out is `wants` */
    bool wants;
    uint32_t place, level;
    uint64_t key;
    uint64_t first_until; /* 0: it was decided about */
    uint64_t busy_ns;     /* at the last usage() */
    /* For wants.c: as of the last look. */
    bool raw_wants, was_open, worked;
    uint64_t looked_ns, ended, fruitless_ns;
};

struct gate_program {
    int fd; /* -1: free */
    bool welcomed;
    bool muted;             /* not listened to before d->unmuted_ns is long enough ago */
    unsigned sent;          /* messages since then */
    unsigned stopped_looks; /* in a row at which it was stopped */
    struct proc_id proc;
    uid_t account; /* by whom limits are counted: lib/account.h */
    struct gate_control *control;
    struct gate_slot *slot;
    struct gate_entry v[GATE_DEVICES];
};

struct gate_user {
    uid_t uid;             /* an account */
    uint64_t fruitless_ns; /* of all the user's programs, also of those that have left */
    bool doubted;
};

struct gate_driver {
    struct device_driver base;
    char path[108];
    struct acceptor acceptor; /* .fd < 0: does not listen yet */
    struct device_watcher watcher;
    struct accounts accounts;
    struct quotas debts; /* of accounts, for connecting */
    bool paused;         /* no connection is accepted */
    bool any_muted;
    uint64_t next_key, usage_ns, unmuted_ns;
    struct gate_name {
        char name[64], id[64];
    } places[GATE_PLACES];
    struct gate_program programs[GATE_PROGRAMS];
    unsigned end; /* programs below may be in use */
    struct proc_id refused[GATE_REFUSED];
    unsigned nrefused; /* ever */
    struct gate_user users[GATE_USERS];
    uint64_t paid_ns;  /* when the users' accounts last fell */
    uint64_t stops_ns; /* when programs are looked at next, if any has to be */
    bool stops_looked; /* one has to be */
    uint64_t (*now_ns)(void);
};

/* ---- programs.c ---- */

/* Writes the word that the program's submissions look at, and wakes those that wait for it. */
void gate_set_state(struct gate_program *p, unsigned device, uint32_t state);
int gate_listen(struct gate_driver *d, struct error *err);
/* device_ops.watch, .ready and .due_ns. */
void gate_watch(struct device_driver *base, const struct device_watcher *w);
void gate_ready(struct device_driver *base, int fd);
uint64_t gate_due_ns(struct device_driver *base);
/* As gate_ready(), for all descriptors that are readable, without a watcher. */
void gate_poll(struct gate_driver *d);
/* Listens again to programs that sent too much, and for new ones, if it is time. */
void gate_unmute(struct gate_driver *d);
/* Whether the program runs unscheduled because there was no room for it. */
bool gate_refused(const struct gate_driver *d, struct proc_id proc);
/* The program notices, and runs unscheduled. */
void gate_drop(struct gate_driver *d, struct gate_program *p);

/* ---- devices.c ---- */

uint32_t gate_place_of(struct gate_driver *d, const struct gate_program *p,
                       const struct gate_msg *m);

/* ---- wants.c ---- */

/* Accounts for the time since the last look: of all programs; of one, before and after its gate is
 * opened or closed. */
void gate_wants_update(struct gate_driver *d);
void gate_entry_update(struct gate_driver *d, struct gate_program *p, unsigned device);
/* Whether the program wants the device, as far as it is believed. */
bool gate_believed(struct gate_driver *d, const struct gate_program *p, unsigned device);

/* ---- stops.c ---- */

/* Looks, where it is time to, which of the programs that others wait for are stopped. */
void gate_stops_update(struct gate_driver *d);
bool gate_stopped(const struct gate_program *p);

#endif
