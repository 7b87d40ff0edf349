/* Inside libcede: a pool, shared by
 *   pool.c   opening, closing, kernels, statistics
 *   lease.c  acquiring and releasing */
#ifndef CEDE_LIBCEDE_POOL_H
#define CEDE_LIBCEDE_POOL_H

#include "cede/lease.h"
#include "libcede/gpus.h"
#include "libcede/kernels.h"
#include "libcede/owner.h"
#include "libcede/pure/leases.h"
#include "libcede/slot.h"

#define POOL_LEVELS 6 /* of stream priority: NVIDIA's drivers have 6 */

struct lease_waiter {
    pthread_cond_t cond;
    const struct lease_owner *owner; /* or NULL */
    struct lease_event event;
    uint64_t look_ns; /* when it becomes urgent, or aged */
    bool memory;      /* it needs some */
    bool done;
};

/* What belongs to a lease, in the same slot as the pure part's. */
struct lease_data {
    uint64_t id; /* of a lease that has started; 0: none */
    struct lease_waiter *waiter;
    const struct lease_owner *owner;
    void *stream;
    uint32_t device;
    uint32_t level;
    bool reported; /* as a request, to config.client */
    struct cede_request request;
};

struct pool_gpu {
    int utilization;            /* percent; -1: not known */
    uint32_t idle[POOL_LEVELS]; /* streams that no lease has */
};

struct cede_pool {
    struct slot;
    struct cede_pool_config config;
    struct leases *leases;    /* from here on all is 0 while the pool is not open */
    struct cede_gpus *gpus;   /* the driver; NULL: none */
    struct pool_gpu *devices; /* config.devices */
    struct lease_data *data;
    void **idle; /* pool_idle() */
    struct kernels *kernels;
    unsigned started; /* leases that run */
    uint64_t poll_ns; /* when utilization is looked at next; FAR_NS: never */
    bool polling;
    uint64_t memory_ns;     /* when free memory was read last */
    bool reading;           /* it */
    struct gpu_error error; /* the latest */
};

/* Leases that are active on a device at most: those that displace are beyond the limit. */
static inline size_t pool_streams(const struct cede_pool_config *c)
{
    return (size_t)c->max_concurrent_streams + c->displace;
}

/* The idle streams of a device at a level. */
static inline void **pool_idle(const struct cede_pool *p, uint32_t device, uint32_t level)
{
    return p->idle + ((size_t)device * POOL_LEVELS + level) * pool_streams(&p->config);
}

extern struct cede_pool cede_pool_table[CEDE_POOLS_MAX];

/* 0: the pool is open, and its lock is held. -EINVAL: it is no pool. -ESHUTDOWN: it is closed. */
int cede_pool_enter(struct cede_pool *p);
/* Returns if the pool is not open; else its lock is held until the block ends. */
#define POOL_ENTER(p)                                                                              \
    int r = cede_pool_enter(p);                                                                    \
    if (r)                                                                                         \
        return r;                                                                                  \
    HELD(&(p)->lock)

/* Failures in words; see error.h. */
int cede_pool_closed(void);
int cede_pool_no_device(const struct cede_pool *p, int device);

#endif
