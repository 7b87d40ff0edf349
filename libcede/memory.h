/* Inside libcede: a handle of cede_memory_open(), shared by
 *   memory_table.c  the handles, their locks, and their failures in words
 *   memory.c        opening, closing, statistics, users
 *   memory_room.c   waiting for room, allocating, freeing
 *   memory_lease.c  leases with memory, managed ranges, what kernels need
 * Nothing that may take time is asked of the driver or the daemon with the lock held.
 *
 * Handles are slots that are never freed, and a reservation names its handle by slot and
 * generation, as leases do (pool.h). Order of locks: table, then a handle's. */
#ifndef CEDE_LIBCEDE_MEMORY_H
#define CEDE_LIBCEDE_MEMORY_H

#include <pthread.h>
#include <stdbool.h>

#include "cede/memory.h"
#include "libcede/gpus.h"
#include "libcede/owner.h"
#include "libcede/pure/needs.h"
#include "libcede/pure/rooms.h"

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
    pthread_mutex_t lock;
    pthread_cond_t left; /* no thread is inside any more */
    bool open;
    uint64_t generation;
    unsigned inside; /* threads that wait, or call the driver or the daemon */
    struct cede_memory_config config;
    struct rooms *rooms;
    struct cede_gpus *gpu; /* NULL: none */
    struct room_data *data;
    void *allocations; /* struct allocation by address: tsearch(3) */
    unsigned nallocations;
    struct needs needs;
    bool sampling;       /* a thread asks the driver what is free */
    bool stale;          /* something was freed since it was asked */
    uint64_t sampled_ns; /* 0: never */
    bool asked;          /* the daemon is to make room */
    uint64_t ask_ns;     /* when it is asked again */
    uint64_t daemon_asked;
    int pressure; /* that was reported */
    uint64_t prefetched_ranges, prefetched_bytes, skipped_ranges;
    char skipped[128];
    struct gpu_error error; /* the latest */
};

struct allocation {
    uint64_t address, bytes, reservation;
};

extern struct cede_memory cede_memory_table[CEDE_MEMORIES_MAX];

/* 0: open, and its lock is held. -EINVAL, -ESHUTDOWN. */
int cede_memory_enter(struct cede_memory *m);
int cede_memory_closed(void); /* cede_fail(-ESHUTDOWN) */
/* What there is, in words, with the lock held. Both add to what is in text up to *at. */
void cede_memory_describe(const struct cede_memory *m, char *text, size_t size, size_t *at);
void cede_memory_add(char *text, size_t size, size_t *at, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define MEMORY_GIB(bytes) ((double)(bytes) / (1U << 30))
/* Gives up the lock for a call of the driver or the daemon, and takes it again. The handle may be
 * closed meanwhile, but what it has stays until then. */
void cede_memory_step_out(struct cede_memory *m);
void cede_memory_step_in(struct cede_memory *m);
/* Ends cede_memory_enter(), and calls on_pressure if the pressure has changed. Returns r, with a
 * text. */
int cede_memory_leave(struct cede_memory *m, int r);
int cede_memory_compare(const void *a, const void *b); /* two struct allocation */

/* ---- memory_room.c: with the lock held ---- */

/* Asks the driver what is free, if that is due; now: at once. */
void cede_memory_sample(struct cede_memory *m, bool now);
/* Reserves by until_ns, for an owner or NULL. *id: see rooms.h. */
int cede_memory_wait(struct cede_memory *m, const struct lease_owner *owner, uint64_t bytes,
                     uint64_t until_ns, uint64_t *id);
/* Ends a reservation, and wakes the threads whose turn it is. */
int cede_memory_end(struct cede_memory *m, uint64_t id);
uint64_t cede_memory_until(const struct cede_memory *m, cede_timeout timeout_us);
struct cede_reservation cede_memory_reservation(const struct cede_memory *m, uint64_t id,
                                                uint64_t bytes);

/* ---- memory_lease.c ---- */

/* cede_memory_acquire() for an owner, without ranges. p: NULL: the room alone. */
int cede_memory_lease(struct cede_memory *m, struct cede_pool *p, struct lease_owner *owner,
                      const char *kernel, const struct cede_shape *shape, cede_timeout timeout_us,
                      struct cede_lease *lease, struct cede_reservation *room);

#endif
