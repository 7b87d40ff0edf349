/* libcede: tasks on threads that begin and end with their scope; see cede/scope.h. Whoever joins
 * runs tasks too, so a scope gets on without a single thread of its own, and nested ones cannot
 * wait for each other's threads. Order of locks: a pool's, then none; a scope's, then none. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "libcede/client.h"
#include "libcede/lease.h"

#define US_NS 1000ULL
#define NEVER UINT64_MAX

struct task {
    struct task *next;
    cede_task call;
    void *arg;
};

struct cede_scope {
    struct cede_scope *parent;
    uint64_t deadline_ns; /* the parents' are no earlier */
    atomic_bool cancelled, leased;
    pthread_mutex_t lock; /* all that follows */
    pthread_cond_t change;
    struct task *first, **last;
    unsigned running, idle, nthreads, max;
    pthread_t *threads;
    int result; /* of the first failure */
    bool over;  /* nothing runs or waits, and nothing will */
    bool joining, joined;
};

/* The tasks that this thread is in, innermost first. initial-exec: else the dynamic linker is
 * called, and libc alone is what libcede may need. */
struct frame {
    const struct cede_scope *scope;
    const struct frame *outer;
};
static _Thread_local const struct frame *frames __attribute__((tls_model("initial-exec")));

int cede_scope_stopped(const struct cede_scope *s)
{
    if (s->deadline_ns != NEVER && cede_client_now_ns() >= s->deadline_ns)
        return -ETIMEDOUT;
    for (; s; s = s->parent) {
        if (atomic_load(&s->cancelled))
            return -ECANCELED;
    }
    return 0;
}

uint64_t cede_scope_deadline_ns(const struct cede_scope *s)
{
    return s->deadline_ns;
}

CLIENT_API int cede_scope_cancelled(const struct cede_scope *s)
{
    return s && cede_scope_stopped(s) != 0;
}

/* With the lock held: no more tasks begin. */
static void stop_locked(struct cede_scope *s, int why)
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

CLIENT_API void cede_scope_cancel(struct cede_scope *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    if (!s->joined)
        stop_locked(s, -ECANCELED);
    pthread_mutex_unlock(&s->lock);
    cede_lease_wake_scopes();
}

/* Runs the first task, with the lock held but for the task itself. */
static void run_one(struct cede_scope *s)
{
    struct task t = *s->first;
    int why = cede_scope_stopped(s);
    if (why) {
        stop_locked(s, why);
        return;
    }
    free(s->first);
    s->first = t.next;
    if (!s->first)
        s->last = &s->first;
    s->running++;
    pthread_mutex_unlock(&s->lock);

    struct frame f = {.scope = s, .outer = frames};
    frames = &f;
    int r = t.call(s, t.arg);
    frames = f.outer;

    why = cede_scope_stopped(s); /* a task that was stopped is not what failed first */
    bool failed = why || r < 0;
    pthread_mutex_lock(&s->lock);
    if (failed)
        stop_locked(s, why ? why : r);
    if (failed) {
        pthread_mutex_unlock(&s->lock);
        cede_lease_wake_scopes(); /* while this one still counts as running: the scope stays */
        pthread_mutex_lock(&s->lock);
    }
    if (--s->running == 0)
        pthread_cond_broadcast(&s->change);
}

static void *work(void *arg)
{
    struct cede_scope *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->over) {
        if (s->first) {
            run_one(s);
            continue;
        }
        s->idle++;
        pthread_cond_wait(&s->change, &s->lock);
        s->idle--;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* One more thread, without signals: those are for the program's own. Without it others do the work.
 */
static void hire_locked(struct cede_scope *s)
{
    sigset_t all, was;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &was))
        return;
    if (pthread_create(&s->threads[s->nthreads], NULL, work, s) == 0)
        s->nthreads++;
    pthread_sigmask(SIG_SETMASK, &was, NULL);
}

