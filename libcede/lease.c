/* libcede: acquires and releases leases, with their streams, around libcede/pure/leases.h, which
 * decides; see cede/lease.h, pool.h. No thread of its own: a waiting thread wakes itself for
 * timeouts, a releasing one wakes those that may start. */
#include <errno.h>

#include "libcede/api.h"
#include "libcede/clock.h"
#include "libcede/pool.h"

#define ONLY 0x10000 /* CEDE_ONLY_DEVICE() */

/* ---- occupancy ------------------------------------------------------------------------------- */

/* Key and occupancy of a lease for this kernel. With the pool's lock held; gives it up to ask the
 * driver. */
static int lease_measure(struct cede_pool *p, const char *kernel, const struct cede_shape *s,
                         struct lease_ask *a)
{
    struct gpu_profile profile;
    if (!kernel)
        return 0;
    const struct lease_kernel *f = cede_kernels_find(p->kernels, kernel);
    if (!f)
        return -ENOENT;
    a->key = cede_kernels_key(f, s);
    a->occupancy = f->share;
    if (!f->function)
        return 0;
    if (!s->threads)
        return -EINVAL;
    if (!p->gpus)
        return 0;
    if (!cede_kernels_profile(p->kernels, f, s, &profile)) {
        struct lease_kernel copy = *f;
        struct gpu_error why;
        cede_pool_step_out(p);
        int r = cede_gpus_profile(p->gpus, copy.context, copy.function, s->threads, s->shared_bytes,
                                  &profile, &why);
        cede_pool_step_in(p);
        if (r)
            p->error = why;
        if (r || !p->open)
            return p->open ? r : -ESHUTDOWN;
        cede_kernels_learn(p->kernels, &copy, s, &profile);
    }
    a->occupancy = cede_profile_share(&profile, s->blocks);
    return 0;
}

/* ---- acquiring ------------------------------------------------------------------------------- */

/* Wakes the threads whose leases start by now, or time out. */
static void lease_run_events(struct cede_pool *p, uint64_t now_ns)
{
    struct lease_event e;
    while (cede_leases_step(p->leases, now_ns, &e)) {
        struct holder *h = &p->holders[lease_slot(e.id)];
        h->waiter->event = e;
        h->waiter->done = true;
        pthread_cond_signal(&h->waiter->cond);
        h->waiter = NULL;
    }
}

/* Asks how busy the GPUs are, if it is time to; gives up the lock for each call. */
static void lease_poll(struct cede_pool *p, uint64_t now_ns)
{
    if (now_ns < p->poll_ns || p->polling || !p->held)
        return;
    p->polling = true;
    p->poll_ns = time_after(now_ns, p->config.utilization_polling_ms, NSEC_PER_MSEC);
    for (unsigned d = 0; d < p->config.devices && p->open; d++) {
        unsigned percent = 0;
        cede_pool_step_out(p);
        int r = cede_gpus_utilization(p->gpus, d, &percent);
        cede_pool_step_in(p);
        if (!p->open)
            return;
        p->devices[d].utilization = r ? -1 : (int)percent;
        cede_leases_set_utilization(p->leases, d, r ? SLOT_NONE : percent);
    }
    p->polling = false;
}

/* When a waiting thread has to look again, if no other wakes it. */
static uint64_t lease_wake_ns(const struct cede_pool *p, uint64_t until_ns)
{
    uint64_t wake_ns = min_u64(min_u64(until_ns, p->poll_ns), FAR_NS);
    if (p->config.streams && p->config.streams < p->config.max_concurrent_streams)
        wake_ns = min_u64(wake_ns, cede_leases_next_ns(p->leases)); /* a timeout for the stream */
    return wake_ns;
}

static int lease_stopped(const struct lease_owner *o)
{
    return o ? o->stopped(o) : 0;
}

static int lease_wait(struct cede_pool *p, struct lease_waiter *w, uint64_t id, uint64_t until_ns)
{
    cede_clock_cond_init(&w->cond);
    p->holders[lease_slot(id)].waiter = w;
    p->inside++;
    for (;;) {
        uint64_t now_ns = cede_clock_now_ns();
        lease_poll(p, now_ns); /* meanwhile the lease may start, and the pool or the owner end */
        if (!p->open || w->done || lease_stopped(w->owner))
            break;
        lease_run_events(p, now_ns);
        if (w->done)
            break;
        struct timespec t = cede_clock_timespec(lease_wake_ns(p, until_ns));
        pthread_cond_timedwait(&w->cond, &p->lock, &t);
    }
    int r = !p->open ? -ESHUTDOWN : w->done && w->event.hold ? -ETIMEDOUT : 0;
    if (!r && !w->done) {
        r = lease_stopped(w->owner);
        cede_leases_cancel(p->leases, id);
        p->holders[lease_slot(id)].waiter = NULL;
        lease_run_events(p, cede_clock_now_ns());
    }
    if (--p->inside == 0)
        pthread_cond_broadcast(&p->left);
    pthread_cond_destroy(&w->cond);
    return r;
}

static int lease_end(struct cede_pool *p, uint64_t id)
{
    uint64_t now_ns = cede_clock_now_ns();
    if (cede_leases_release(p->leases, id, now_ns) < 0)
        return -ESTALE;
    struct holder *h = &p->holders[lease_slot(id)];
    if (h->stream)
        pool_idle(p, h->device, h->level)[p->devices[h->device].idle[h->level]++] = h->stream;
    *h = (struct holder){0};
    p->held--;
    lease_run_events(p, now_ns);
    return 0;
}

