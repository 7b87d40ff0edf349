/* libcede: leases and streams for a program's threads, around libcede/pure/leases.h; see
 * cede/lease.h. No thread of its own: who waits wakes itself up, and who releases wakes others.
 * Nothing that may take time is asked of the driver with a pool's lock held.
 *
 * Pools are slots that are never freed, and a lease names its pool by slot and generation: so it
 * can outlive the pool and be told so. Order of locks: table, then a pool's. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcede/client.h"
#include "libcede/gpus.h"
#include "libcede/kernels.h"
#include "libcede/lease.h"
#include "libcede/pure/leases.h"

#define LEVELS 6 /* of stream priority; NVIDIA's drivers have 6 */
#define MS_NS  1000000ULL
#define US_NS  1000ULL
#define FAR_NS (1ULL << 62) /* later than this is never */
#define ONLY   0x10000

struct waiter {
    pthread_cond_t cond;
    const struct cede_scope *owner;
    struct lease_event event;
    bool done;
};

/* Beside a slot of the pure part's. */
struct holder {
    uint64_t id; /* of what was started; 0: nothing */
    struct waiter *waiter;
    const struct cede_scope *owner;
    void *stream;
    uint32_t device;
    uint8_t level;
};

struct idle {
    void **streams;
    uint32_t n;
};

