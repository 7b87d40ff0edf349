/* libcede: the batches of a queue, their leases and their room; see cede/queue.h, queue_impl.h. */
#include <errno.h>
#include <string.h>

#include "libcede/clock.h"
#include "libcede/error.h"
#include "libcede/pure/request_plan.h"
#include "libcede/queue_impl.h"

#define POLL_NS NSEC_PER_MSEC /* until a caller that does not wait asks for room again */

static bool queue_free_for_one(const struct cede_queue *q, uint32_t device)
{
    const struct queue_device *d = &q->devices[device];
    return d->waiters && d->running < q->config.batches && !d->asking;
}

void cede_queue_wake(struct cede_queue *q, uint32_t device)
{
    for (uint32_t i = 0; !queue_free_for_one(q, device) && i < q->config.devices; i++) {
        if (queue_free_for_one(q, i))
            device = i;
    }
    if (q->devices[device].waiters)
        pthread_cond_signal(&q->devices[device].changed);
}

/* ---- batches --------------------------------------------------------------------------------- */

/* The batch that the pure part has started, as the caller sees it. */
static void queue_describe(const struct cede_queue *q, uint32_t device, uint32_t n, uint64_t now,
                           struct cede_queue_batch *b, struct cede_shape *shape)
{
    const struct request *first = &q->out[0];
    const struct queue_model *m = queue_model(q, first->model);
    uint64_t run_ns = first->run_ns + (n - 1) * first->each_ns, due_ns = TIME_NEVER;
    enum job_class class = CLASS_BATCH;
    b->model = first->model;
    b->shape = first->shape;
    b->device = (int)device;
    b->n = n;
    b->expected_us = run_ns / NSEC_PER_USEC;
    for (uint32_t i = 0; i < n; i++) {
        const struct request *w = &q->out[i];
        b->ticket[i] = w->id;
        b->user[i] = w->user;
        due_ns = min_u64(w->deadline_ns, due_ns);
        class = w->class < class ? w->class : class;
    }
    b->urgent = due_ns != TIME_NEVER && now + run_ns + request_margin_ns(first, run_ns) +
                                                q->config.urgent_us * NSEC_PER_USEC >
                                            due_ns;
    *shape = m->shape;
    shape->blocks = (unsigned)min_u64((uint64_t)shape->blocks * n, UINT32_MAX);
    shape->memory_bytes *= n < m->most ? n : m->most; /* fits: see queue_most() */
    shape->priority = queue_priority(class, b->urgent);
    shape->due_us =
        due_ns == TIME_NEVER ? 0 : max_u64(saturating_sub(due_ns, now) / NSEC_PER_USEC, 1);
}

/* Asks for what a batch needs without the queue's lock. -EAGAIN, -ETIMEDOUT: not in time. */
static int queue_ask(struct cede_queue *q, const struct cede_queue_batch *b,
                     const struct cede_shape *shape, cede_timeout timeout_us, struct queue_grant *g)
{
    struct queue_device *d = &q->devices[b->device];
    char name[sizeof(q->models[0].kernel)];
    memcpy(name, queue_model(q, b->model)->kernel, sizeof(name));
    const char *kernel = name[0] ? name : NULL;
    d->priority = shape->priority;
    pthread_mutex_unlock(&q->lock);
    int r = d->memory ? cede_memory_lease(d->memory, q->config.pool, &d->owner, kernel, shape,
                                          timeout_us, &g->lease, &g->room)
                      : cede_lease_acquire(q->config.pool, &d->owner, CEDE_ONLY_DEVICE(b->device),
                                           kernel, shape, timeout_us, &g->lease);
    pthread_mutex_lock(&q->lock);
    return r == -ENOMEM ? (timeout_us ? -ETIMEDOUT : -EAGAIN) : r;
}

void cede_queue_give_back(struct queue_grant *g)
{
    if (g->lease.opaque[0])
        cede_release(&g->lease);
    if (g->room.opaque[0])
        cede_memory_release(&g->room);
    *g = (struct queue_grant){.most = g->most};
}

static void queue_give_back(struct cede_queue *q, struct queue_grant *g)
{
    if (!g->lease.opaque[0] && !g->room.opaque[0])
        return;
    pthread_mutex_unlock(&q->lock);
    cede_queue_give_back(g);
    pthread_mutex_lock(&q->lock);
}

/* Whether what came for one batch, of priority `have`, serves for this one. */
static bool queue_serves(const struct cede_queue *q, const struct queue_grant *g, int have,
                         const struct cede_shape *shape)
{
    if (!q->config.pool && !q->config.memory)
        return true;
    return (!q->config.pool || g->lease.opaque[0]) &&
           (!q->config.memory ||
            (g->room.opaque[0] && shape->memory_bytes && shape->memory_bytes <= g->room.bytes)) &&
           shape->priority <= have;
}