/* Gives a lease that has started its stream; ends it where the driver makes none. */
static int lease_equip(struct cede_pool *p, const struct lease_event *e,
                       const struct lease_owner *owner, int priority)
{
    struct holder *h = &p->holders[lease_slot(e->id)];
    uint32_t level = e->urgent || priority >= POOL_LEVELS ? POOL_LEVELS - 1
                     : priority < 0                       ? 0
                                                          : (uint32_t)priority;
    *h = (struct holder){.id = e->id, .owner = owner, .device = e->device, .level = level};
    uint32_t *idle = &p->devices[e->device].idle[level];
    p->held++;
    if (!p->gpus)
        return 0;
    if (*idle) {
        h->stream = pool_idle(p, e->device, level)[--*idle];
        return 0;
    }
    struct gpu_error why;
    void *stream = NULL;
    cede_pool_step_out(p);
    int r = cede_gpus_stream(p->gpus, e->device, level, &stream, &why);
    cede_pool_step_in(p);
    h->stream = stream; /* also where the pool was closed: closing destroys it */
    if (!p->open)
        return -ESHUTDOWN;
    if (r) {
        p->error = why;
        lease_end(p, e->id);
    }
    return r;
}

static int lease_acquire(struct cede_pool *p, const struct lease_owner *owner, int device,
                         const char *kernel, const struct cede_shape *s, int64_t timeout_us,
                         struct cede_lease *out)
{
    struct lease_ask a = {.preferred = device < 0 ? SLOT_NONE : (uint32_t)device & (ONLY - 1),
                          .only = device >= 0 && (device & ONLY),
                          .priority = s->priority,
                          .memory_bytes = s->memory_bytes};
    struct lease_waiter w = {.owner = owner};
    if (device < CEDE_ANY_DEVICE || device >= 2 * ONLY ||
        (device >= 0 && a.preferred >= p->config.devices))
        return -EINVAL;
    int r = lease_measure(p, kernel, s, &a);
    if (r)
        return r;
    uint64_t now_ns = cede_clock_now_ns();
    lease_poll(p, now_ns);
    if (!p->open)
        return -ESHUTDOWN;
    a.deadline_ns = s->due_us ? time_after(now_ns, s->due_us, NSEC_PER_USEC) : TIME_NEVER;
    a.until_ns = timeout_us < 0 ? time_after(now_ns, p->config.block_timeout_ms, NSEC_PER_MSEC)
                                : time_after(now_ns, (uint64_t)timeout_us, NSEC_PER_USEC);
    if (owner && timeout_us && owner->deadline_ns < a.until_ns)
        a.until_ns = owner->deadline_ns;
    r = cede_leases_ask(p->leases, &a, now_ns, &w.event);
    if (r == -EINPROGRESS)
        r = lease_wait(p, &w, w.event.id, a.until_ns);
    if (!r)
        r = lease_equip(p, &w.event, owner, s->priority);
    if (!r)
        *out = (struct cede_lease){
            .stream = p->holders[lease_slot(w.event.id)].stream,
            .device = (int)w.event.device,
            .urgent = w.event.urgent,
            .opaque = {p->generation * CEDE_POOLS_MAX + (uint64_t)(p - cede_pool_table),
                       w.event.id}};
    return r;
}

int cede_lease_acquire(struct cede_pool *p, const struct lease_owner *owner, int device,
                       const char *kernel, const struct cede_shape *shape, int64_t timeout_us,
                       struct cede_lease *out)
{
    static const struct cede_shape none;
    int r = out ? cede_pool_enter(p) : -EINVAL;
    if (r)
        return r;
    r = lease_acquire(p, owner, device, kernel, shape ? shape : &none, timeout_us, out);
    pthread_mutex_unlock(&p->lock);
    return r;
}

CEDE_API int cede_acquire(struct cede_pool *p, int device, const char *kernel,
                          const struct cede_shape *shape, int64_t timeout_us,
                          struct cede_lease *out)
{
    return cede_lease_acquire(p, NULL, device, kernel, shape, timeout_us, out);
}

CEDE_API int cede_try_acquire(struct cede_pool *p, int device, const char *kernel,
                              const struct cede_shape *shape, struct cede_lease *out)
{
    return cede_lease_acquire(p, NULL, device, kernel, shape, 0, out);
}

/* ---- releasing ------------------------------------------------------------------------------- */

CEDE_API int cede_release(const struct cede_lease *lease)
{
    if (!lease || !lease->opaque[0])
        return -EINVAL;
    struct cede_pool *p = &cede_pool_table[lease->opaque[0] % CEDE_POOLS_MAX];
    if (cede_pool_enter(p) < 0)
        return -ESTALE;
    int r = p->generation == lease->opaque[0] / CEDE_POOLS_MAX ? lease_end(p, lease->opaque[1])
                                                               : -ESTALE;
    pthread_mutex_unlock(&p->lock);
    return r;
}

void cede_lease_release_all(const struct lease_owner *owner)
{
    for (struct cede_pool *p = cede_pool_table; p < cede_pool_table + CEDE_POOLS_MAX; p++) {
        if (cede_pool_enter(p) < 0)
            continue;
        for (uint32_t i = 0; p->held && i < p->config.capacity; i++) {
            if (p->holders[i].id && p->holders[i].owner == owner)
                lease_end(p, p->holders[i].id);
        }
        pthread_mutex_unlock(&p->lock);
    }
}

void cede_lease_wake_owners(void)
{
    for (struct cede_pool *p = cede_pool_table; p < cede_pool_table + CEDE_POOLS_MAX; p++) {
        if (cede_pool_enter(p) < 0)
            continue;
        for (uint32_t i = 0; p->inside && i < p->config.capacity; i++) {
            if (p->holders[i].waiter && p->holders[i].waiter->owner)
                pthread_cond_signal(&p->holders[i].waiter->cond);
        }
        pthread_mutex_unlock(&p->lock);
    }
}