struct cede_pool {
    pthread_mutex_t lock;
    pthread_cond_t left; /* nobody is inside any more */
    bool open;           /* else only the table's lock is needed for what follows */
    uint64_t generation;
    unsigned inside; /* threads that wait, or call the driver */
    struct cede_pool_config config;
    struct leases *leases;
    struct cede_gpus *gpus; /* NULL: none */
    struct holder *holders;
    struct idle *idle; /* [devices][LEVELS] */
    struct kernels *kernels;
    int *utilization;
    unsigned devices, held; /* held: leases out */
    uint64_t poll_ns;       /* when utilization is next looked at; FAR_NS: never */
    bool polling;
    char error[sizeof(((struct cede_pool_statistics *)0)->error)];
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cede_pool table[CEDE_POOLS_MAX] = {
    [0 ... CEDE_POOLS_MAX - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                  .left = PTHREAD_COND_INITIALIZER}};

/* ---- opening and closing --------------------------------------------------------------------- */

CLIENT_API void cede_pool_defaults(struct cede_pool_config *c)
{
    struct lease_params p;
    cede_leases_params_default(&p);
    *c = (struct cede_pool_config){
        .size = sizeof(*c),
        .capacity = p.capacity,
        .max_concurrent_streams = p.max_concurrent_streams,
        .target_utilization = p.target_utilization,
        .utilization_polling_ms = 200,
        .block_timeout_ms = 5000,
        .stream_timeout_ms = (unsigned)(p.stream_timeout_ns / MS_NS),
        .age_ms = (unsigned)(p.age_ns / MS_NS),
        .max_total_occupancy = (double)p.max_total_occupancy / LEASE_WHOLE,
        .memory_reserve_fraction = p.memory_reserve_fraction,
        .max_slowdown = p.max_slowdown,
        .urgent_threshold_ns = p.urgent_ns,
    };
}

static void forget(struct cede_pool *p)
{
    p->leases = NULL;
    p->gpus = NULL;
    p->holders = NULL;
    p->idle = NULL;
    p->kernels = NULL;
    p->utilization = NULL;
}

static void empty(struct cede_pool *p)
{
    for (unsigned i = 0; p->idle && i < p->devices * LEVELS; i++)
        free(p->idle[i].streams);
    cede_leases_free(p->leases);
    cede_gpus_close(p->gpus);
    free(p->holders);
    free(p->idle);
    free(p->kernels);
    free(p->utilization);
    forget(p);
}

/* Locks and streams of the parent are not the child's. What its pools held is left as it is. */
static void in_child(void)
{
    pthread_mutex_init(&table_lock, NULL);
    for (struct cede_pool *p = table; p < table + CEDE_POOLS_MAX; p++) {
        pthread_mutex_init(&p->lock, NULL);
        pthread_cond_init(&p->left, NULL);
        p->generation++;
        p->open = false;
        forget(p);
    }
}

static int fill(struct cede_pool *p)
{
    const struct cede_pool_config *c = &p->config;
    struct lease_params params = {
        .devices = p->devices,
        .capacity = c->capacity,
        .max_concurrent_streams = c->max_concurrent_streams,
        .streams = c->streams ? c->streams : c->max_concurrent_streams,
        .max_total_occupancy = (uint32_t)(c->max_total_occupancy * LEASE_WHOLE + 0.5),
        .target_utilization = c->target_utilization,
        .memory_reserve_fraction = c->memory_reserve_fraction,
        .stream_timeout_ns = c->stream_timeout_ms * MS_NS,
        .urgent_ns = c->urgent_threshold_ns,
        .age_ns = c->age_ms * MS_NS,
        .max_slowdown = c->max_slowdown,
    };
    int r = cede_leases_new(&params, &p->leases);
    if (r)
        return r;
    p->holders = calloc(c->capacity, sizeof(*p->holders));
    p->idle = calloc(p->devices, LEVELS * sizeof(*p->idle));
    p->kernels = calloc(1, sizeof(*p->kernels));
    p->utilization = calloc(p->devices, sizeof(*p->utilization));
    if (!p->holders || !p->idle || !p->kernels || !p->utilization)
        return -ENOMEM;
    size_t most = c->max_concurrent_streams < c->capacity ? c->max_concurrent_streams : c->capacity;
    for (unsigned i = 0; i < p->devices * LEVELS; i++) {
        p->idle[i].streams = calloc(most, sizeof(void *));
        if (!p->idle[i].streams)
            return -ENOMEM;
    }
    for (unsigned d = 0; d < p->devices; d++) {
        p->utilization[d] = -1;
        if (p->gpus)
            cede_leases_set_memory(p->leases, d, cede_gpus_memory(p->gpus, d));
    }
    p->poll_ns = p->gpus && c->target_utilization < 100 ? 0 : FAR_NS;
    return 0;
}

static int set_up(struct cede_pool *p)
{
    const struct cede_pool_config *c = &p->config;
    if (c->devices > 4096 || c->capacity < 1 || c->capacity > LEASE_CAPACITY_MAX ||
        !(c->max_total_occupancy >= 0 && c->max_total_occupancy <= 1) ||
        (c->flags & ~(unsigned)CEDE_POOL_NO_GPU) || c->urgent_threshold_ns > FAR_NS ||
        c->target_utilization > 100)
        return -EINVAL;
    int r = c->flags & CEDE_POOL_NO_GPU ? -ENODEV
                                        : cede_gpus_open(&p->gpus, p->error, sizeof(p->error));
    if (r == -ENOMEM)
        return r;
    if (p->gpus && cede_gpus_count(p->gpus) < c->devices)
        return -ENODEV;
    p->devices = c->devices ? c->devices : p->gpus ? cede_gpus_count(p->gpus) : 1;
    return fill(p);
}

CLIENT_API int cede_pool_open(const struct cede_pool_config *config, struct cede_pool **out)
{
    static bool watching;
    struct cede_pool *p = table;
    int r = 0;
    if (!out)
        return -EINVAL;
    *out = NULL;
    if (config && config->size != sizeof(*config))
        return -EINVAL;
    pthread_mutex_lock(&table_lock);
    while (p < table + CEDE_POOLS_MAX && p->open) /* written under both locks */
        p++;
    if (p == table + CEDE_POOLS_MAX)
        r = -EMFILE;
    else if (!watching)
        r = -pthread_atfork(NULL, NULL, in_child);
    watching |= r == 0;
    if (r == 0) {
        if (config)
            p->config = *config;
        else
            cede_pool_defaults(&p->config);
        p->error[0] = '\0';
        p->inside = p->held = 0;
        p->polling = false;
        r = set_up(p);
        if (r)
            empty(p);
    }
    if (r == 0) {
        pthread_mutex_lock(&p->lock);
        p->generation++;
        p->open = true;
        pthread_mutex_unlock(&p->lock);
        *out = p;
    }
    pthread_mutex_unlock(&table_lock);
    return r;
}

static bool is_pool(const struct cede_pool *p)
{
    return p >= table && p < table + CEDE_POOLS_MAX;
}

/* The pool's lock is held with 0. */
static int enter(struct cede_pool *p)
{
    if (!is_pool(p))
        return -EINVAL;
    pthread_mutex_lock(&p->lock);
    if (p->open)
        return 0;
    pthread_mutex_unlock(&p->lock);
    return -ESHUTDOWN;
}

/* Out of the lock for the driver, and back; the pool stays until then. */
static void step_out(struct cede_pool *p)
{
    p->inside++;
    pthread_mutex_unlock(&p->lock);
}

static void step_in(struct cede_pool *p)
{
    pthread_mutex_lock(&p->lock);
    if (--p->inside == 0)
        pthread_cond_broadcast(&p->left);
}

CLIENT_API int cede_pool_close(struct cede_pool *p)
{
    if (!is_pool(p))
        return -EINVAL;
    pthread_mutex_lock(&table_lock);
    if (enter(p) < 0) {
        pthread_mutex_unlock(&table_lock);
        return -EINVAL;
    }
    p->open = false;
    p->generation++;
    for (uint32_t i = 0; i < p->config.capacity; i++) {
        if (p->holders[i].waiter)
            pthread_cond_signal(&p->holders[i].waiter->cond);
    }
    while (p->inside)
        pthread_cond_wait(&p->left, &p->lock);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; p->gpus && i < p->devices * LEVELS; i++) {
        while (p->idle[i].n)
            cede_gpus_stream_end(p->gpus, i / LEVELS, p->idle[i].streams[--p->idle[i].n]);
    }
    for (uint32_t i = 0; p->gpus && i < p->config.capacity; i++) {
        if (p->holders[i].stream)
            cede_gpus_stream_end(p->gpus, p->holders[i].device, p->holders[i].stream);
    }
    empty(p);
    pthread_mutex_unlock(&table_lock);
    return 0;
}

