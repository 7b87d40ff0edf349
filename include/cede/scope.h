/* libcede: scopes, or tasks that begin and end together. A scope runs tasks on a few threads; the
 * first that fails cancels the rest; when it is joined, every task has ended and every lease that
 * it took is released. See cede_scope_open(3).
 *
 * Cancelling is cooperative: a task that has begun looks at cede_scope_cancelled() and returns; one
 * that has not never begins; one that waits in cede_scope_acquire() comes back with -ECANCELED.
 *
 * All functions may be called from several threads at once, except cede_scope_close(), and none
 * from a signal handler or with a scope of a forked parent. They return 0 or a negative errno. */
#ifndef CEDE_SCOPE_H
#define CEDE_SCOPE_H

#include "cede/lease.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cede_scope;

/* 0, or a negative errno: the task has failed. */
typedef int (*cede_task)(struct cede_scope *s, void *arg);

#define CEDE_SCOPE_THREADS_MAX 1024

/* parent: the scope that this one lies in, or NULL; it is cancelled with it, and its deadline is no
 * later. It is closed before its parent is joined: in the task that opened it, as a rule.
 * threads: how many tasks may run at once beside the one that joins, at most
 * CEDE_SCOPE_THREADS_MAX; threads are started as tasks come. 0: tasks run in the join alone.
 * timeout_us: deadline of the whole from now; CEDE_NO_TIMEOUT for none. -EINVAL, -ENOMEM. */
int cede_scope_open(struct cede_scope **out, struct cede_scope *parent, unsigned threads,
                    int64_t timeout_us);

/* Adds a task; tasks may add tasks. They begin in this order. -ECANCELED: the scope is cancelled.
 * -ETIMEDOUT: its deadline is past. -EBUSY: it was joined. -ENOMEM. Nothing was added then. */
int cede_scope_fork(struct cede_scope *s, cede_task task, void *arg);

/* 1: some task failed, the deadline is past, or somebody cancelled this scope or one around it. */
int cede_scope_cancelled(const struct cede_scope *s);

/* No more tasks begin. */
void cede_scope_cancel(struct cede_scope *s);

/* Runs tasks until none is left, waits for those that other threads run, and releases the leases
 * that they left. It returns when the tasks do: one that does not look at cede_scope_cancelled()
 * keeps it. 0: all succeeded. Else what the first failure was, -ETIMEDOUT: deadline, -ECANCELED.
 * Again: the same. -EDEADLK: called by a task of this scope. */
int cede_scope_join(struct cede_scope *s);

/* Cancels it unless it was joined, joins it and frees it. What cede_scope_join() returns;
 * with -EDEADLK it stays. NULL: 0. */
int cede_scope_close(struct cede_scope *s);

/* cede_acquire() for the tasks of a scope: waits no longer than the scope's deadline (-ETIMEDOUT);
 * -ECANCELED as soon as that is cancelled. What is not released when the scope is joined is
 * released then. */
int cede_scope_acquire(struct cede_scope *s, struct cede_pool *p, int device, const char *kernel,
                       const struct cede_shape *shape, int64_t timeout_us, struct cede_lease *out);

#ifdef __cplusplus
}
#endif

#endif
