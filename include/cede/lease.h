/* libcede: leases. A lease is the right to run a kernel, or a few that belong together, on a GPU
 * now, with a stream for it. Leases keep a program's own threads from putting more on its GPUs than
 * the GPUs can run well. See cede_acquire(3) and docs/leases.md.
 *
 * A pool works without a GPU too: streams are NULL then, and everything else is the same. libcuda
 * and libnvidia-ml are opened at run time if they are installed. A pool has no thread, and of other
 * pools and programs it knows only how busy they keep the GPU.
 *
 * Thread-safe: all functions may be called from several threads at once; none may be called from a
 * signal handler. After fork() all pools are closed in the child. Functions that return int return
 * 0 or a negative errno, and none changes errno. Times are microseconds. */
#ifndef CEDE_LEASE_H
#define CEDE_LEASE_H

#include <stddef.h>
#include <stdint.h>

#include "cede/cede.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cede_pool;

#define CEDE_POOLS_MAX   64  /* open at a time, per process */
#define CEDE_KERNELS_MAX 256 /* names, per pool */

enum cede_pool_flags {
    CEDE_POOL_NO_GPU = 1,     /* as if libcuda were not installed */
    CEDE_POOL_REPORT_ALL = 2, /* leases without a deadline are reported to `cede`, too */
};

/* Settings, which cede_pool_defaults() fills in. The comments give the defaults; cede_acquire(3)
 * explains each limit. */
struct cede_pool_config {
    size_t size; /* of this struct; set by cede_pool_defaults() */
    unsigned flags;
    unsigned devices;                    /* 0: all visible GPUs, or 1 without a GPU. Without a GPU a
                                            pool has as many as this says, at most 4096 */
    unsigned capacity;                   /* 1024 leases, held and waiting; at most 65536 */
    unsigned max_concurrent_streams;     /* 16 leases per GPU; at most 65536 */
    unsigned streams;                    /* per GPU; 0: max_concurrent_streams; at most 65536 */
    unsigned target_utilization_percent; /* 100: not checked */
    uint64_t utilization_polling_us;     /* 200000 */
    uint64_t age_us;                     /* 1000000: a lease that has waited this long is first */
    uint64_t urgent_us;                  /* 1000: a lease with less slack is urgent */
    cede_timeout block_timeout_us;       /* 5000000: CEDE_TIMEOUT_DEFAULT; not that itself */
    cede_timeout stream_timeout_us;      /* 1000000: the longest wait of a lease that lacks a stream
                                            alone, also with CEDE_TIMEOUT_FOREVER */
    double max_total_occupancy;     /* 2 GPUs full of work: one runs, one is queued; at most 64 */
    double unknown_occupancy;       /* 0.25 of a GPU: of a lease whose kernel is not known, until
                                       known kernels give a mean; 0: always 0 */
    double memory_reserve_fraction; /* 0.1 of a GPU's memory */
    double max_slowdown;            /* 0: max_concurrent_streams does not adapt; else 1 to 1e6 */
    unsigned displace;              /* 2 urgent leases per GPU start beyond the limits; 0: none; at
                                       most 65536 */
    unsigned reserved;
    cede_handle *client; /* NULL; else a handle that outlives the pool, on which leases with a
                          deadline are reported as requests */
};

/* c must not be NULL. */
void cede_pool_defaults(struct cede_pool_config *c);

/* config: NULL for the defaults. On failure *out is NULL. -EINVAL: something out of range. -EMFILE:
 * CEDE_POOLS_MAX pools are open. -ENODEV: there are GPUs, but fewer than config->devices. -ENOMEM.
 */
int cede_pool_open(const struct cede_pool_config *config, struct cede_pool **out);

/* Closes the pool: waiting calls return -ESHUTDOWN, and are waited for. Held leases end, and their
 * streams are destroyed, but work on them runs to its end. NULL is allowed. -EINVAL: the pool is
 * not open. */
int cede_pool_close(struct cede_pool *p);

/* Registers a kernel, whose occupancy the driver computes once per block size and dynamic shared
 * memory. function: a CUfunction whose context is current in the calling thread. For a kernel that
 * runs on several GPUs, the function of any of them. -EINVAL: function or name is NULL, or the name
 * is empty or longer than 63 bytes. -ENOSPC: CEDE_KERNELS_MAX. -ESHUTDOWN: the pool is not open. */
int cede_pool_kernel(struct cede_pool *p, const char *name, void *function);
/* Registers a kernel by its occupancy: the share of a GPU's warps, 0 to 1, that one lease takes,
 * whatever its shape. Errors as above; -EINVAL also for other shares. */
int cede_pool_occupancy(struct cede_pool *p, const char *name, double occupancy);

/* The work that a lease is for. All fields may be 0, and a NULL pointer stands for such a shape. */
struct cede_shape {
    unsigned blocks;       /* in the grid; 0: enough to fill a GPU */
    unsigned threads;      /* per block; needed for kernels of cede_pool_kernel() */
    unsigned shared_bytes; /* dynamic, per block */
    int priority; /* the highest starts first; 1 to 5 also give a stream of that priority */
    uint64_t memory_bytes; /* GPU memory that it takes in addition */
    uint64_t due_us; /* from now; 0: no deadline. A lease is urgent, and may displace others, while
                        its slack (the time left minus the time that such leases took) is below
                        urgent_us */
};