/* ---- kernels --------------------------------------------------------------------------------- */

CLIENT_API int cede_pool_kernel(struct cede_pool *p, const char *name, void *function)
{
    int r = function ? enter(p) : -EINVAL;
    if (r)
        return r;
    r = cede_kernels_set(p->kernels, name, function, p->gpus ? cede_gpus_context(p->gpus) : NULL,
                         0);
    pthread_mutex_unlock(&p->lock);
    return r;
}

CLIENT_API int cede_pool_occupancy(struct cede_pool *p, const char *name, double occupancy)
{
    int r = occupancy >= 0 && occupancy <= 1 ? enter(p) : -EINVAL;
    if (r)
        return r;
    r = cede_kernels_set(p->kernels, name, NULL, NULL, (uint32_t)(occupancy * LEASE_WHOLE + 0.5));
    pthread_mutex_unlock(&p->lock);
    return r;
}

/* With the lock held, which it may give up meanwhile. */
static int ask_driver(struct cede_pool *p, const struct kernel *f, const struct cede_shape *s,
                      struct gpu_profile *out)
{
    struct kernel copy = *f;
    char why[sizeof(p->error)];
    step_out(p);
    int r = cede_gpus_profile(p->gpus, copy.context, copy.function, s->threads, s->shared_bytes,
                              out, why, sizeof(why));
    step_in(p);
    if (r)
        memcpy(p->error, why, sizeof(why));
    else if (p->open)
        cede_kernels_learn(p->kernels, &copy, s, out);
    return p->open ? r : -ESHUTDOWN;
}

static int measure(struct cede_pool *p, const char *kernel, const struct cede_shape *s,
                   struct lease_ask *a)
{
    const struct kernel *f = kernel ? cede_kernels_find(p->kernels, kernel) : NULL;
    if (!kernel)
        return 0;
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
    struct gpu_profile told;
    const struct gpu_profile *known = cede_kernels_profile(p->kernels, f, s);
    if (!known) {
        int r = ask_driver(p, f, s, &told);
        if (r)
            return r;
        known = &told;
    }
    a->occupancy = cede_profile_share(known, s->blocks);
    return 0;
}

/* ---- acquiring ------------------------------------------------------------------------------- */

static uint64_t later(uint64_t now_ns, uint64_t n, uint64_t unit_ns)
{
    return n < FAR_NS / unit_ns ? now_ns + n * unit_ns : TIME_NEVER;
}

/* Whoever may start now, or gave up waiting, is told. */
static void settle(struct cede_pool *p, uint64_t now_ns)
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

/* How busy the GPUs are, if it is time to look; gives up the lock meanwhile. */
static void look(struct cede_pool *p, uint64_t now_ns)
{
    if (now_ns < p->poll_ns || p->polling || !p->held)
        return;
    p->polling = true;
    p->poll_ns = later(now_ns, p->config.utilization_polling_ms, MS_NS);
    for (unsigned d = 0; d < p->devices && p->open; d++) {
        unsigned percent = 0;
        step_out(p);
        int r = cede_gpus_utilization(p->gpus, d, &percent);
        step_in(p);
        if (!p->open)
            return;
        p->utilization[d] = r ? -1 : (int)percent;
        cede_leases_set_utilization(p->leases, d, r ? SLOT_NONE : percent);
    }
    p->polling = false;
}

