/* libcede: a GPU's memory. Threads wait for room in order of arrival instead of failing, room is
 * reserved before it is needed, and pressure is reported. Memory of other processes counts. See
 * cede_memory_open(3) and docs/memory.md.
 *
 * Room is the GPU's free memory, minus the reserve, minus reservations not yet allocated. libcuda
 * and libnvidia-ml are opened at run time if they are installed. A handle has no thread and needs
 * no daemon. Reservations of another process count only once it has allocated.
 *
 * Thread-safe: all functions may be called from several threads at once; none may be called from a
 * signal handler. After fork() all handles are closed in the child. Functions that return int
 * return 0 or a negative errno unless they say otherwise, and none changes errno. Times are
 * microseconds. */
#ifndef CEDE_MEMORY_H
#define CEDE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "cede/cede.h"
#include "cede/lease.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cede_memory;

#define CEDE_MEMORIES_MAX 64 /* open at a time, per process */
#define CEDE_RANGES_MAX   64 /* per cede_memory_acquire() */

enum cede_memory_flags {
    CEDE_MEMORY_NO_GPU = 1, /* as if libcuda were not installed: total_bytes are counted */
};

enum cede_pressure {
    CEDE_PRESSURE_LOW,
    CEDE_PRESSURE_HIGH,
    CEDE_PRESSURE_CRITICAL,
};

/* Settings, which cede_memory_defaults() fills in. The comments give the defaults. */
struct cede_memory_config {
    size_t size; /* of this struct; set by cede_memory_defaults() */
    unsigned flags;
    int device;                    /* 0: libcuda's number of the GPU */
    unsigned capacity;             /* 1024 reservations and waits; at most 65536 */
    cede_timeout block_timeout_us; /* 5000000: CEDE_TIMEOUT_DEFAULT; not that itself */
    uint64_t polling_us;           /* 20000: how old the driver's figure of free memory may be */
    uint64_t total_bytes;    /* 0: the GPU's memory; else the most that this handle gives out */
    uint64_t reserve_bytes;  /* 0: reserve_fraction */
    double reserve_fraction; /* 0.1 of the memory stays free */
    double high, critical;   /* 0.75, 0.9 of the memory not available: thresholds of pressure */
    /* NULL, or called when the pressure has changed, by the thread that noticed it, without a lock.
     * It may free memory, but not close the handle; cede_memory_close() waits for it. */
    void (*on_pressure)(void *arg, enum cede_pressure now);
    void *arg;
    /* NULL, or a handle that outlives this one, for latency jobs: while a thread waits, the daemon
     * is asked to make room by swapping batch jobs out. */
    cede_handle *client;
};

/* c must not be NULL. */
void cede_memory_defaults(struct cede_memory_config *c);

/* config: NULL for the defaults. On failure *out is NULL. -EINVAL: something out of range.
 * -ENODEV: no such GPU, or no GPU and no total_bytes. -EIO: the driver failed. -EMFILE:
 * CEDE_MEMORIES_MAX are open. -ENOMEM. */
int cede_memory_open(const struct cede_memory_config *config, struct cede_memory **out);

/* Closes the handle: waiting calls return -ESHUTDOWN, and are waited for. Allocated memory is
 * freed, and reservations end. NULL is allowed. -EINVAL: it is not open. */
int cede_memory_close(struct cede_memory *m);

/* 1: an allocation of this size would not wait now. 0: it would. -ESHUTDOWN, -EINVAL. */
int cede_memory_can_allocate(struct cede_memory *m, uint64_t bytes);

/* Room that is kept without being allocated, for the program's allocator or for later. */
struct cede_reservation {
    uint64_t bytes;
    uint64_t opaque[2];
};

/* Waits for room for at most timeout_us, in order of arrival. *out is written on success only.
 * -ENOMEM: there was no room in time, or there never can be, as the text says; cede_memory_text()
 * says how much there is and which processes have it. -ECANCELED: the scope of the calling task has
 * ended (cede/scope.h). -EINVAL: 0 bytes, no such time-out, or out is NULL. -ENOSPC: `capacity` is
 * reached. -ESHUTDOWN: not open, or closed meanwhile. */
int cede_memory_reserve(struct cede_memory *m, uint64_t bytes, cede_timeout timeout_us,
                        struct cede_reservation *out);

/* Ends a reservation; memory allocated from it stays allocated. A program with a separate allocator
 * calls this when that has taken the memory, or no longer needs it. -EINVAL: NULL, or never
 * reserved. -ESTALE: released before, or the handle is closed. */
int cede_memory_release(const struct cede_reservation *r);

