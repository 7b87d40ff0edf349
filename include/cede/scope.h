/* libcede: scopes, or tasks that begin and end together. A scope runs tasks on a few threads. The
 * first task that fails cancels the rest; when the scope has been joined, every task has ended and
 * every lease that tasks took is released. See cede_scope_open(3).
 *
 * A scope ends when a task fails, when it is cancelled, when its time-out has passed, or with its
 * parent. That is cooperative: a running task checks cede_scope_cancelled() and returns; a task
 * that has not begun never begins. Calls of libcede in a task that wait for a lease, for memory or
 * for a batch, run slices or a loop's step, or add a task return -ECANCELED from then on, and
 * cede_error_text() says whether for its time-out, cede_scope_join() for which failure; -ETIMEDOUT
 * is always the call's own time-out. What counts is the innermost scope whose task the thread runs.
 *
 * Thread-safe: all functions may be called from several threads at once, except cede_scope_close(),
 * which no other call on the scope may overlap. No function may be called from a signal handler, or
 * in a forked child on its parent's scope. Functions return 0 or a negative errno, unless they say
 * otherwise, and none changes errno. Times are microseconds. */
#ifndef CEDE_SCOPE_H
#define CEDE_SCOPE_H

#include "cede/lease.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cede_scope;

/* A task returns 0, or anything else if it failed: a negative errno; all other values, such as a
 * CUresult, and -EAGAIN, -EBUSY, -ECANCELED, -EDEADLK and -ETIMEDOUT, which say something else in
 * cede_scope_join(), count as -EIO. */
typedef int (*cede_task)(struct cede_scope *s, void *arg);

#define CEDE_SCOPE_THREADS_MAX 1024

/* Opens a scope. parent: the enclosing scope, or NULL. A scope ends no later than its parent, and
 * has to be closed before the parent is joined, as a rule by the task that opened it. threads:
 * tasks that may run at a time in addition to the thread that joins, at most
 * CEDE_SCOPE_THREADS_MAX; threads are started as tasks are added. 0: tasks run in cede_scope_join()
 * alone. timeout_us: after which the scope ends; CEDE_TIMEOUT_FOREVER, which is the default: never;
 * CEDE_TIMEOUT_NOW: at once, which refuses every task. On failure *out is NULL. -EINVAL: an
 * argument is out of range. -ENOMEM. */
int cede_scope_open(struct cede_scope **out, struct cede_scope *parent, unsigned threads,
                    cede_timeout timeout_us);

/* Adds a task; tasks begin in this order, and may add tasks themselves. On failure none was added.
 * -EBUSY: the scope was joined. -ECANCELED: it has ended. -EINVAL: NULL. -ENOMEM. */
int cede_scope_fork(struct cede_scope *s, cede_task task, void *arg);

/* 1: the scope has ended. 0: it has not, or s is NULL. Takes no lock. */
int cede_scope_cancelled(const struct cede_scope *s);

/* Cancels the scope: no further task begins. */
void cede_scope_cancel(struct cede_scope *s);

/* Runs tasks until none is left, waits for those that other threads run, then releases the leases
 * that they left. It waits for every running task, also for one that never checks
 * cede_scope_cancelled(). 0: all tasks succeeded. Else why the scope ended, whichever was first: a
 * task's failure, -ECANCELED, or -ETIMEDOUT, also if a task was refused because its time-out had
 * passed. A second call returns the same. -EDEADLK: called by a task of this scope. */
int cede_scope_join(struct cede_scope *s);

/* Cancels the scope unless it was joined, joins it, and frees it. Returns what cede_scope_join()
 * returns; after -EDEADLK the scope is still there. NULL: 0. */
int cede_scope_close(struct cede_scope *s);

#ifdef __cplusplus
}
#endif

#endif
