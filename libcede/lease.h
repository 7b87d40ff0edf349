/* Inside libcede: what scopes ask of leases beyond cede/lease.h. */
#ifndef CEDE_LIBCEDE_LEASE_H
#define CEDE_LIBCEDE_LEASE_H

#include "cede/lease.h"
#include "cede/scope.h"

/* cede_acquire() for a scope, which may be NULL: what cede_scope_stopped() says once it
 * is stopped. */
int cede_lease_acquire(struct cede_pool *p, struct cede_scope *owner, int device,
                       const char *kernel, const struct cede_shape *shape, int64_t timeout_us,
                       struct cede_lease *out);

/* 0, -ETIMEDOUT or -ECANCELED: why no task of the scope is to go on. Takes no lock. */
int cede_scope_stopped(const struct cede_scope *s);
uint64_t cede_scope_deadline_ns(const struct cede_scope *s); /* UINT64_MAX: none */

/* Scopes' waiting threads look whether they are cancelled. */
void cede_lease_wake_scopes(void);

/* Releases what a scope still holds of any pool. */
void cede_lease_release_all(const struct cede_scope *owner);

#endif
