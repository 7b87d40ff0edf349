/* libcede: acquires and releases leases, with their streams, around libcede/pure/leases.h, which
 * decides; see cede/lease.h, pool.h. No thread of its own: a waiting thread wakes itself for
 * timeouts, a releasing one wakes those that may start. */
#include <errno.h>

#include "base/probe.h"
#include "libcede/clock.h"
#include "libcede/error.h"
#include "libcede/handle.h"
#include "libcede/pool.h"

#define ONLY 0x10000 /* CEDE_ONLY_DEVICE() */
/* Free memory that was read within this is not read again. */
#define MEMORY_FRESH_NS NSEC_PER_MSEC

/* ---- occupancy ------------------------------------------------------------------------------- */

/* Key and occupancy of a lease for this kernel, and the driver's figures where there are. With the
 * pool's lock held; gives it up to ask the driver. */
static int lease_measure(struct cede_pool *p, const struct lease_kernel *f,
                         const struct cede_shape *s, struct lease_ask *a,
                         struct gpu_profile *profile)
{
    *profile = (struct gpu_profile){0};
    a->occupancy = LEASE_UNKNOWN;
    if (!f)
        return 0;
    a->key = cede_kernels_key(f, s);
    if (!f->function) {
        a->occupancy = f->share;
        return 0;
    }
    if (!p->gpus)
        return 0;
    if (!cede_kernels_profile(p->kernels, f, s, profile)) {
        struct lease_kernel copy = *f;
        struct gpu_error why;
        int r = OUTSIDE(p, cede_gpus_profile(p->gpus, copy.context, copy.function, s->threads,
                                             s->shared_bytes, profile, &why));
        if (r)
            p->error = why;
        if (r || !p->open)
            return p->open ? cede_fail(r, "%s", why.text) : -ESHUTDOWN;
        cede_kernels_learn(p->kernels, &copy, s, profile);
    }
    a->occupancy = cede_profile_share(profile, s->blocks);
    return 0;
}

/* ---- acquiring ------------------------------------------------------------------------------- */

/* Wakes the threads whose leases start by now, or time out. */
static void lease_run_events(struct cede_pool *p, uint64_t now_ns)
{
    struct lease_event e;
    while (cede_leases_step(p->leases, now_ns, &e)) {
        struct lease_data *h = &p->data[lease_slot(e.id)];
        h->waiter->event = e;
        h->waiter->done = true;
        pthread_cond_signal(&h->waiter->cond);
        h->waiter = NULL;
    }
}

/* Asks how busy the GPUs are, if it is time to; gives up the lock for each call. */
static void lease_poll(struct cede_pool *p, uint64_t now_ns)
{
    if (now_ns < p->poll_ns || p->polling || !p->started)
        return;
    p->polling = true;
    p->poll_ns = time_after(now_ns, p->config.utilization_polling_us, NSEC_PER_USEC);
    for (unsigned d = 0; d < p->config.devices && p->open; d++) {
        unsigned percent = 0;
        int r = OUTSIDE(p, cede_gpus_utilization(p->gpus, d, &percent));
        if (!p->open)
            return;
        p->devices[d].utilization = r ? -1 : (int)percent;
        cede_leases_set_utilization(p->leases, d, r ? SLOT_NONE : percent);
    }
    p->polling = false;
}

/* Asks how much memory is free, if that was not asked within age_ns; gives up the lock for each
 * call. Where the driver does not tell, the former figure stays. */
static void lease_read_memory(struct cede_pool *p, uint64_t now_ns, uint64_t age_ns)
{
    if (!p->gpus || p->reading || now_ns < saturating_add(p->memory_ns, age_ns))
        return;
    p->reading = true;
    p->memory_ns = now_ns;
    for (unsigned d = 0; d < p->config.devices && p->open; d++) {
        struct gpu_error why;
        uint64_t bytes = 0;
        int r = OUTSIDE(p, cede_gpus_available(p->gpus, d, &bytes, &why));
        if (!p->open)
            return;
        if (!r)
            cede_leases_set_memory(p->leases, d, bytes, cede_gpus_facts(p->gpus, d)->memory_bytes);
    }
    p->reading = false;
}

