/* libcede: opens and closes pools, and keeps what they know of kernels; see cede/lease.h, pool.h.
 */
#include "libcede/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libcede/api.h"
#include "libcede/clock.h"

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
struct cede_pool cede_pool_table[CEDE_POOLS_MAX] = {
    [0 ... CEDE_POOLS_MAX - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                  .left = PTHREAD_COND_INITIALIZER}};

/* ---- opening --------------------------------------------------------------------------------- */

CEDE_API void cede_pool_defaults(struct cede_pool_config *c)
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
        .stream_timeout_ms = (unsigned)(p.stream_timeout_ns / CLOCK_MS_NS),
        .age_ms = (unsigned)(p.age_ns / CLOCK_MS_NS),
        .max_total_occupancy = (double)p.max_total_occupancy / LEASE_WHOLE,
        .memory_reserve_fraction = p.memory_reserve_fraction,
        .max_slowdown = p.max_slowdown,
        .urgent_threshold_ns = p.urgent_ns,
    };
}

/* Clears the pointers without freeing what they point to. */
static void pool_forget(struct cede_pool *p)
{
    p->leases = NULL;
    p->gpus = NULL;
    p->holders = NULL;
    p->idle = NULL;
    p->kernels = NULL;
    p->utilization = NULL;
}

static void pool_empty(struct cede_pool *p)
{
    for (unsigned i = 0; p->idle && i < p->devices * POOL_LEVELS; i++)
        free(p->idle[i].streams);
    cede_leases_free(p->leases);
    cede_gpus_close(p->gpus);
    free(p->holders);
    free(p->idle);
    free(p->kernels);
    free(p->utilization);
    pool_forget(p);
}

/* The parent's locks and streams are not the child's: its pools are closed, what they had is left
 * alone. */
static void pool_in_child(void)
{
    pthread_mutex_init(&table_lock, NULL);
    for (struct cede_pool *p = cede_pool_table; p < cede_pool_table + CEDE_POOLS_MAX; p++) {
        pthread_mutex_init(&p->lock, NULL);
        pthread_cond_init(&p->left, NULL);
        p->generation++;
        p->open = false;
        pool_forget(p);
    }
}

static int pool_fill(struct cede_pool *p)
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
        .stream_timeout_ns = c->stream_timeout_ms * CLOCK_MS_NS,
        .urgent_ns = c->urgent_threshold_ns,
        .age_ns = c->age_ms * CLOCK_MS_NS,
        .max_slowdown = c->max_slowdown,
    };
    int r = cede_leases_new(&params, &p->leases);
    if (r)
        return r;
    p->holders = calloc(c->capacity, sizeof(*p->holders));
    p->idle = calloc(p->devices, POOL_LEVELS * sizeof(*p->idle));
    p->kernels = calloc(1, sizeof(*p->kernels));
    p->utilization = calloc(p->devices, sizeof(*p->utilization));
    if (!p->holders || !p->idle || !p->kernels || !p->utilization)
        return -ENOMEM;
    size_t most = c->max_concurrent_streams < c->capacity ? c->max_concurrent_streams : c->capacity;
    for (unsigned i = 0; i < p->devices * POOL_LEVELS; i++) {
        p->idle[i].streams = calloc(most, sizeof(void *));
        if (!p->idle[i].streams)
            return -ENOMEM;
    }
    for (unsigned d = 0; d < p->devices; d++) {
        p->utilization[d] = -1;
        if (p->gpus)
            cede_leases_set_memory(p->leases, d, cede_gpus_memory(p->gpus, d));
    }
    p->poll_ns = p->gpus && c->target_utilization < 100 ? 0 : CLOCK_FAR_NS;
    return 0;
}

static int pool_set_up(struct cede_pool *p)
{
    const struct cede_pool_config *c = &p->config;
    if (c->devices > 4096 || c->capacity < 1 || c->capacity > LEASE_CAPACITY_MAX ||
        !(c->max_total_occupancy >= 0 && c->max_total_occupancy <= 1) ||
        (c->flags & ~(unsigned)CEDE_POOL_NO_GPU) || c->urgent_threshold_ns > CLOCK_FAR_NS ||
        c->target_utilization > 100)
        return -EINVAL;
    int r = c->flags & CEDE_POOL_NO_GPU ? -ENODEV : cede_gpus_open(&p->gpus, &p->error);
    if (r == -ENOMEM)
        return r;
    if (p->gpus && cede_gpus_count(p->gpus) < c->devices)
        return -ENODEV;
    p->devices = c->devices ? c->devices : p->gpus ? cede_gpus_count(p->gpus) : 1;
    return pool_fill(p);
}