static int wait_for(struct cede_pool *p, struct waiter *w, uint64_t id, uint64_t until_ns)
{
    cede_cond_init(&w->cond);
    p->holders[lease_slot(id)].waiter = w;
    p->inside++;
    while (p->open && !w->done && !(w->owner && cede_scope_stopped(w->owner))) {
        uint64_t now_ns = cede_client_now_ns(), wake_ns = until_ns < FAR_NS ? until_ns : FAR_NS;
        look(p, now_ns);
        if (!p->open)
            break;
        settle(p, now_ns);
        if (w->done)
            break;
        if (p->config.streams && p->config.streams < p->config.max_concurrent_streams) {
            uint64_t next_ns =
                cede_leases_next_ns(p->leases); /* the first may lack a stream alone */
            wake_ns = next_ns < wake_ns ? next_ns : wake_ns;
        }
        wake_ns = p->poll_ns < wake_ns ? p->poll_ns : wake_ns;
        struct timespec t = cede_timespec(wake_ns);
        pthread_cond_timedwait(&w->cond, &p->lock, &t);
    }
    int r = !p->open ? -ESHUTDOWN : w->done && w->event.gate ? -ETIMEDOUT : 0;
    if (!r && !w->done) {
        r = cede_scope_stopped(w->owner);
        cede_leases_cancel(p->leases, id);
        p->holders[lease_slot(id)].waiter = NULL;
        settle(p, cede_client_now_ns());
    }
    if (--p->inside == 0)
        pthread_cond_broadcast(&p->left);
    pthread_cond_destroy(&w->cond);
    return r;
}

static int end(struct cede_pool *p, uint64_t id)
{
    uint64_t now_ns = cede_client_now_ns();
    if (cede_leases_release(p->leases, id, now_ns) < 0)
        return -ESTALE;
    struct holder *h = &p->holders[lease_slot(id)];
    struct idle *i = &p->idle[h->device * LEVELS + h->level];
    if (h->stream)
        i->streams[i->n++] = h->stream;
    *h = (struct holder){0};
    p->held--;
    settle(p, now_ns);
    return 0;
}

/* A started lease gets its stream; without one it ends. */
static int equip(struct cede_pool *p, const struct lease_event *e, const struct cede_scope *owner,
                 int priority)
{
    struct holder *h = &p->holders[lease_slot(e->id)];
    unsigned level = e->urgent || priority >= LEVELS ? LEVELS - 1
                     : priority < 0                  ? 0
                                                     : (unsigned)priority;
    *h = (struct holder){.id = e->id, .owner = owner, .device = e->device, .level = (uint8_t)level};
    struct idle *i = &p->idle[e->device * LEVELS + level];
    p->held++;
    if (!p->gpus)
        return 0;
    if (i->n) {
        h->stream = i->streams[--i->n];
        return 0;
    }
    char why[sizeof(p->error)];
    void *stream = NULL;
    step_out(p);
    int r = cede_gpus_stream(p->gpus, e->device, level, &stream, why, sizeof(why));
    step_in(p);
    h->stream = stream; /* for whoever closes the pool */
    if (!p->open)
        return -ESHUTDOWN;
    if (r) {
        memcpy(p->error, why, sizeof(why));
        end(p, e->id);
    }
    return r;
}

static int acquire(struct cede_pool *p, const struct cede_scope *owner, int device,
                   const char *kernel, const struct cede_shape *s, int64_t timeout_us,
                   struct cede_lease *out)
{
    bool only = device >= 0 && (device & ONLY);
    struct lease_ask a = {.preferred = device < 0 ? SLOT_NONE : (uint32_t)device & (ONLY - 1),
                          .only = only,
                          .priority = s->priority,
                          .memory_bytes = s->memory_bytes};
    struct waiter w = {.owner = owner};
    if (device < CEDE_ANY_DEVICE || device >= 2 * ONLY ||
        (device >= 0 && a.preferred >= p->devices))
        return -EINVAL;
    int r = measure(p, kernel, s, &a);
    if (r)
        return r;
    uint64_t now_ns = cede_client_now_ns();
    look(p, now_ns);
    if (!p->open)
        return -ESHUTDOWN;
    a.deadline_ns = s->due_us ? later(now_ns, s->due_us, US_NS) : TIME_NEVER;
    a.until_ns = timeout_us < 0 ? later(now_ns, p->config.block_timeout_ms, MS_NS)
                                : later(now_ns, (uint64_t)timeout_us, US_NS);
    if (owner && timeout_us && cede_scope_deadline_ns(owner) < a.until_ns)
        a.until_ns = cede_scope_deadline_ns(owner);
    r = cede_leases_ask(p->leases, &a, now_ns, &w.event);
    if (r == -EINPROGRESS)
        r = wait_for(p, &w, w.event.id, a.until_ns);
    if (!r)
        r = equip(p, &w.event, owner, s->priority);
    if (!r)
        *out = (struct cede_lease){
            .stream = p->holders[lease_slot(w.event.id)].stream,
            .device = (int)w.event.device,
            .urgent = w.event.urgent,
            .opaque = {p->generation * CEDE_POOLS_MAX + (uint64_t)(p - table), w.event.id}};
    return r;
}