static uint64_t lease_memory_age_ns(const struct cede_pool *p)
{
    return time_after(0, p->config.utilization_polling_us, NSEC_PER_USEC);
}

/* When a waiting thread has to look again, if no other wakes it. */
static uint64_t lease_wake_ns(const struct cede_pool *p, const struct lease_waiter *w,
                              uint64_t until_ns)
{
    uint64_t wake_ns = min_u64(min_u64(min_u64(until_ns, p->poll_ns), w->look_ns), FAR_NS);
    if (w->memory && p->gpus) /* other programs may give some back */
        wake_ns = min_u64(wake_ns, saturating_add(p->memory_ns, lease_memory_age_ns(p)));
    if (p->config.streams && p->config.streams < p->config.max_concurrent_streams)
        wake_ns = min_u64(wake_ns, cede_leases_next_ns(p->leases)); /* a timeout for the stream */
    return wake_ns;
}

static int lease_wait(struct cede_pool *p, struct lease_waiter *w, uint64_t id, uint64_t until_ns)
{
    cede_clock_cond_init(&w->cond);
    w->look_ns = 0;
    p->data[lease_slot(id)].waiter = w;
    p->inside++;
    for (;;) {
        uint64_t now_ns = cede_clock_now_ns();
        lease_poll(p, now_ns); /* meanwhile the lease may start, and the pool or the owner end */
        if (w->memory && p->open)
            lease_read_memory(p, now_ns, lease_memory_age_ns(p));
        if (!p->open || w->done || owner_stopped(w->owner))
            break;
        lease_run_events(p, now_ns);
        if (w->done)
            break;
        if (w->look_ns <= now_ns)
            w->look_ns = cede_leases_look_ns(p->leases, id, now_ns);
        struct timespec t = cede_clock_timespec(lease_wake_ns(p, w, until_ns));
        pthread_cond_timedwait(&w->cond, &p->lock, &t);
    }
    int r = !p->open ? -ESHUTDOWN : w->done && w->event.wait ? -ETIMEDOUT : 0;
    if (!r && !w->done) {
        r = owner_stopped(w->owner);
        cede_leases_cancel(p->leases, id, cede_clock_now_ns(), &w->event);
        p->data[lease_slot(id)].waiter = NULL;
        lease_run_events(p, cede_clock_now_ns());
    }
    slot_left(SLOT(p));
    pthread_cond_destroy(&w->cond);
    return r;
}

static int lease_end(struct cede_pool *p, uint64_t id)
{
    uint64_t now_ns = cede_clock_now_ns();
    if (cede_leases_release(p->leases, id, now_ns) < 0)
        return -ESTALE;
    struct lease_data *h = &p->data[lease_slot(id)];
    if (h->stream)
        pool_idle(p, h->device, h->level)[p->devices[h->device].idle[h->level]++] = h->stream;
    if (h->reported)
        cede_request_finish(p->config.client, &h->request, true);
    *h = (struct lease_data){0};
    p->started--;
    lease_run_events(p, now_ns);
    return 0;
}

/* Gives a lease that has started its stream; ends it where the driver makes none. */
static int lease_equip(struct cede_pool *p, const struct lease_event *e, struct lease_owner *owner,
                       int priority)
{
    struct lease_data *h = &p->data[lease_slot(e->id)];
    uint32_t level = e->urgent || priority >= POOL_LEVELS ? POOL_LEVELS - 1
                     : priority < 0                       ? 0
                                                          : (uint32_t)priority;
    *h = (struct lease_data){.id = e->id, .owner = owner, .device = e->device, .level = level};
    uint32_t *idle = &p->devices[e->device].idle[level];
    p->started++;
    if (owner)
        atomic_store(&owner->has, true);
    if (!p->gpus)
        return 0;
    if (*idle) {
        h->stream = pool_idle(p, e->device, level)[--*idle];
        return 0;
    }
    struct gpu_error why;
    void *stream = NULL;
    int r = OUTSIDE(p, cede_gpus_stream(p->gpus, e->device, level, &stream, &why));
    h->stream = stream; /* also where the pool was closed: closing destroys it */
    if (!p->open)
        return -ESHUTDOWN;
    if (!r)
        return 0;
    p->error = why;
    lease_end(p, e->id);
    return cede_fail(r, "%s", why.text);
}