CLIENT_API int cede_scope_open(struct cede_scope **out, struct cede_scope *parent, unsigned threads,
                               int64_t timeout_us)
{
    if (!out)
        return -EINVAL;
    *out = NULL;
    if (threads > CEDE_SCOPE_THREADS_MAX || timeout_us < 0)
        return -EINVAL;
    struct cede_scope *s = calloc(1, sizeof(*s));
    if (s)
        s->threads = calloc(threads ? threads : 1, sizeof(*s->threads));
    if (!s || !s->threads) {
        free(s);
        return -ENOMEM;
    }
    s->parent = parent;
    s->max = threads;
    s->last = &s->first;
    s->deadline_ns = (uint64_t)timeout_us > INT64_MAX / US_NS / 2
                         ? NEVER
                         : cede_client_now_ns() + (uint64_t)timeout_us * US_NS;
    if (parent && parent->deadline_ns < s->deadline_ns)
        s->deadline_ns = parent->deadline_ns;
    cede_cond_init(&s->change);
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return 0;
}

CLIENT_API int cede_scope_fork(struct cede_scope *s, cede_task call, void *arg)
{
    if (!s || !call)
        return -EINVAL;
    struct task *t = malloc(sizeof(*t));
    if (!t)
        return -ENOMEM;
    *t = (struct task){.call = call, .arg = arg};
    pthread_mutex_lock(&s->lock);
    int r = s->over ? -EBUSY : cede_scope_stopped(s);
    if (!r) {
        *s->last = t;
        s->last = &t->next;
        if (s->idle || s->joining)
            pthread_cond_broadcast(&s->change);
        if (s->nthreads < s->max && (!s->idle || t != s->first))
            hire_locked(s);
    }
    pthread_mutex_unlock(&s->lock);
    if (r)
        free(t);
    return r;
}

static bool inside(const struct cede_scope *s)
{
    for (const struct frame *f = frames; f; f = f->outer) {
        for (const struct cede_scope *x = f->scope; x; x = x->parent) {
            if (x == s)
                return true;
        }
    }
    return false;
}

/* For something to happen, or the deadline. */
static void sleep_locked(struct cede_scope *s)
{
    if (s->deadline_ns == NEVER || s->result) {
        pthread_cond_wait(&s->change, &s->lock);
        return;
    }
    struct timespec t = cede_timespec(s->deadline_ns);
    if (pthread_cond_timedwait(&s->change, &s->lock, &t) == ETIMEDOUT && s->running)
        stop_locked(s, -ETIMEDOUT);
}

CLIENT_API int cede_scope_join(struct cede_scope *s)
{
    if (!s)
        return 0;
    if (inside(s))
        return -EDEADLK;
    pthread_mutex_lock(&s->lock);
    bool mine = !s->joining;
    s->joining = true;
    while (mine && (s->first || s->running)) {
        if (s->first)
            run_one(s);
        else
            sleep_locked(s);
    }
    if (mine) {
        s->over = true;
        pthread_cond_broadcast(&s->change);
        pthread_mutex_unlock(&s->lock);
        for (unsigned i = 0; i < s->nthreads; i++)
            pthread_join(s->threads[i], NULL);
        if (atomic_load(&s->leased))
            cede_lease_release_all(s);
        pthread_mutex_lock(&s->lock);
        s->joined = true;
        pthread_cond_broadcast(&s->change);
    }
    while (!s->joined)
        pthread_cond_wait(&s->change, &s->lock);
    int r = s->result;
    pthread_mutex_unlock(&s->lock);
    return r;
}

CLIENT_API int cede_scope_close(struct cede_scope *s)
{
    if (!s)
        return 0;
    if (inside(s))
        return -EDEADLK;
    pthread_mutex_lock(&s->lock);
    bool joined = s->joined;
    pthread_mutex_unlock(&s->lock);
    if (!joined)
        cede_scope_cancel(s);
    int r = cede_scope_join(s);
    pthread_cond_destroy(&s->change);
    pthread_mutex_destroy(&s->lock);
    free(s->threads);
    free(s);
    return r;
}

CLIENT_API int cede_scope_acquire(struct cede_scope *s, struct cede_pool *p, int device,
                                  const char *kernel, const struct cede_shape *shape,
                                  int64_t timeout_us, struct cede_lease *out)
{
    int r = s ? cede_scope_stopped(s) : -EINVAL;
    if (r)
        return r;
    atomic_store(&s->leased, true);
    return cede_lease_acquire(p, s, device, kernel, shape, timeout_us, out);
}