int cede_lease_acquire(struct cede_pool *p, struct cede_scope *owner, int device,
                       const char *kernel, const struct cede_shape *shape, int64_t timeout_us,
                       struct cede_lease *out)
{
    static const struct cede_shape none;
    int r = out ? enter(p) : -EINVAL;
    if (r)
        return r;
    r = acquire(p, owner, device, kernel, shape ? shape : &none, timeout_us, out);
    pthread_mutex_unlock(&p->lock);
    return r;
}

CLIENT_API int cede_acquire(struct cede_pool *p, int device, const char *kernel,
                            const struct cede_shape *shape, int64_t timeout_us,
                            struct cede_lease *out)
{
    return cede_lease_acquire(p, NULL, device, kernel, shape, timeout_us, out);
}

CLIENT_API int cede_try_acquire(struct cede_pool *p, int device, const char *kernel,
                                const struct cede_shape *shape, struct cede_lease *out)
{
    return cede_lease_acquire(p, NULL, device, kernel, shape, 0, out);
}

/* ---- releasing ------------------------------------------------------------------------------- */

CLIENT_API int cede_release(const struct cede_lease *lease)
{
    if (!lease || !lease->opaque[0])
        return -EINVAL;
    struct cede_pool *p = &table[lease->opaque[0] % CEDE_POOLS_MAX];
    if (enter(p) < 0)
        return -ESTALE;
    int r = p->generation == lease->opaque[0] / CEDE_POOLS_MAX ? end(p, lease->opaque[1]) : -ESTALE;
    pthread_mutex_unlock(&p->lock);
    return r;
}

void cede_lease_release_all(const struct cede_scope *owner)
{
    for (struct cede_pool *p = table; p < table + CEDE_POOLS_MAX; p++) {
        if (enter(p) < 0)
            continue;
        for (uint32_t i = 0; p->held && i < p->config.capacity; i++) {
            if (p->holders[i].id && p->holders[i].owner == owner)
                end(p, p->holders[i].id);
        }
        pthread_mutex_unlock(&p->lock);
    }
}

void cede_lease_wake_scopes(void)
{
    for (struct cede_pool *p = table; p < table + CEDE_POOLS_MAX; p++) {
        if (enter(p) < 0)
            continue;
        for (uint32_t i = 0; p->inside && i < p->config.capacity; i++) {
            if (p->holders[i].waiter && p->holders[i].waiter->owner)
                pthread_cond_signal(&p->holders[i].waiter->cond);
        }
        pthread_mutex_unlock(&p->lock);
    }
}

/* ---- statistics ------------------------------------------------------------------------------ */

CLIENT_API int cede_pool_get_statistics(struct cede_pool *p, int device,
                                        struct cede_pool_statistics *out, size_t size)
{
    int r = out && size == sizeof(*out) ? enter(p) : -EINVAL;
    if (r)
        return r;
    if (device < 0 || (unsigned)device >= p->devices) {
        pthread_mutex_unlock(&p->lock);
        return -EINVAL;
    }
    struct lease_view v = cede_leases_view(p->leases, (uint32_t)device, cede_client_now_ns());
    *out = (struct cede_pool_statistics){
        .devices = p->devices,
        .has_gpu = p->gpus != NULL,
        .utilization = p->utilization[device],
        .active = v.active,
        .waiting = v.waiting,
        .limit = v.limit,
        .occupancy = (double)v.occupancy / LEASE_WHOLE,
        .started = v.started,
        .timed_out = v.timed_out,
        .stolen = v.stolen,
        .busy_us = v.busy_ns / US_NS,
    };
    memcpy(out->error, p->error, sizeof(out->error));
    pthread_mutex_unlock(&p->lock);
    return 0;
}