static bool lease_reports(const struct cede_pool *p, const struct lease_owner *owner,
                          const struct cede_shape *s)
{
    return p->config.client && (s->due_us || p->config.flags & CEDE_POOL_REPORT_ALL) &&
           !(owner && owner->reports);
}

/* Reports a lease, so that the daemon knows when the process has to have the GPU. In the caller's
 * memory: a request is in no list, so its owner may have a copy. Once a second this looks for the
 * daemon, so it gives up the lock; false: the pool was closed meanwhile. */
static bool lease_report(struct cede_pool *p, const struct cede_shape *s, struct lease_data *h)
{
    OUTSIDE(p, cede_request_begin(p->config.client, &h->request, CEDE_JOB, 0, s->due_us));
    h->reported = true;
    return p->open;
}

/* The GPU that a thread had last of a pool: its caches, and what the program keeps for the thread,
 * are there. Small and initial-exec, so that a library that is opened at run time has it without
 * calls of the dynamic linker. Of two pools that fall on one slot the later stays. */
#define LAST_POOLS 4U
static _Thread_local struct {
    uint64_t pool; /* a lease's opaque[0] */
    uint32_t device;
} lease_last[LAST_POOLS] __attribute__((tls_model("initial-exec")));

/* What no waiting mends. *f: the kernel; NULL: none was named. */
static int lease_refused(const struct cede_pool *p, int device, const char *kernel,
                         const struct cede_shape *s, const struct lease_kernel **f)
{
    *f = kernel ? cede_kernels_find(p->kernels, kernel) : NULL;
    if (device < CEDE_ANY_DEVICE || device >= 2 * ONLY ||
        (device >= 0 && ((unsigned)device & (ONLY - 1)) >= p->config.devices))
        return cede_pool_no_device(p, device & -2 * ONLY ? device : (int16_t)device);
    if (kernel && !*f)
        return cede_fail(-ENOENT,
                         "the pool knows no kernel '%.63s': register it first, with "
                         "cede_pool_kernel() or cede_pool_occupancy()",
                         kernel);
    if (kernel && (*f)->function && !s->threads)
        return cede_fail(-EINVAL,
                         "the shape for kernel '%s' is without threads: set `threads` to those of "
                         "a block",
                         kernel);
    return 0;
}

/* In words. lacks: what it waited for. */
static int lease_failed(const struct cede_pool *p, const struct lease_owner *owner, int r,
                        enum lease_wait lacks)
{
    static const char *const texts[] = {
        [WAIT_CLASS] = "other leases wait before it",
        [WAIT_COUNT] = "max_concurrent_streams leases are active",
        [WAIT_OCCUPANCY] = "the active leases fill the GPU, by max_total_occupancy",
        [WAIT_MEMORY] = "the GPU has too little free memory",
        [WAIT_UTILIZATION] = "the GPU is busier than target_utilization_percent",
        [WAIT_STREAM] = "all streams have a lease",
    };
    if (!p->open)
        return cede_pool_closed();
    r = cede_owner_fail(owner, r);
    if (lacks && (r == -EAGAIN || r == -ETIMEDOUT))
        return cede_fail(r, "%s: %s: release leases, or %s",
                         r == -EAGAIN ? "it would have to wait" : "no lease in time", texts[lacks],
                         r == -EAGAIN           ? "give a time-out"
                         : lacks == WAIT_STREAM ? "set stream_timeout_us or streams"
                                                : "wait longer");
    return SAY(r, {-ENOSPC, "the pool has `capacity` leases: release some, or open it with more"});
}

/* Reports how long a lease waited, and why. Once a second this looks for the daemon, so it gives up
 * the lock. */
