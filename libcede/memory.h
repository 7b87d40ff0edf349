/* Inside libcede: a handle of cede_memory_open(), shared by
 *   memory.c       the handles and their locks, statistics, users
 *   memory_room.c  waiting for room, allocating, freeing, leases with memory
 */
#ifndef CEDE_LIBCEDE_MEMORY_H
#define CEDE_LIBCEDE_MEMORY_H

#include "cede/memory.h"
#include "libcede/gpus.h"
#include "libcede/owner.h"
#include "libcede/pure/rooms.h"
#include "libcede/slot.h"

struct room_waiter {
    pthread_cond_t cond;
    const struct lease_owner *owner; /* or NULL */
    bool done, granted;
};

/* What belongs to a reservation, in the same slot as the pure part's. */
struct room_data {
    struct room_waiter *waiter; /* NULL: granted */
    uint64_t key;               /* kernel and shape whose lease it is for; 0: none */
    bool internal;              /* not the caller's: of an allocation, until it is made */
};

struct cede_memory {
    struct slot;
    struct cede_memory_config config; /* from here on all is 0 while it is not open */
    struct rooms *rooms;
    struct cede_memory_statistics *s; /* of rooms */
    struct cede_gpus *gpu;            /* NULL: none */
    struct room_data *data;
    void *allocations; /* struct allocation by address: tsearch(3) */
    struct needs needs;
    bool sampling;          /* a thread asks the driver what is free */
    bool stale;             /* something was freed since it was asked */
    uint64_t sampled_ns;    /* 0: never */
    bool asked;             /* the daemon is to make room */
    uint64_t ask_ns;        /* when it is asked again */
    int pressure;           /* that was reported */
    struct gpu_error error; /* the latest */
};

struct allocation {
    uint64_t address, bytes, reservation;
};

extern struct cede_memory cede_memory_table[CEDE_MEMORIES_MAX];

/* 0: open, and its lock is held. -EINVAL, -ESHUTDOWN. */
int cede_memory_enter(struct cede_memory *m);
#define ENTER(m)                                                                                   \
    int r = cede_memory_enter(m);                                                                  \
    if (r)                                                                                         \
    return r
/* Ends cede_memory_enter(), and calls on_pressure if the pressure has changed. Returns r, with a
 * text. bytes: what was asked for, of calls that take room. */
int cede_memory_leave(struct cede_memory *m, int r, uint64_t bytes);
int cede_memory_compare(const void *a, const void *b); /* two struct allocation */

/* Asks the driver what is free, if that is due; now: at once. With the lock held, as the next two.
 */
void cede_memory_sample(struct cede_memory *m, bool now);
/* Wakes the threads that get their room by now, or time out. None waits once the handle is closed,
 * though their reservations do. */
void cede_memory_run_events(struct cede_memory *m, uint64_t now_ns);
void cede_memory_wake_first(struct cede_memory *m); /* the first in line */

/* ---- memory_room.c ---- */

/* cede_memory_acquire() for an owner, without ranges. p: NULL: the room alone. */
int cede_memory_lease(struct cede_memory *m, struct cede_pool *p, struct lease_owner *owner,
                      const char *kernel, const struct cede_shape *shape, cede_timeout timeout_us,
                      struct cede_lease *lease, struct cede_reservation *room);

#endif