/* Puts the batch in that slot back, and waits for a grant such as it needs. -EAGAIN: look again. */
static int queue_wait_grant(struct cede_queue *q, struct cede_queue_batch *b, uint32_t slot,
                            const struct cede_shape *shape, uint64_t end_ns, struct queue_grant *g)
{
    uint64_t now = cede_clock_now_ns();
    cede_requests_put_back(q->requests, slot);
    cede_requests_no_room(q->requests, (uint32_t)b->device);
    if (now >= end_ns)
        return -EAGAIN;
    cede_queue_wake(q, (uint32_t)b->device); /* a free device may take it */
    int r = queue_ask(q, b, shape, timeout_left(end_ns, now), g);
    return r == -ETIMEDOUT ? -EAGAIN : r; /* or for want of a stream: it asks again */
}

void cede_queue_wake_asking(const struct cede_queue *q)
{
    if (q->config.pool)
        cede_lease_wake_owners();
    if (q->config.memory)
        cede_memory_wake_owners();
}

void cede_queue_end_waits(struct cede_queue *q)
{
    if (!queue_over(q))
        return;
    for (unsigned i = 0; i < q->config.devices; i++)
        atomic_store(&q->devices[i].stop, -ESHUTDOWN);
    queue_wake_all(q);
    cede_queue_wake_asking(q);
}

/* The batch to run, with a grant for it. *again: the grant was waited for in vain. */
static int queue_grant(struct cede_queue *q, struct cede_queue_batch *b, uint32_t device,
                       uint32_t *slot, uint64_t end_ns, struct queue_grant *g, bool *again,
                       uint64_t *wake_ns)
{
    int r, have = 0;
    for (;;) {
        struct cede_shape shape;
        uint64_t now = cede_clock_now_ns();
        uint32_t n = g->most;
        r = -ESHUTDOWN;
        if (queue_over(q))
            break;
        atomic_store(&q->devices[device].stop, 0);
        r = cede_requests_next_batch(q->requests, device, now, q->out, &n, slot, wake_ns);
        if (r)
            break;
        queue_describe(q, device, n, now, b, &shape);
        if (queue_serves(q, g, have, &shape))
            return 0;
        queue_give_back(q, g);
        have = shape.priority;
        r = queue_ask(q, b, &shape, 0, g);
        if (q->closed)
            r = -ESHUTDOWN;
        if (r == 0)
            return 0;
        if (r != -EAGAIN) {
            cede_requests_put_back(q->requests, *slot);
            break;
        }
        r = queue_wait_grant(q, b, *slot, &shape, end_ns, g);
        if (r) {
            now = cede_clock_now_ns();
            *wake_ns = now < end_ns ? now : now + POLL_NS;
            *again = true;
            break;
        }
    }
    queue_give_back(q, g);
    return r;
}

static void queue_start(struct cede_queue *q, uint32_t slot, uint64_t now,
                        struct cede_queue_batch *b, const struct queue_grant *g)
{
    b->id = ++q->batches;
    b->lane = slot % q->config.batches;
    b->lease = g->lease;
    b->room = g->room;
    q->slots[slot] =
        (struct queue_slot){.id = b->id, .start_ns = now, .share = queue_share(q), .grant = *g};
    q->devices[b->device].running++;
    q->s.waiting -= b->n;
    q->s.running += b->n;
    q->s.batches++;
    cede_queue_end_waits(q);
}

static int queue_try_next(struct cede_queue *q, unsigned device, uint32_t most, uint64_t end_ns,
                          struct cede_queue_batch *b, uint64_t *wake_ns)
{
    struct queue_device *d = &q->devices[device];
    struct queue_grant grant = {.most = most};
    uint32_t slot;
    bool again = false;
    *wake_ns = TIME_NEVER;
    if (queue_over(q))
        return -ESHUTDOWN;
    if (d->asking)
        return -EBUSY;
    d->asking = true;
    int r = queue_grant(q, b, device, &slot, end_ns, &grant, &again, wake_ns);
    d->asking = false;
    if (r == 0)
        queue_start(q, slot, cede_clock_now_ns(), b, &grant);
    if (d->waiters && q->config.batches > 1 && (again || (r != -EAGAIN && r != -EBUSY)))
        pthread_cond_signal(&d->changed); /* another thread may have the next one */
    return r;
}

