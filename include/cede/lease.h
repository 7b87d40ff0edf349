/* libcede: leases, the right to run one kernel (or a few) on a GPU now, with a stream for it. They
 * keep a program's own threads from putting more on its GPUs than those bear. See cede_acquire(3).
 *
 * A pool works without a GPU too: streams are NULL then, and all else is the same. libcuda and
 * libnvidia-ml are opened at run time if they are there. A pool has no thread of its own, and knows
 * nothing of other pools and programs, except by the GPU's utilization.
 *
 * All functions may be called from several threads at once; none from a signal handler. They return
 * 0 or a negative errno and leave errno alone. In a forked child every pool is closed. */
#ifndef CEDE_LEASE_H
#define CEDE_LEASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cede_pool;

#define CEDE_POOLS_MAX   64
#define CEDE_KERNELS_MAX 256 /* names that a pool knows */

enum cede_pool_flags {
    CEDE_POOL_NO_GPU = 1, /* as if there were no libcuda */
};

/* Fill in with cede_pool_defaults(), then change. cede_acquire(3) has the meaning of each limit. */
struct cede_pool_config {
    size_t size; /* of this struct; leave it */
    unsigned flags;
    unsigned devices;                /* 0: all visible ones; without a GPU 1 */
    unsigned capacity;               /* 1024 leases held or waited for; at most 65536 */
    unsigned max_concurrent_streams; /* 16 on each GPU */
    unsigned streams;                /* 0: as many as max_concurrent_streams */
    unsigned target_utilization;     /* 80 percent; 100: never looked at */
    unsigned utilization_polling_ms; /* 200 */
    unsigned block_timeout_ms;       /* 5000: CEDE_DEFAULT_TIMEOUT */
    unsigned stream_timeout_ms;      /* 1000 */
    unsigned age_ms;                 /* 1000: who has waited so long goes before all others */
    double max_total_occupancy;      /* 0.9 */
    double memory_reserve_fraction;  /* 0.1 */
    double max_slowdown;             /* 0: max_concurrent_streams is not adapted */
    uint64_t urgent_threshold_ns;    /* 1000000 */
};

void cede_pool_defaults(struct cede_pool_config *c);

/* config: NULL for the defaults. -EINVAL: something out of range. -ENOMEM. -EMFILE: CEDE_POOLS_MAX
 * are open. -ENODEV: fewer GPUs than `devices`. */
int cede_pool_open(const struct cede_pool_config *config, struct cede_pool **out);

/* Who waits gets -ESHUTDOWN; this waits for them to leave. Leases still held end with it, and their
 * streams are destroyed: work on them runs to its end. -EINVAL: it is not open. */
int cede_pool_close(struct cede_pool *p);

/* How a kernel fills a GPU. function: a CUfunction, by whose context's thread this is called; its
 * occupancy is asked of the driver once for each block size and dynamic shared memory. Of a kernel
 * that runs on several GPUs any one's function. -EINVAL, -ENOSPC, -ESHUTDOWN (not open). */
int cede_pool_kernel(struct cede_pool *p, const char *name, void *function);
/* The same in a number: the share of a GPU's warps that one lease takes, 0 to 1, whatever its
 * shape. */
int cede_pool_occupancy(struct cede_pool *p, const char *name, double occupancy);

/* What a lease is for; all of it may be 0, and the whole NULL. */
struct cede_shape {
    unsigned blocks;       /* of the grid; 0: enough to fill a GPU */
    unsigned threads;      /* a block; needed with cede_pool_kernel() */
    unsigned shared_bytes; /* dynamic, a block */
    int priority;          /* higher is first; 1 to 5 are streams of higher priority too */
    uint64_t memory_bytes; /* GPU memory that it takes beside what leases have taken */
    uint64_t due_us; /* from now; 0: never. Urgent, when little more than its usual time is left */
};

struct cede_lease {
    void *stream; /* CUstream of the device's primary context; NULL without a GPU */
    int device;
    int urgent;
    uint64_t opaque[2];
};

#define CEDE_ANY_DEVICE      (-1)
#define CEDE_ONLY_DEVICE(d)  ((d) | 0x10000) /* nowhere else; plain d: rather there */
#define CEDE_DEFAULT_TIMEOUT INT64_C(-1)     /* block_timeout_ms */
#define CEDE_NO_TIMEOUT      INT64_MAX

/* Waits for at most timeout_us for room on a GPU. kernel: a name that the pool was told, or NULL:
 * its occupancy counts nothing. The caller makes the device's context current, puts its work into
 * `stream`, waits for it and releases. *out is written on success alone.
 * -ETIMEDOUT. -EAGAIN: timeout_us is 0, and it would have to wait. -ENOENT: no such kernel.
 * -EINVAL: no such device, or a shape without threads. -ENOSPC: `capacity` is reached. -ESHUTDOWN:
 * not open, or closed meanwhile. -EIO: the driver did not make a stream or tell the occupancy:
 * cede_pool_get_statistics() has its words. */
int cede_acquire(struct cede_pool *p, int device, const char *kernel,
                 const struct cede_shape *shape, int64_t timeout_us, struct cede_lease *out);

/* The same with a timeout of 0. */
int cede_try_acquire(struct cede_pool *p, int device, const char *kernel,
                     const struct cede_shape *shape, struct cede_lease *out);

/* Ends a lease, from any thread. Its work has ended: the stream and the room go to the next.
 * -ESTALE: released before, by whomever, or its pool is closed. -EINVAL: never was one. */
int cede_release(const struct cede_lease *lease);

struct cede_pool_statistics {
    unsigned devices;            /* of the pool */
    int has_gpu;                 /* 0: streams are NULL */
    int utilization;             /* percent; -1: not known */
    unsigned active, waiting;    /* on this device now */
    unsigned limit;              /* of concurrent streams, as adapted */
    double occupancy;            /* of those active */
    uint64_t started, timed_out; /* since the pool was opened */
    uint64_t stolen;             /* of those started: they had waited for another device */
    uint64_t busy_us;            /* time with a lease out */
    char error[128];             /* the driver's last complaint; "" */
};

/* Of one device. size: sizeof(*out). -EINVAL: no such device, or no size that this library knows.
 */
int cede_pool_get_statistics(struct cede_pool *p, int device, struct cede_pool_statistics *out,
                             size_t size);

#ifdef __cplusplus
}
#endif

#endif
