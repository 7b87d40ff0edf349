/* Inside libcede: on whose behalf a thread waits, and has leases: a scope's, or a queue's. Leases
 * know of their owner what stands here, so that scopes are built on leases and not the other way
 * round. */
#ifndef CEDE_LIBCEDE_OWNER_H
#define CEDE_LIBCEDE_OWNER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "cede/lease.h"
#include "cede/scope.h"

struct lease_owner {
    uint64_t deadline_ns; /* TIME_NEVER: none */
    /* Why a thread that waits for the owner is to stop, -ETIMEDOUT or -ECANCELED; 0: it is not to.
     * Called with locks held; takes none. */
    int (*stopped)(const struct lease_owner *o);
    bool reports;    /* it reports requests itself, so leases for them are not */
    atomic_bool has; /* it has had a lease */
};

/* The owners whose tasks a thread runs, innermost first. In error.c. */
struct owner_frame {
    struct lease_owner *owner;
    const struct owner_frame *outer;
};
extern _Thread_local const struct owner_frame *cede_owner_frames
    __attribute__((tls_model("initial-exec")));

/* The innermost; NULL: the calling thread runs no task of a scope. */
static inline struct lease_owner *cede_owner_here(void)
{
    return cede_owner_frames ? cede_owner_frames->owner : NULL;
}

/* NULL: never. */
static inline int owner_stopped(const struct lease_owner *o)
{
    return o ? o->stopped(o) : 0;
}

/* The same of a scope, which begins with its owner. */
static inline int cede_scope_stopped(const struct cede_scope *s)
{
    return owner_stopped((const struct lease_owner *)s);
}
#define STOPPED_TEXT(why)                                                                          \
    ((why) == -ETIMEDOUT ? "the scope's time-out has passed" : "the scope is cancelled")

/* What a call that waited for the owner returns in place of r. Where r is -ETIMEDOUT or -ECANCELED
 * and a scope has ended: -ECANCELED, with a text, so that -ETIMEDOUT means the call's own time-out
 * alone. */
int cede_owner_fail(const struct lease_owner *o, int r);

/* cede_acquire() for an owner, or NULL. What stopped() returns as soon as it is not 0. */
int cede_lease_acquire(struct cede_pool *p, struct lease_owner *owner, int device,
                       const char *kernel, const struct cede_shape *shape, cede_timeout timeout_us,
                       struct cede_lease *out);

/* 0: cede_acquire() may give such a lease, now or later. Else its error. Takes the pool's lock. */
int cede_lease_check(struct cede_pool *p, int device, const char *kernel,
                     const struct cede_shape *shape);

/* Their threads that wait for an owner ask whether it is stopped. They take locks. */
void cede_lease_wake_owners(void);
void cede_memory_wake_owners(void);
/* closed: a pool or a memory that is; its queues are at their end. NULL: none. */
void cede_queue_wake_owners(const void *closed);
/* The same for pools and memories, which know no queue; in error.c. NULL: there was none. */
extern void (*_Atomic cede_owner_closed)(const void *closed);

/* Releases what an owner still has of any pool. */
void cede_lease_release_all(const struct lease_owner *owner);

#endif