static void lease_decided(struct cede_pool *p, const struct lease_event *e, const char *kernel,
                          int result)
{
    PROBE(lease, kernel, e->waited_us, e->waited_for, e->occupancy, e->device, result);
    if (!p->config.client || !cede_lease_report(p->config.client, e, kernel, result))
        return;
    slot_step_out(SLOT(p));
    cede_link_check(p->config.client, false);
    slot_step_in(SLOT(p));
}

static int lease_acquire(struct cede_pool *p, struct lease_owner *owner, int device,
                         const char *kernel, const struct cede_shape *s, cede_timeout timeout_us,
                         struct cede_lease *out)
{
    const uint64_t pool = p->generation * CEDE_POOLS_MAX + (uint64_t)(p - cede_pool_table);
    const uint64_t at = pool % LAST_POOLS;
    struct lease_ask a = {.preferred = device < 0 ? SLOT_NONE : (uint32_t)device & (ONLY - 1),
                          .only = device >= 0 && (device & ONLY),
                          .last = lease_last[at].pool == pool ? lease_last[at].device : SLOT_NONE,
                          .priority = s->priority,
                          .memory_bytes =
                              min_u64(s->memory_bytes, UINT64_MAX / p->config.capacity)};
    struct lease_waiter w = {.owner = owner, .memory = s->memory_bytes != 0};
    struct lease_data mine = {0};
    struct gpu_profile profile;
    const struct lease_kernel *f;
    int r = lease_refused(p, device, kernel, s, &f) ?: owner_stopped(owner) ?:
            lease_measure(p, f, s, &a, &profile);
    const bool reports = lease_reports(p, owner, s);
    if (!r && reports && timeout_us && !lease_report(p, s, &mine))
        r = -ESHUTDOWN;
    uint64_t now_ns = cede_clock_now_ns();
    if (!r)
        lease_poll(p, now_ns);
    if (!r && p->open && w.memory)
        lease_read_memory(p, now_ns, MEMORY_FRESH_NS);
    if (!r && !p->open)
        r = -ESHUTDOWN;
    if (r)
        goto out;
    a.deadline_ns = s->due_us ? time_after(now_ns, s->due_us, NSEC_PER_USEC) : TIME_NEVER;
    a.until_ns = timeout_end(timeout_us, now_ns, p->config.block_timeout_us);
    if (owner && timeout_us && owner->deadline_ns < a.until_ns)
        a.until_ns = owner->deadline_ns;
    r = cede_leases_ask(p->leases, &a, now_ns, &w.event);
    if (r == -EINPROGRESS)
        r = lease_wait(p, &w, w.event.id, a.until_ns);
    if (!r)
        r = lease_equip(p, &w.event, owner, s->priority);
    if (!r && reports && !timeout_us && !lease_report(p, s, &mine)) /* a try in vain is none */
        r = -ESHUTDOWN;
    if (r)
        goto out;
    struct lease_data *h = &p->data[lease_slot(w.event.id)];
    h->reported = mine.reported;
    h->request = mine.request;
    lease_last[at].pool = pool;
    lease_last[at].device = w.event.device;
    *out = (struct cede_lease){.stream = h->stream,
                               .device = (int)w.event.device,
                               .urgent = w.event.urgent,
                               .opaque = {pool, w.event.id}};
    lease_decided(p, &w.event, kernel, 0);
    return 0;
out:
    if (w.event.id && p->open)
        lease_decided(p, &w.event, kernel, r);
    if (mine.reported)
        cede_request_finish(p->config.client, &mine.request, false);
    return lease_failed(p, owner, r, w.event.wait);
}

static const struct cede_shape no_shape;

int cede_lease_check(struct cede_pool *p, int device, const char *kernel,
                     const struct cede_shape *shape)
{
    const struct lease_kernel *f;
    POOL_ENTER(p);
    return lease_refused(p, device, kernel, shape ? shape : &no_shape, &f);
}

int cede_lease_acquire(struct cede_pool *p, struct lease_owner *owner, int device,
                       const char *kernel, const struct cede_shape *shape, cede_timeout timeout_us,
                       struct cede_lease *out)
{
    WHOLE_CALL;
    if (!TIMEOUT(timeout_us) || !GIVEN(out))
        return -EINVAL;
    POOL_ENTER(p);
    return lease_acquire(p, owner, device, kernel, shape ? shape : &no_shape, timeout_us, out);
}

