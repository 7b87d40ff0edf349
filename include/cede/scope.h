/* libcede: scopes, or tasks that begin and end together. A scope runs tasks on a few threads. The
 * first task that fails cancels the rest; when the scope has been joined, every task has ended and
 * every lease that tasks took is released. See cede_scope_open(3).
 *
 * Cancellation is cooperative: a running task checks cede_scope_cancelled() and returns; a task
 * that has not begun never begins. A task that waits for a lease, for memory or for a batch of a
 * queue gets -ECANCELED as soon as the scope is cancelled, and -ETIMEDOUT at its deadline; what
 * counts is the innermost scope whose task the thread runs.
 *
 * Thread-safe: all functions may be called from several threads at once, except cede_scope_close(),
 * which no other call on the scope may overlap. No function may be called from a signal handler, or
 * in a forked child on its parent's scope. Functions return 0 or a negative errno, unless they say
 * otherwise. Times are microseconds. */
#ifndef CEDE_SCOPE_H
#define CEDE_SCOPE_H

#include "cede/lease.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cede_scope;

/* A task returns 0, or a negative errno if it failed. -EDEADLK and values that are no errno count
 * as -EIO. */
typedef int (*cede_task)(struct cede_scope *s, void *arg);

#define CEDE_SCOPE_THREADS_MAX 1024

/* Opens a scope. parent: the enclosing scope, or NULL. A scope is cancelled with its parent, has
 * its deadline no later, and has to be closed before the parent is joined, as a rule by the task
 * that opened it. threads: tasks that may run at a time in addition to the thread that joins, at
 * most CEDE_SCOPE_THREADS_MAX; threads are started as tasks are added. 0: tasks run in
 * cede_scope_join() alone. timeout_us: deadline of the scope, from now; CEDE_TIMEOUT_FOREVER, which
 * is the default: none. On
 * failure *out is NULL. -EINVAL: an argument is out of range. -ENOMEM. */
int cede_scope_open(struct cede_scope **out, struct cede_scope *parent, unsigned threads,
                    cede_timeout timeout_us);

/* Adds a task; tasks begin in this order, and may add tasks themselves. On failure none was added.
 * -EBUSY: the scope was joined. -ECANCELED: it is cancelled. -EINVAL: NULL. -ENOMEM. -ETIMEDOUT:
 * its deadline has passed. */
int cede_scope_fork(struct cede_scope *s, cede_task task, void *arg);

/* 1: a task failed, the deadline has passed, or this scope or one that encloses it was cancelled.
 * 0: none of these, or s is NULL. Takes no lock. */
int cede_scope_cancelled(const struct cede_scope *s);

/* Cancels the scope: no further task begins. */
void cede_scope_cancel(struct cede_scope *s);

/* Runs tasks until none is left, waits for those that other threads run, then releases the leases
 * that they left. It waits for every running task, also for one that never checks
 * cede_scope_cancelled(). 0: all tasks succeeded. Else the first failure, -ECANCELED, or -ETIMEDOUT
 * (deadline). A second call returns the same. -EDEADLK: called by a task of this scope. */
int cede_scope_join(struct cede_scope *s);

/* Cancels the scope unless it was joined, joins it, and frees it. Returns what cede_scope_join()
 * returns; after -EDEADLK the scope is still there. NULL: 0. */
int cede_scope_close(struct cede_scope *s);

#ifdef __cplusplus
}
#endif

#endif