int cede_queue_take(struct cede_queue *q, int device, uint32_t most, cede_timeout timeout_us,
                    struct cede_queue_batch *b)
{
    int r;
    WHOLE_CALL;
    if (!SETTINGS(cede_setting("device", device, 0, q->config.devices - 1)))
        return -EINVAL;
    HOLD(&q->lock);
    struct queue_device *d = &q->devices[device];
    uint64_t now = cede_clock_now_ns(), wake_ns;
    const struct lease_owner *here = cede_owner_here();
    uint64_t end = min_u64(timeout_end(timeout_us, now, CEDE_TIMEOUT_FOREVER),
                           here && timeout_us ? here->deadline_ns : TIME_NEVER);
    q->inside++;
    while ((r = owner_stopped(here)) == 0 &&
           ((r = queue_try_next(q, (uint32_t)device, most, end, b, &wake_ns)) == -EAGAIN ||
            r == -EBUSY)) {
        now = cede_clock_now_ns();
        if (now >= end) {
            b->retry_us = timeout_left(wake_ns, now);
            r = timeout_us ? -ETIMEDOUT : -EAGAIN;
            break;
        }
        uint64_t until = min_u64(wake_ns, end);
        struct timespec t = cede_clock_timespec(until);
        d->waiters++;
        if (until == TIME_NEVER)
            pthread_cond_wait(&d->changed, &q->lock);
        else
            pthread_cond_timedwait(&d->changed, &q->lock, &t);
        d->waiters--;
    }
    if (r)
        b->n = 0;
    if (--q->inside == 0 && q->closed)
        pthread_cond_broadcast(&q->left);
    if (r == -ESHUTDOWN)
        return cede_fail(r, "the queue is shut down, or its pool or memory is closed: stop asking");
    return SAY(cede_owner_fail(here, r),
               {-EAGAIN, b->retry_us == CEDE_TIMEOUT_FOREVER
                             ? "no batch is to run: ask again when a request was submitted, or a "
                               "batch has ended"
                             : "no batch is to run now: ask again after retry_us"},
               {-ETIMEDOUT, "no batch came in time: ask again"});
}

CEDE_API int cede_queue_next(struct cede_queue *q, int device, cede_timeout timeout_us,
                             struct cede_queue_batch *b)
{
    CALL(TIMEOUT(timeout_us) && GIVEN(q) && GIVEN_AS(b, "batch"));
    return cede_queue_take(q, device, CEDE_QUEUE_BATCH_MAX, timeout_us, b);
}

static void queue_end_batch(struct cede_queue *q, uint32_t slot, uint64_t now, bool failed)
{
    struct queue_slot *t = &q->slots[slot];
    struct queue_device *d = &q->devices[slot / q->config.batches];
    struct request w;
    uint32_t n = 0, late = 0;
    for (; cede_requests_end(q->requests, slot, &w); n++) {
        queue_report_end(q, w.id, !failed);
        q->s.running--;
        q->s.failed += failed;
        if (failed)
            continue;
        q->s.ended++;
        late += now > w.deadline_ns;
        cede_estimate_add(&q->latency, now - w.arrival_ns);
    }
    q->s.late += late;
    q->s.busy_us += (now - t->start_ns) / NSEC_PER_USEC;
    /* The run time with the GPU to itself, by the larger of the shares at its start and now: rather
     * too long than too short. */
    const double now_share = queue_share(q), share = t->share > now_share ? t->share : now_share;
    if (!failed)
        cede_run_times_learn(q->times, cede_run_times_key(w.model, w.shape), n,
                             (uint64_t)((double)(now - t->start_ns) * share), late);
    d->running--;
    if (d->waiters)
        pthread_cond_signal(&d->changed);
}

int cede_queue_end(struct cede_queue *q, uint64_t batch, int device, bool failed)
{
    int r = -ENOENT;
    HOLD(&q->lock);
    const uint32_t at = (uint32_t)device;
    uint32_t slots = batch && at < q->config.devices ? q->config.batches : 0;
    for (uint32_t i = at * slots; i < (at + 1) * slots; i++) {
        if (q->slots[i].id != batch)
            continue;
        const uint64_t now = cede_clock_now_ns();
        q->slots[i].id = 0; /* it ends once, whoever hands it back meanwhile */
        queue_give_back(q, &q->slots[i].grant);
        queue_end_batch(q, i, now, failed);
        r = 0;
    }
    return SAY(r, {-ENOENT, "the batch does not run: hand it back once, unchanged"});
}

CEDE_API int cede_queue_done(struct cede_queue *q, const struct cede_queue_batch *b, int failed)
{
    CALL(GIVEN(q) && GIVEN_AS(b, "batch"));
    return cede_queue_end(q, b->id, b->device, failed != 0);
}