/* What keeps more blocks of a kernel off a multiprocessor. */
enum cede_limit {
    CEDE_LIMIT_UNKNOWN,
    CEDE_LIMIT_THREADS, /* its warps */
    CEDE_LIMIT_REGISTERS,
    CEDE_LIMIT_SHARED, /* its shared memory */
    CEDE_LIMIT_BLOCKS, /* the number of blocks that it runs at most */
};

/* What a kernel takes, as leases count it. Of a kernel of cede_pool_occupancy() only `occupancy` is
 * known, and all else is 0. */
struct cede_profile {
    double occupancy;       /* of the lease: the share of a GPU's warps, registers or shared memory,
                               whichever is largest */
    unsigned registers;     /* per thread */
    unsigned shared_bytes;  /* per block, static and dynamic */
    unsigned blocks_per_sm; /* at a time, on one multiprocessor */
    unsigned sms;           /* multiprocessors of the GPU */
    enum cede_limit limit;  /* of blocks_per_sm */
    unsigned reserved;
};

/* Reads what a lease for this kernel and shape takes. shape: as cede_acquire() takes it. size:
 * sizeof(*out). -EINVAL: name or out is NULL, this library does not know the size, or a shape
 * without threads. -EIO: the driver computed no occupancy. -ENODEV: the pool has no GPU to ask.
 * -ENOENT: no such kernel is registered. -ESHUTDOWN: the pool is not open. */
int cede_pool_profile(struct cede_pool *p, const char *name, const struct cede_shape *shape,
                      struct cede_profile *out, size_t size);

struct cede_lease {
    void *stream; /* CUstream in the device's primary context; NULL without a GPU */
    int device;
    int urgent; /* 1: it was urgent when it started */
    uint64_t opaque[2];
};

#define CEDE_ANY_DEVICE (-1)
/* d, from 0, and no other, so -1 is refused; plain d is a preference */
#define CEDE_ONLY_DEVICE(d) ((d) + 0x10000)

/* Waits for at most timeout_us for room on a GPU. kernel: a registered name, or NULL for one that
 * is not known. The caller then makes the device's primary context current, puts its work into
 * out->stream, waits for it, and releases the lease. *out is written on success only. -EAGAIN: it
 * would have to wait, and timeout_us is 0. -EINVAL: out is NULL, no such device or time-out, or a
 * shape without threads. -ECANCELED: the scope of the calling task has ended (cede/scope.h).
 * Leases of a task end with its scope, too. -EIO: the driver made no stream or computed no
 * occupancy. -ENOENT: no such kernel is registered. -ENOSPC: `capacity` is reached. -ESHUTDOWN: the
 * pool is not open, or was closed meanwhile. -ETIMEDOUT. */
int cede_acquire(struct cede_pool *p, int device, const char *kernel,
                 const struct cede_shape *shape, cede_timeout timeout_us, struct cede_lease *out);

/* Ends a lease, from any thread. Its work has to have ended, as the stream and the room go to the
 * next lease. -EINVAL: it is NULL, or never was acquired. -ESTALE: it was released before, or its
 * pool is closed. */
int cede_release(const struct cede_lease *lease);

/* 1: an urgent lease displaces this one, which is not urgent, on its GPU. A long computation then
 * holds its next kernels back until the answer is 0 (cede/slice.h does so between slices). 0: no
 * lease does so, or this one has ended. Never waits. */
int cede_lease_wanted(const struct cede_lease *lease);

/* What kept leases from starting at once. */
enum cede_lease_wait {
    CEDE_WAIT_NONE,        /* nothing: they did not wait */
    CEDE_WAIT_CLASS,       /* leases before them: of a higher priority, urgent, or older */
    CEDE_WAIT_LIMIT,       /* max_concurrent_streams, as adapted */
    CEDE_WAIT_OCCUPANCY,   /* max_total_occupancy */
    CEDE_WAIT_MEMORY,      /* memory, less the reserve */
    CEDE_WAIT_UTILIZATION, /* target_utilization_percent */
    CEDE_WAIT_STREAM,      /* streams */
    CEDE_WAITS
};

/* Leases that started, timed out or were cancelled, and how long they waited for it. */
struct cede_lease_waits {
    uint64_t leases, total_us, max_us;
};

struct cede_pool_statistics {
    unsigned devices;            /* of the pool */
    int has_gpu;                 /* 0: streams are NULL */
    int utilization_percent;     /* -1: not known */
    unsigned active, waiting;    /* leases on this device now */
    unsigned limit;              /* of concurrent streams, as adapted */
    double occupancy;            /* of the active leases */
    uint64_t started, timed_out; /* leases since the pool was opened */
    uint64_t stolen;             /* of those started: moved here from another device's queue */
    uint64_t displaced;          /* of those started: urgent ones beyond the limits */
    uint64_t busy_us;            /* time with an active lease */
    struct cede_lease_waits waits[CEDE_WAITS]; /* by enum cede_lease_wait */
    uint64_t reserved[4];
    char error[128]; /* the driver's latest error; "": none */
};

/* Figures of one device. size: sizeof(*out). -EINVAL: no such device, or this library does not know
 * the size. -ESHUTDOWN: the pool is not open. */
int cede_pool_get_statistics(struct cede_pool *p, int device, struct cede_pool_statistics *out,
                             size_t size);

#ifdef __cplusplus
}
#endif

#endif