CEDE_API int cede_acquire(struct cede_pool *p, int device, const char *kernel,
                          const struct cede_shape *shape, cede_timeout timeout_us,
                          struct cede_lease *out)
{
    CALL(ALWAYS);
    return cede_lease_acquire(p, cede_owner_here(), device, kernel, shape, timeout_us, out);
}

/* ---- profiles -------------------------------------------------------------------------------- */

CEDE_API int cede_pool_profile(struct cede_pool *p, const char *name,
                               const struct cede_shape *shape, struct cede_profile *out,
                               size_t size)
{
    const struct cede_shape *s = shape ? shape : &no_shape;
    const struct lease_kernel *f;
    struct lease_ask a;
    struct gpu_profile g;
    LONG_CALL(GIVEN(name) && GIVEN(out) && SIZED(size, *out));
    POOL_ENTER(p);
    r = lease_refused(p, CEDE_ANY_DEVICE, name, s, &f) ?: lease_measure(p, f, s, &a, &g);
    if (r)
        return p->open ? r : cede_pool_closed();
    if (a.occupancy == LEASE_UNKNOWN)
        return cede_fail(-ENODEV, "the pool has no GPU, whose driver knows '%.63s': use one", name);
    *out = (struct cede_profile){.occupancy = (double)a.occupancy / LEASE_WHOLE,
                                 .registers = g.registers,
                                 .shared_bytes = g.shared_bytes,
                                 .blocks_per_sm = g.blocks_per_sm,
                                 .sms = g.sms};
    if (g.sms)
        cede_occupancy_blocks(&g.sm, g.threads, g.registers, g.shared_bytes, &out->limit);
    return 0;
}

/* ---- releasing ------------------------------------------------------------------------------- */

/* The lease's pool, with its lock held, if it is open still. NULL: it is not. */
static struct cede_pool *lease_pool(const struct cede_lease *lease)
{
    struct cede_pool *p = &cede_pool_table[lease->opaque[0] % CEDE_POOLS_MAX];
    if (!slot_enter(SLOT(p)))
        return NULL;
    if (p->generation == lease->opaque[0] / CEDE_POOLS_MAX)
        return p;
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

CEDE_API int cede_release(const struct cede_lease *lease)
{
    CALL(GIVEN(lease) &&
         IS(lease->opaque[0], "the lease is all 0: give one that cede_acquire() has set"));
    struct cede_pool *p = lease_pool(lease);
    int r = p ? lease_end(p, lease->opaque[1]) : -ESTALE;
    if (p)
        pthread_mutex_unlock(&p->lock);
    return SAY(r, {-ESTALE, "it was released before, or its pool is closed: release it once"});
}

CEDE_API int cede_lease_wanted(const struct cede_lease *lease)
{
    struct cede_pool *p = lease && lease->opaque[0] ? lease_pool(lease) : NULL;
    if (!p)
        return 0;
    bool wanted = cede_leases_displaced(p->leases, lease->opaque[1]);
    pthread_mutex_unlock(&p->lock);
    return wanted;
}

void cede_lease_release_all(const struct lease_owner *owner)
{
    for (struct cede_pool *p = cede_pool_table; p < cede_pool_table + CEDE_POOLS_MAX; p++) {
        if (!slot_enter(SLOT(p)))
            continue;
        for (uint32_t i = 0; p->started && i < p->config.capacity; i++) {
            if (p->data[i].id && p->data[i].owner == owner)
                lease_end(p, p->data[i].id);
        }
        pthread_mutex_unlock(&p->lock);
    }
}

void cede_lease_wake_owners(void)
{
    for (struct cede_pool *p = cede_pool_table; p < cede_pool_table + CEDE_POOLS_MAX; p++) {
        if (!slot_enter(SLOT(p)))
            continue;
        if (p->inside)
            SLOT_WAKE(p, true);
        pthread_mutex_unlock(&p->lock);
    }
}
