/* Who may start work on which of several GPUs now: leases. Deterministic: no clock, no system call,
 * no allocation after cede_leases_new(). It makes no stream and measures nothing; the caller tells
 * what a lease takes, how busy a GPU is and what time it is.
 *
 * A GPU's gates say whether one more may start: how many have started, their occupancy, their
 * memory, how busy the GPU is seen to be, free streams. Where nothing has started every gate is
 * open: a lease that is larger than a limit runs alone.
 *
 * A lease starts on the preferred GPU if it can at once, else on the least loaded one that lets it;
 * else it waits in the queue of the least loaded. The first of a queue keeps its GPU from all
 * behind it until it fits, so that a large one is not passed by small ones for ever. First is who
 * has waited for age_ns, by arrival; then who is urgent (deadline - now - estimate < urgent_ns);
 * then by priority, then by arrival. A GPU with an empty queue takes from the others' the first
 * that fits. Requests (requests.h) queue by time and run one by one: a different question.
 *
 * Not thread-safe. Times are nanoseconds of any monotonic clock. */
#ifndef CEDE_LIBCEDE_PURE_LEASES_H
#define CEDE_LIBCEDE_PURE_LEASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/terms.h"

#define LEASE_CAPACITY_MAX 65536U
#define LEASE_WHOLE        1000000U /* occupancy in millionths of the GPU's warps */

struct lease_params {
    uint32_t devices, capacity;      /* capacity: leases started and waiting, all together */
    uint32_t max_concurrent_streams; /* started on one GPU */
    uint32_t streams;                /* that one GPU has for them */
    uint32_t max_total_occupancy;    /* sum of those started, in millionths */
    uint32_t target_utilization;     /* percent; a GPU seen busier starts nothing beside others */
    double memory_reserve_fraction;  /* of a GPU's memory, for whoever has no lease */
    uint64_t stream_timeout_ns;      /* the first of a queue that lacks but a stream gives up */
    uint64_t urgent_ns;
    uint64_t age_ns;
    /* A lease's time by the best ones of its key. Above it on average over a round (as many leases
     * as the limit), the GPU's limit of streams is cut by a quarter, at least one; below it, and if
     * the limit was reached, one more. Additive increase probes what the GPU bears at the cost of
     * one lease a round, multiplicative decrease leaves an overload in a few rounds, and together
     * they let users of one GPU converge (Chiu and Jain, 1989). 0: the limit is fixed. Only where
     * leases of one key are alike. */
    double max_slowdown;
};
void cede_leases_params_default(struct lease_params *p);

struct lease_ask {
    uint64_t key;          /* kernel and shape: for estimates; 0: not known */
    uint64_t memory_bytes; /* that it will take beside what is taken */
    uint64_t deadline_ns;  /* TIME_NEVER: none */
    uint64_t until_ns;     /* waits so long; not later than now: not at all */
    uint32_t occupancy;    /* millionths */
    uint32_t preferred;    /* device; SLOT_NONE: any */
    int32_t priority;      /* higher is first */
    bool only;             /* on the preferred one or nowhere */
};

/* What a lease waits for. */
enum lease_gate {
    GATE_OPEN,
    GATE_QUEUE, /* those before it */
    GATE_COUNT,
    GATE_OCCUPANCY,
    GATE_MEMORY,
    GATE_UTILIZATION,
    GATE_STREAM,
};

struct lease_event {
    uint64_t id;
    uint32_t device;      /* of the start */
    enum lease_gate gate; /* GATE_OPEN: started; else timed out, because of this */
    bool urgent;
};

struct leases;

/* 0, -EINVAL (something out of range) or -ENOMEM. */
int cede_leases_new(const struct lease_params *p, struct leases **out);
void cede_leases_free(struct leases *l);

/* 0: started. -EINPROGRESS: waits. Nothing was kept: -EAGAIN (may not wait; out->gate is why),
 * -EINVAL, -ENOSPC (no room for more). out->id is never that of an earlier lease. */
int cede_leases_ask(struct leases *l, const struct lease_ask *a, uint64_t now_ns,
                    struct lease_event *out);
/* Ends a started lease. -ENOENT: it is none, or has ended before. */
int cede_leases_release(struct leases *l, uint64_t id, uint64_t now_ns);
/* Ends one that waits. -ENOENT: it does not. */
int cede_leases_cancel(struct leases *l, uint64_t id);

/* Next thing that happened by now: a waiting lease started, or timed out. To be called until false
 * after each call above and below, and at cede_leases_next_ns(). Who may start at the very moment
 * that it times out starts. */
bool cede_leases_step(struct leases *l, uint64_t now_ns, struct lease_event *out);
/* When something may happen without a call. TIME_NEVER: never. */
uint64_t cede_leases_next_ns(const struct leases *l);

/* How busy a GPU is seen to be; above 100: not known, which opens the gate. */
void cede_leases_set_utilization(struct leases *l, uint32_t device, uint32_t percent);
/* 0: not known, which opens the gate. */
void cede_leases_set_memory(struct leases *l, uint32_t device, uint64_t total_bytes);

/* Where in 0..capacity-1 the caller may keep what belongs to a lease: its own as long as it is. */
static inline uint32_t lease_slot(uint64_t id)
{
    return (uint32_t)(id & (LEASE_CAPACITY_MAX - 1));
}

struct lease_view {
    uint32_t active, waiting, limit;
    uint32_t occupancy; /* of those started */
    uint64_t memory_bytes;
    uint64_t started, stolen, timed_out; /* since cede_leases_new() */
    uint64_t busy_ns;                    /* time with something started */
};
/* device must be one. */
struct lease_view cede_leases_view(const struct leases *l, uint32_t device, uint64_t now_ns);

#endif
