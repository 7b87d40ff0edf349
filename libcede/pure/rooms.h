/* Room in a GPU's memory: which reservation is granted, and what is left. Deterministic: no clock,
 * no system call, no allocation after cede_rooms_new(). It allocates nothing on the GPU and asks
 * nothing: the caller supplies what the driver says is free, and the time.
 *
 * Room is what is free, minus the reserve, minus what is promised: reserved and not allocated. What
 * is allocated is known to be gone from what was free when the driver said it; what is freed comes
 * back with the next word of the driver, so that a word from before or after it is as good.
 *
 * Reservations are granted in order of arrival. The first that does not fit keeps all behind it
 * waiting, so that small ones do not overtake a large one for ever; each waits until its timeout
 * at most.
 *
 * Not thread-safe. Times are nanoseconds of any monotonic clock. */
#ifndef CEDE_LIBCEDE_PURE_ROOMS_H
#define CEDE_LIBCEDE_PURE_ROOMS_H

#include <stdbool.h>
#include <stdint.h>

#include "cede/memory.h"

#define ROOMS_CAPACITY_MAX 65536U

struct room_event {
    uint64_t id;
    bool granted; /* else it timed out */
};

struct rooms;

/* c: total_bytes, reserve_bytes, capacity, high, critical, within their limits. 0 or -ENOMEM. All
 * is free at first. */
int cede_rooms_new(const struct cede_memory_config *c, struct rooms **out);
void cede_rooms_free(struct rooms *r);

/* What the driver says is free. allocated_bytes: cede_rooms_allocated() before it was asked. */
void cede_rooms_set_free(struct rooms *r, uint64_t free_bytes, uint64_t allocated_bytes);
/* Sum of all allocations that were ever made. */
uint64_t cede_rooms_allocated(const struct rooms *r);

/* A reservation; one of 0 bytes never waits. 0: granted. -EINPROGRESS: waits. Else nothing is kept:
 * -ENOMEM (it may not wait, or there never is so much), -ENOSPC. *id is never that of an earlier
 * one. */
int cede_rooms_ask(struct rooms *r, uint64_t bytes, uint64_t until_ns, uint64_t now_ns,
                   uint64_t *id);
/* Whether as much could be reserved without waiting. */
bool cede_rooms_fits(const struct rooms *r, uint64_t bytes);
/* Ends one that is granted (what was allocated from it stays), or waits. -ENOENT. */
int cede_rooms_release(struct rooms *r, uint64_t id);

/* Takes bytes of a granted reservation for an allocation, and of what is left where it has too
 * little: -ENOMEM if that would need waiting. -ENOENT. Followed by one of the next two. */
int cede_rooms_draw(struct rooms *r, uint64_t id, uint64_t bytes);
void cede_rooms_took(struct rooms *r, uint64_t bytes);
void cede_rooms_undraw(struct rooms *r, uint64_t id, uint64_t bytes);
/* A granted reservation waits again, as the first. until_ns: the same as before. */
void cede_rooms_again(struct rooms *r, uint64_t id, uint64_t until_ns);
/* An allocation ended; its room returns to its reservation, if that is not released. */
void cede_rooms_freed(struct rooms *r, uint64_t id, uint64_t bytes);

/* The most that was drawn from it at a time, over which it was released. 0: no such reservation. */
uint64_t cede_rooms_peak(const struct rooms *r, uint64_t id);

/* The next event until now. To be called until it returns false after each of the other calls. A
 * reservation that fits at the very moment of its timeout is granted. */
bool cede_rooms_step(struct rooms *r, uint64_t now_ns, struct room_event *out);

/* The first that waits; 0: none. *bytes: what the driver has to have free for it. */
uint64_t cede_rooms_first(const struct rooms *r, uint64_t *bytes);

/* A reservation's own slot in 0..capacity-1 until it ends. */
static inline uint32_t room_slot(uint64_t id)
{
    return (uint32_t)(id & (ROOMS_CAPACITY_MAX - 1));
}

/* What there is. The caller counts in it what happens outside of rooms. */
struct cede_memory_statistics *cede_rooms_statistics(struct rooms *r);

/* Pressure from the share of memory that is not available and what it was: a threshold counts as
 * passed until the share is PRESSURE_BAND below it. */
#define PRESSURE_BAND 0.02
int cede_rooms_pressure(double share, double high, double critical, int was);

/* How much memory leases of a kernel and shape take, from what earlier ones took. The expected need
 * is the most that one took, and follows by an eighth a time when later ones take less. Of two keys
 * that fall on one slot the later stays. */
#define NEEDS 1024U /* a power of 2 */

struct needs {
    struct {
        uint64_t key, bytes;
    } v[NEEDS];
};

/* Of a kernel's name (NULL: none) and numbers of its shape; never 0. */
uint64_t cede_needs_key(const char *kernel, const uint64_t *shape, unsigned n);
/* 0: not known. */
uint64_t cede_needs_get(const struct needs *n, uint64_t key);
void cede_needs_learn(struct needs *n, uint64_t key, uint64_t bytes);

#endif