/* Allocates memory in the GPU's primary context. from: a reservation of this handle, whose room is
 * used first; more room is taken only if the call need not wait for it. NULL: waits as
 * cede_memory_reserve(). Errors of that call, and -EIO: the driver failed. -ENODEV: the handle has
 * no GPU. -ESTALE: the reservation was released. */
int cede_memory_allocate(struct cede_memory *m, const struct cede_reservation *from, uint64_t bytes,
                         cede_timeout timeout_us, uint64_t *address);

/* Frees memory. Work that uses it has to have ended, or be in a stream that the driver waits for:
 * see cuMemFree(). -ENOENT: not allocated here, or freed before. -EIO, -EINVAL, -ESHUTDOWN. */
int cede_memory_free(struct cede_memory *m, uint64_t address);

/* The pressure now, enum cede_pressure. Asks the driver if its figure is older than polling_us, and
 * calls on_pressure() after a change. -EINVAL, -ESHUTDOWN. */
int cede_memory_pressure(struct cede_memory *m);

/* ---- leases with memory ---- */

enum cede_range_advice {
    CEDE_RANGE_READ_MOSTLY = 1,
    CEDE_RANGE_PREFER_DEVICE = 2,
    CEDE_RANGE_ACCESSED_BY_DEVICE = 4,
};

/* Managed memory (cuMemAllocManaged()) that a lease's kernel will use. */
struct cede_range {
    uint64_t address;
    uint64_t bytes;
    unsigned advice; /* of enum cede_range_advice */
};

/* A lease of the pool on this handle's GPU, with memory: waits for room for shape->memory_bytes (0:
 * as much as earlier leases of this kernel and shape allocated from their reservations), then as
 * cede_acquire(), for timeout_us in all. The ranges, at most CEDE_RANGES_MAX, are advised and
 * prefetched meanwhile, and are on the GPU when the call returns; a range that does not fit, or
 * that the device or driver cannot move, stays where it is, and cede_memory_get_statistics() says
 * why. The caller ends the lease by cede_release(), then the reservation by cede_memory_release().
 * Errors of both waits, of which those that no waiting mends come before the first; -EINVAL also
 * for too many ranges. */
int cede_memory_acquire(struct cede_memory *m, struct cede_pool *p, const char *kernel,
                        const struct cede_shape *shape, const struct cede_range *ranges,
                        unsigned nranges, cede_timeout timeout_us, struct cede_lease *lease,
                        struct cede_reservation *room);

/* The bytes that leases of this kernel and shape are expected to allocate; 0: not known. */
uint64_t cede_memory_need(struct cede_memory *m, const char *kernel,
                          const struct cede_shape *shape);

/* ---- figures ---- */

struct cede_memory_user {
    int pid;
    int ours;       /* 1: this process */
    uint64_t bytes; /* UINT64_MAX: the driver does not say */
    char name[16];  /* "": not known */
};

/* Writes up to n of the processes that have memory on the GPU, this one first, then by size.
 * Returns how many there are. -EINVAL, -ESHUTDOWN; -ENOTSUP: libnvidia-ml does not say. */
int cede_memory_users(struct cede_memory *m, struct cede_memory_user *users, unsigned n);

/* How much there is and which processes have it, as a text of at most size bytes. -EINVAL,
 * -ESHUTDOWN. */
int cede_memory_text(struct cede_memory *m, char *text, size_t size);

struct cede_memory_statistics {
    int has_gpu;
    int pressure;               /* enum cede_pressure */
    unsigned waiting;           /* threads */
    unsigned reservations;      /* held */
    unsigned allocations;       /* not freed */
    unsigned reserved0;         /* 0 */
    uint64_t total_bytes;       /* of the GPU, or that the handle gives out */
    uint64_t free_bytes;        /* as the driver said last */
    uint64_t reserve_bytes;     /* stay free */
    uint64_t promised_bytes;    /* reserved and not allocated */
    uint64_t allocated_bytes;   /* by this handle */
    uint64_t available_bytes;   /* room */
    uint64_t granted;           /* reservations and allocations since it was opened */
    uint64_t timed_out, waited; /* that were not granted; that had to wait, granted or not */
    uint64_t longest_wait_us;
    uint64_t daemon_asked; /* requests to make room that a daemon took */
    uint64_t prefetched_ranges, prefetched_bytes, skipped_ranges;
    char skipped[128]; /* why the latest range was not advised or prefetched; "": none */
    char error[128];   /* the driver's or the daemon's latest error; "": none */
};

/* size: sizeof(*out). -EINVAL: this library does not know the size. -ESHUTDOWN. */
int cede_memory_get_statistics(struct cede_memory *m, struct cede_memory_statistics *out,
                               size_t size);

#ifdef __cplusplus
}
#endif

#endif