CEDE_API int cede_pool_open(const struct cede_pool_config *config, struct cede_pool **out)
{
    static bool watching; /* forks */
    struct cede_pool *p = cede_pool_table;
    int r = 0;
    if (!out)
        return -EINVAL;
    *out = NULL;
    if (config && config->size != sizeof(*config))
        return -EINVAL;
    pthread_mutex_lock(&table_lock);
    while (p < cede_pool_table + CEDE_POOLS_MAX && p->open) /* written under both locks */
        p++;
    if (p == cede_pool_table + CEDE_POOLS_MAX)
        r = -EMFILE;
    else if (!watching)
        r = -pthread_atfork(NULL, NULL, pool_in_child);
    watching |= r == 0;
    if (r == 0) {
        if (config)
            p->config = *config;
        else
            cede_pool_defaults(&p->config);
        p->error.text[0] = '\0';
        p->inside = p->held = 0;
        p->polling = false;
        r = pool_set_up(p);
        if (r)
            pool_empty(p);
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

static bool pool_valid(const struct cede_pool *p)
{
    return p >= cede_pool_table && p < cede_pool_table + CEDE_POOLS_MAX;
}

int cede_pool_enter(struct cede_pool *p)
{
    if (!pool_valid(p))
        return -EINVAL;
    pthread_mutex_lock(&p->lock);
    if (p->open)
        return 0;
    pthread_mutex_unlock(&p->lock);
    return -ESHUTDOWN;
}

void cede_pool_step_out(struct cede_pool *p)
{
    p->inside++;
    pthread_mutex_unlock(&p->lock);
}

void cede_pool_step_in(struct cede_pool *p)
{
    pthread_mutex_lock(&p->lock);
    if (--p->inside == 0)
        pthread_cond_broadcast(&p->left);
}

CEDE_API int cede_pool_close(struct cede_pool *p)
{
    if (!pool_valid(p))
        return -EINVAL;
    pthread_mutex_lock(&table_lock);
    if (cede_pool_enter(p) < 0) {
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
    for (unsigned i = 0; p->gpus && i < p->devices * POOL_LEVELS; i++) {
        while (p->idle[i].n)
            cede_gpus_stream_end(p->gpus, i / POOL_LEVELS, p->idle[i].streams[--p->idle[i].n]);
    }
    for (uint32_t i = 0; p->gpus && i < p->config.capacity; i++) {
        if (p->holders[i].stream)
            cede_gpus_stream_end(p->gpus, p->holders[i].device, p->holders[i].stream);
    }
    pool_empty(p);
    pthread_mutex_unlock(&table_lock);
    return 0;
}

/* ---- kernels --------------------------------------------------------------------------------- */

CEDE_API int cede_pool_kernel(struct cede_pool *p, const char *name, void *function)
{
    int r = function ? cede_pool_enter(p) : -EINVAL;
    if (r)
        return r;
    r = cede_kernels_set(p->kernels, name, function, p->gpus ? cede_gpus_context(p->gpus) : NULL,
                         0);
    pthread_mutex_unlock(&p->lock);
    return r;
}

CEDE_API int cede_pool_occupancy(struct cede_pool *p, const char *name, double occupancy)
{
    int r = occupancy >= 0 && occupancy <= 1 ? cede_pool_enter(p) : -EINVAL;
    if (r)
        return r;
    r = cede_kernels_set(p->kernels, name, NULL, NULL, (uint32_t)(occupancy * LEASE_WHOLE + 0.5));
    pthread_mutex_unlock(&p->lock);
    return r;
}

/* ---- statistics ------------------------------------------------------------------------------ */

CEDE_API int cede_pool_get_statistics(struct cede_pool *p, int device,
                                      struct cede_pool_statistics *out, size_t size)
{
    int r = out && size == sizeof(*out) ? cede_pool_enter(p) : -EINVAL;
    if (r)
        return r;
    if (device < 0 || (unsigned)device >= p->devices) {
        pthread_mutex_unlock(&p->lock);
        return -EINVAL;
    }
    struct lease_view v = cede_leases_view(p->leases, (uint32_t)device, cede_clock_now_ns());
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
        .busy_us = v.busy_ns / CLOCK_US_NS,
    };
    _Static_assert(sizeof(out->error) == sizeof(p->error.text), "one length");
    memcpy(out->error, p->error.text, sizeof(out->error));
    pthread_mutex_unlock(&p->lock);
    return 0;
}
