/* Leases: whether a piece of work may start now, and on which of several GPUs. Deterministic: no
 * clock, no system call, no allocation after cede_leases_new(). It makes no stream and measures
 * nothing: the caller supplies what a lease takes, how busy each GPU is, and the time.
 *
 * A GPU's limits say whether one more lease may start there: the number of started leases,
 * their occupancy, their memory, the GPU's utilization, free streams. On a GPU without leases
 * none applies but what memory is free, so that a lease larger than a limit runs alone.
 *
 * A lease starts on its preferred GPU if it can at once, else on the least loaded GPU that lets it,
 * else it waits in the queue of the least loaded one. The first lease of a queue keeps all behind
 * it from that GPU until it fits, so that small leases do not overtake a large one for ever. First
 * are leases that have waited for age_us, by arrival; then urgent ones (deadline - now - estimate <
 * urgent_us); then by priority, then by arrival. Leases without memory pass a first
 * lease that only memory keeps waiting, as they take nothing that it waits for. A GPU with an empty
 * queue takes the first lease of the other queues that fits. Where loads are equal, a lease
 * goes to the GPU that its thread had last.
 *
 * An urgent lease that would have to wait displaces: it starts beyond all limits but that of
 * memory, up to `displace` such leases per GPU at a time. However many do so, a lease that has
 * waited for age_us starts as soon as the ordinary leases of that time leave it room: displacing
 * ones do not count against it, and take no memory that it needs; if memory suffices for it alone
 * only, no ordinary lease passes it. Requests (requests.h) are a different
 * question: they are ordered by time, and one batch runs on a device at a time.
 *
 * Not thread-safe. Times are nanoseconds of any monotonic clock. */
#ifndef CEDE_LIBCEDE_PURE_LEASES_H
#define CEDE_LIBCEDE_PURE_LEASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/job_terms.h"
#include "base/util.h"
#include "cede/lease.h"

#define LEASE_DEVICES_MAX  4096U
#define LEASE_CAPACITY_MAX 65536U
/* Occupancy adds up to more than one GPU: kernels that do not fit are queued behind those that run,
 * so that the GPU is not idle from the end of one lease to the first kernel of the next. */
#define LEASE_OCCUPANCY_MAX 64
#define LEASE_WHOLE         1000000U /* occupancy in millionths of a GPU */
#define LEASE_UNKNOWN       UINT32_MAX

struct lease_ask {
    uint64_t key;          /* kernel and shape, for estimates; 0: not known */
    uint64_t memory_bytes; /* that it takes in addition */
    uint64_t deadline_ns;  /* TIME_NEVER: none */
    uint64_t until_ns;     /* when it times out; not later than now: it does not wait */
    uint32_t occupancy;    /* millionths; LEASE_UNKNOWN: estimated */
    uint32_t preferred;    /* device; SLOT_NONE: any */
    uint32_t last;         /* device that its thread had last; SLOT_NONE: none */
    int32_t priority;      /* the highest is first */
    bool only;             /* on no other than the preferred device */
};

/* What a lease waits for. Of one that others of its priority are before, what the first of those
 * waits for. */
enum lease_wait {
    WAIT_NONE = CEDE_WAIT_NONE,
    WAIT_CLASS = CEDE_WAIT_CLASS,
    WAIT_COUNT = CEDE_WAIT_LIMIT,
    WAIT_OCCUPANCY = CEDE_WAIT_OCCUPANCY,
    WAIT_MEMORY = CEDE_WAIT_MEMORY,
    WAIT_UTILIZATION = CEDE_WAIT_UTILIZATION,
    WAIT_STREAM = CEDE_WAIT_STREAM,
};

struct lease_event {
    uint64_t id;
    uint32_t device;      /* that it started on, or waited for */
    enum lease_wait wait; /* WAIT_NONE: it started; else it timed out */
    bool urgent;
    uint32_t occupancy;         /* millionths, its own or an estimate */
    enum lease_wait waited_for; /* when it was asked for */
    uint64_t waited_us;
};

struct leases;

/* c: within its limits, with its devices; its times of polling and waiting are the caller's. 0 or
 * -ENOMEM. */
int cede_leases_new(const struct cede_pool_config *c, struct leases **out);
void cede_leases_free(struct leases *l);

/* 0: started. -EINPROGRESS: waits. Else nothing is kept: -EAGAIN (it may not wait; out->wait is
 * why), -EINVAL, -ENOSPC (capacity). out->id is never that of an earlier lease. */
int cede_leases_ask(struct leases *l, const struct lease_ask *a, uint64_t now_ns,
                    struct lease_event *out);
/* Ends a started lease. -ENOENT: there is none of that id. */
int cede_leases_release(struct leases *l, uint64_t id, uint64_t now_ns);
/* Ends a waiting lease. -ENOENT: there is none of that id. */
int cede_leases_cancel(struct leases *l, uint64_t id, uint64_t now_ns, struct lease_event *out);

/* The next event until now: a waiting lease started, or timed out. To be called until it returns
 * false after each of the other calls, and at cede_leases_next_ns(). A lease that could start at
 * the very moment of its timeout starts. */
bool cede_leases_step(struct leases *l, uint64_t now_ns, struct lease_event *out);
/* When an event may come without a call. TIME_NEVER: never. */
uint64_t cede_leases_next_ns(const struct leases *l);
/* When, after now, a waiting lease becomes urgent or aged, which may be a reason to start.
 * TIME_NEVER: never. */
uint64_t cede_leases_look_ns(const struct leases *l, uint64_t id, uint64_t now_ns);
/* Whether leases displace others on a GPU of which `id` is none. */
bool cede_leases_displaced(const struct leases *l, uint64_t id);

/* A GPU's utilization; above 100: not known, and no limit. */
void cede_leases_set_utilization(struct leases *l, uint32_t device, uint32_t percent);
/* What is free on a GPU now, of how much. total_bytes 0: not known, and no limit. How much of it
 * the started leases have allocated yet is not known: something between nothing and all that they
 * were to take. */
void cede_leases_set_memory(struct leases *l, uint32_t device, uint64_t free_bytes,
                            uint64_t total_bytes);

/* A lease's own slot in 0..capacity-1 until it ends, for what the caller keeps with it. */
static inline uint32_t lease_slot(uint64_t id)
{
    return (uint32_t)(id & (LEASE_CAPACITY_MAX - 1));
}

struct lease_view {
    uint32_t active, waiting, limit;
    uint32_t displacing; /* of the started leases */
    uint32_t occupancy;  /* of the started leases */
    uint64_t memory_bytes;
    uint64_t started, stolen, displaced, timed_out; /* since cede_leases_new() */
    uint64_t busy_ns;                               /* time with a started lease */
    struct cede_lease_waits waits[CEDE_WAITS];      /* by what they waited for */
};
static inline void lease_waits_add(struct cede_lease_waits *w, uint64_t waited_us)
{
    w->leases++;
    w->total_us += waited_us;
    w->max_us = max_u64(w->max_us, waited_us);
}

/* device has to exist. */
struct lease_view cede_leases_view(const struct leases *l, uint32_t device, uint64_t now_ns);

#endif
