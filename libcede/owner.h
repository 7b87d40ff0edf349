/* Inside libcede: leases on behalf of an owner, which is a scope. Leases know of their owner what
 * stands here, so that scopes are built on leases and not the other way round. */
#ifndef CEDE_LIBCEDE_OWNER_H
#define CEDE_LIBCEDE_OWNER_H

#include <stdbool.h>

#include "cede/lease.h"

struct lease_owner {
    uint64_t deadline_ns; /* TIME_NEVER: none */
    /* Why the owner's tasks are to end, -ETIMEDOUT or -ECANCELED; 0: they are not. Called with a
     * pool's lock held; takes none. */
    int (*stopped)(const struct lease_owner *o);
    bool reports; /* it reports requests itself, so leases for them are not */
};

/* cede_acquire() for an owner, or NULL. What stopped() returns as soon as it is not 0. */
int cede_lease_acquire(struct cede_pool *p, const struct lease_owner *owner, int device,
                       const char *kernel, const struct cede_shape *shape, cede_timeout timeout_us,
                       struct cede_lease *out);

/* 0: cede_acquire() may give such a lease, now or later. Else its error. Takes the pool's lock. */
int cede_lease_check(struct cede_pool *p, int device, const char *kernel,
                     const struct cede_shape *shape);

/* Waiting threads that have an owner ask whether it is stopped. */
void cede_lease_wake_owners(void);

/* Releases what an owner still has of any pool. */
void cede_lease_release_all(const struct lease_owner *owner);

#endif
