/* libcede: tasks on threads that begin and end with their scope; see cede/scope.h. A thread that
 * joins a scope runs its tasks too: so a scope makes progress without a single thread of its own,
 * and nested scopes cannot wait for each other's threads. Order of locks: a scope's lock is never
 * held when a pool's or another scope's is taken. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "cede/scope.h"
#include "libcede/clock.h"
#include "libcede/error.h"
#include "libcede/owner.h"

struct task {
    struct task *next;
    cede_task call;
    void *arg;
};

struct cede_scope {
    struct lease_owner owner; /* first. Its deadline is no later than the parent's */
    struct cede_scope *parent;
    atomic_bool cancelled;
    pthread_mutex_t lock; /* all that follows */
    pthread_cond_t change;
    struct task *first, **last; /* tasks that have not begun */
    unsigned running;           /* tasks */
    unsigned idle, nthreads, max;
    int result;     /* of the first failure */
    char said[256]; /* cede_error_text() of that task; "": it had none */
    bool over;      /* no task runs or waits, and none will */
    bool joining, joined;
    pthread_t threads[]; /* max */
};

/* Why no task of the scope is to go on; 0: they may. Takes no lock. */
static int scope_stopped(const struct lease_owner *o)
{
    const struct cede_scope *s = (const struct cede_scope *)o;
    if (s->owner.deadline_ns != TIME_NEVER && cede_clock_now_ns() >= s->owner.deadline_ns)
        return -ETIMEDOUT;
    for (; s; s = s->parent) {
        if (atomic_load(&s->cancelled))
            return -ECANCELED;
    }
    return 0;
}

CEDE_API int cede_scope_cancelled(const struct cede_scope *s)
{
    return s && scope_stopped(&s->owner) != 0;
}

/* To be called without a lock. */
static void scope_wake_all(void)
{
    cede_lease_wake_owners();
    cede_memory_wake_owners();
    cede_queue_wake_owners(NULL);
}

/* Drops the tasks that have not begun. */
static void scope_stop_locked(struct cede_scope *s, int why)
{
    if (!s->result)
        s->result = why;
    atomic_store(&s->cancelled, true);
    for (struct task *t; (t = s->first);) {
        s->first = t->next;
        free(t);
    }
    s->last = &s->first;
    pthread_cond_broadcast(&s->change);
}

CEDE_API void cede_scope_cancel(struct cede_scope *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    if (!s->joined)
        scope_stop_locked(s, -ECANCELED);
    pthread_mutex_unlock(&s->lock);
    scope_wake_all();
}

/* Runs the first task; called and left with the lock held, which it gives up for the task. */
static void scope_run_one(struct cede_scope *s)
{
    struct task t = *s->first;
    int why = scope_stopped(&s->owner);
    if (why) {
        scope_stop_locked(s, why);
        return;
    }
    free(s->first);
    s->first = t.next;
    if (!s->first)
        s->last = &s->first;
    s->running++;
    pthread_mutex_unlock(&s->lock);

    struct owner_frame f = {.owner = &s->owner, .outer = cede_owner_frames};
    cede_owner_frames = &f;
    cede_call_now.code = 0;
    int r = t.call(s, t.arg);
    cede_owner_frames = f.outer;

    why = scope_stopped(&s->owner); /* a task that ends after the stop is not the first failure */
    const bool failed = !why && r;
    if (failed)
        why = cede_returned(r);
    pthread_mutex_lock(&s->lock);
    if (why) {
        if (failed && !s->result && r == cede_call_now.code)
            snprintf(s->said, sizeof(s->said), "%s", cede_error_text());
        else if (failed && !s->result)
            snprintf(s->said, sizeof(s->said), "it returned %d: %s", r, cede_errno_words(r));
        scope_stop_locked(s, why);
        pthread_mutex_unlock(&s->lock);
        scope_wake_all(); /* this task still counts as running, so the scope stays */
        pthread_mutex_lock(&s->lock);
    }
    if (--s->running == 0)
        pthread_cond_broadcast(&s->change);
}

static void *scope_thread(void *arg)
{
    struct cede_scope *s = arg;
    HOLD(&s->lock);
    while (!s->over) {
        if (s->first) {
            scope_run_one(s);
            continue;
        }
        s->idle++;
        pthread_cond_wait(&s->change, &s->lock);
        s->idle--;
    }
    return NULL;
}

CEDE_API int cede_scope_open(struct cede_scope **out, struct cede_scope *parent, unsigned threads,
                             cede_timeout timeout_us)
{
    CALL(GIVEN(out));
    *out = NULL;
    if (!TIMEOUT(timeout_us) ||
        !IS(threads <= CEDE_SCOPE_THREADS_MAX, "threads is %u: give at most %d", threads,
            CEDE_SCOPE_THREADS_MAX))
        return -EINVAL;
    struct cede_scope *s = calloc(1, sizeof(*s) + threads * sizeof(s->threads[0]));
    if (!s)
        return cede_no_memory();
    s->owner.stopped = scope_stopped;
    s->parent = parent;
    s->max = threads;
    s->last = &s->first;
    s->owner.deadline_ns =
        min_u64(timeout_end(timeout_us, cede_clock_now_ns(), CEDE_TIMEOUT_FOREVER),
                parent ? parent->owner.deadline_ns : TIME_NEVER);
    cede_clock_cond_init(&s->change);
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return 0;
}

static int scope_say(int r)
{
    return SAY(r, {-EBUSY, "the scope was joined: open another"},
               {-ECANCELED, "the scope was cancelled: open another to go on"},
               {-ETIMEDOUT, "the scope's time-out has passed: open another to go on"},
               {-EDEADLK, "a task of the scope calls it: leave that to the scope's owner"});
}

CEDE_API int cede_scope_fork(struct cede_scope *s, cede_task task, void *arg)
{
    CALL(GIVEN(s) && GIVEN(task));
    struct task *t = malloc(sizeof(*t));
    if (!t)
        return cede_no_memory();
    *t = (struct task){.call = task, .arg = arg};
    pthread_mutex_lock(&s->lock);
    int r = s->over ? -EBUSY : scope_stopped(&s->owner);
    if (r == -ETIMEDOUT)
        scope_stop_locked(s, r); /* cede_scope_join() says so, too */
    if (!r) {
        *s->last = t;
        s->last = &t->next;
        if (s->idle || s->joining)
            pthread_cond_broadcast(&s->change);
        /* If it cannot be started, the others and the thread that joins run the tasks. */
        if (s->nthreads < s->max && (!s->idle || t != s->first) &&
            thread_start(&s->threads[s->nthreads], scope_thread, s) == 0)
            s->nthreads++;
    }
    pthread_mutex_unlock(&s->lock);
    if (r)
        free(t);
    return scope_say(cede_owner_fail(&s->owner, r));
}

/* The calling thread runs a task of the scope, or of one within it. */
static bool scope_inside(const struct cede_scope *s)
{
    for (const struct owner_frame *f = cede_owner_frames; f; f = f->outer) {
        for (const struct cede_scope *x = (void *)f->owner; x; x = x->parent) {
            if (x == s)
                return true;
        }
    }
    return false;
}

static void scope_sleep_locked(struct cede_scope *s)
{
    if (s->owner.deadline_ns == TIME_NEVER || s->result) {
        pthread_cond_wait(&s->change, &s->lock);
        return;
    }
    struct timespec t = cede_clock_timespec(s->owner.deadline_ns);
    if (pthread_cond_timedwait(&s->change, &s->lock, &t) == ETIMEDOUT && s->running)
        scope_stop_locked(s, -ETIMEDOUT);
}

static int scope_join(struct cede_scope *s)
{
    pthread_mutex_lock(&s->lock);
    bool mine = !s->joining;
    s->joining = true;
    while (mine && (s->first || s->running)) {
        if (s->first)
            scope_run_one(s);
        else
            scope_sleep_locked(s);
    }
    if (mine) {
        s->over = true;
        pthread_cond_broadcast(&s->change);
        pthread_mutex_unlock(&s->lock);
        for (unsigned i = 0; i < s->nthreads; i++)
            pthread_join(s->threads[i], NULL);
        if (atomic_load(&s->owner.has))
            cede_lease_release_all(&s->owner);
        pthread_mutex_lock(&s->lock);
        s->joined = true;
        pthread_cond_broadcast(&s->change);
    }
    while (!s->joined)
        pthread_cond_wait(&s->change, &s->lock);
    int r = s->result;
    if (r && s->said[0])
        cede_fail(r, "a task failed: %s", s->said);
    pthread_mutex_unlock(&s->lock);
    return scope_say(r);
}

CEDE_API int cede_scope_join(struct cede_scope *s)
{
    LONG_CALL(ALWAYS);
    return !s ? 0 : scope_inside(s) ? scope_say(-EDEADLK) : scope_join(s);
}

CEDE_API int cede_scope_close(struct cede_scope *s)
{
    LONG_CALL(ALWAYS);
    if (!s || scope_inside(s))
        return s ? scope_say(-EDEADLK) : 0;
    cede_scope_cancel(s);
    int r = scope_join(s);
    pthread_cond_destroy(&s->change);
    pthread_mutex_destroy(&s->lock);
    free(s);
    return r;
}
