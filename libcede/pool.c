/* libcede: opens and closes pools, registers kernels; see cede/lease.h, pool.h. */
#include "libcede/pool.h"

#include <errno.h>
#include <stdlib.h>

#include "libcede/clock.h"
#include "libcede/error.h"
#include "libcede/handle.h"

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
struct cede_pool cede_pool_table[CEDE_POOLS_MAX] = SLOTS(CEDE_POOLS_MAX);

/* ---- opening --------------------------------------------------------------------------------- */

CEDE_API void cede_pool_defaults(struct cede_pool_config *c)
{
    *c = (struct cede_pool_config){
        .size = sizeof(*c),
        .capacity = 1024,
        .max_concurrent_streams = 16,
        .target_utilization_percent = 100,
        .utilization_polling_us = 200000,
        .block_timeout_us = 5000000,
        .stream_timeout_us = 1000000,
        .age_us = 1000000,
        .urgent_us = 1000,
        .max_total_occupancy = 2,
        .unknown_occupancy = 0.25,
        .memory_reserve_fraction = 0.1,
        .displace = 2,
    };
}

/* As before its first opening, but for the generation. */
static void pool_empty(struct cede_pool *p)
{
    cede_leases_free(p->leases);
    cede_gpus_close(p->gpus);
    free(p->devices);
    free(p->data);
    free(p->idle);
    free(p->kernels);
    memset(&p->leases, 0, sizeof(*p) - offsetof(struct cede_pool, leases));
}

static void pool_in_child(void)
{
    pthread_mutex_init(&table_lock, NULL);
    for (struct cede_pool *p = cede_pool_table; p < cede_pool_table + CEDE_POOLS_MAX; p++)
        slot_in_child(SLOT(p), sizeof(*p));
}

static bool pool_config_valid(const struct cede_pool_config *c)
{
    return SIZED(c->size, *c) &&
           SETTINGS(FLAGS(c, CEDE_POOL_NO_GPU | CEDE_POOL_REPORT_ALL),
                    SETTING(c, devices, 0, LEASE_DEVICES_MAX),
                    SETTING(c, capacity, 1, LEASE_CAPACITY_MAX),
                    SETTING(c, max_concurrent_streams, 1, LEASE_CAPACITY_MAX),
                    SETTING(c, streams, 0, LEASE_CAPACITY_MAX),
                    SETTING(c, target_utilization_percent, 0, 100),
                    SETTING(c, urgent_us, 0, MOST_US),
                    SETTING(c, max_total_occupancy, 0, LEASE_OCCUPANCY_MAX),
                    SETTING(c, unknown_occupancy, 0, 1),
                    SETTING(c, memory_reserve_fraction, 0, 0.999999),
                    SETTING(c, displace, 0, LEASE_CAPACITY_MAX), SETTING(c, reserved, 0, 0)) &&
           TIMEOUT_SETTING(c, block_timeout_us, false) &&
           TIMEOUT_SETTING(c, stream_timeout_us, false) &&
           IS(c->max_slowdown == 0 || (c->max_slowdown >= 1 && c->max_slowdown <= 1e6),
              "max_slowdown is %g: give 0 for the default, or 1 to 1000000", c->max_slowdown);
}

static int pool_fill(struct cede_pool *p)
{
    struct cede_pool_config *c = &p->config;
    int r = c->flags & CEDE_POOL_NO_GPU ? -ENODEV : cede_gpus_open_one(-1, &p->gpus, &p->error);
    if (r == -ENOMEM)
        return r;
    unsigned there = p->gpus ? cede_gpus_count(p->gpus) : 0;
    if (p->gpus && there < c->devices)
        return cede_fail(-ENODEV, "devices is %u: give 0 to %u, which there are", c->devices,
                         there);
    c->devices = c->devices ? c->devices : there ? there : 1;
    r = cede_leases_new(c, &p->leases);
    if (r)
        return r;
    p->devices = calloc(c->devices, sizeof(*p->devices));
    p->data = calloc(c->capacity, sizeof(*p->data));
    p->idle =
        calloc(p->gpus ? (size_t)c->devices * POOL_LEVELS : 1, pool_streams(c) * sizeof(void *));
    p->kernels = calloc(1, sizeof(*p->kernels));
    if (!p->devices || !p->data || !p->idle || !p->kernels)
        return -ENOMEM;
    for (unsigned d = 0; d < c->devices; d++) {
        p->devices[d].utilization = -1;
        uint64_t bytes = p->gpus ? cede_gpus_facts(p->gpus, d)->memory_bytes : 0;
        cede_leases_set_memory(p->leases, d, bytes, bytes);
    }
    p->poll_ns = p->gpus && c->target_utilization_percent < 100 ? 0 : FAR_NS;
    return 0;
}

CEDE_API int cede_pool_open(const struct cede_pool_config *config, struct cede_pool **out)
{
    static bool watching; /* forks */
    struct cede_pool_config c;
    struct cede_pool *p = cede_pool_table;
    LONG_CALL(GIVEN(out));
    *out = NULL;
    cede_pool_defaults(&c);
    c = config ? *config : c;
    if (!pool_config_valid(&c))
        return -EINVAL;
    HOLD(&table_lock);
    while (p < cede_pool_table + CEDE_POOLS_MAX && p->open) /* written under both locks */
        p++;
    int r = p == cede_pool_table + CEDE_POOLS_MAX ? -EMFILE
            : watching                            ? 0
                                                  : -pthread_atfork(NULL, NULL, pool_in_child);
    watching |= r == 0;
    if (r == 0) {
        p->config = c;
        r = pool_fill(p);
        if (r)
            pool_empty(p);
    }
    if (r)
        return SAY(r, {-EMFILE, "CEDE_POOLS_MAX pools are open: close one"});
    pthread_mutex_lock(&p->lock);
    p->generation++;
    p->open = true;
    pthread_mutex_unlock(&p->lock);
    *out = p;
    return cede_succeed();
}

int cede_pool_no_device(const struct cede_pool *p, int device)
{
    return cede_fail(-EINVAL, "the pool has no device %d: " GIVE_0_TO, device,
                     UP_TO(p->config.devices - 1));
}

int cede_pool_closed(void)
{
    return cede_fail(-ESHUTDOWN, "the pool is closed, in a forked child too: open another");
}

int cede_pool_enter(struct cede_pool *p)
{
    if (p < cede_pool_table || p >= cede_pool_table + CEDE_POOLS_MAX)
        return cede_fail(-EINVAL, "%p is no pool: give what cede_pool_open() has set", (void *)p);
    return slot_enter(SLOT(p)) ? 0 : cede_pool_closed();
}

CEDE_API int cede_pool_close(struct cede_pool *p)
{
    LONG_CALL(ALWAYS);
    HOLD(&table_lock);
    if (!p || cede_pool_enter(p) < 0)
        return p ? -EINVAL : 0;
    p->open = false;
    p->generation++;
    SLOT_WAKE(p, false);
    while (p->inside)
        pthread_cond_wait(&p->left, &p->lock);
    for (uint32_t i = 0; i < p->config.capacity; i++) {
        if (p->data[i].reported)
            cede_request_finish(p->config.client, &p->data[i].request, true);
    }
    pthread_mutex_unlock(&p->lock);
    if (cede_owner_closed)
        cede_owner_closed(p);
    for (unsigned i = 0; p->gpus && i < p->config.devices * POOL_LEVELS; i++) {
        uint32_t device = i / POOL_LEVELS, level = i % POOL_LEVELS;
        for (uint32_t k = 0; k < p->devices[device].idle[level]; k++)
            cede_gpus_stream_end(p->gpus, device, pool_idle(p, device, level)[k]);
    }
    for (uint32_t i = 0; p->gpus && i < p->config.capacity; i++) {
        if (p->data[i].stream)
            cede_gpus_stream_end(p->gpus, p->data[i].device, p->data[i].stream);
    }
    pool_empty(p);
    return 0;
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* function: NULL, or the kernel's, whose context is current. */
static int pool_set_kernel(struct cede_pool *p, const char *name, void *function, double occupancy)
{
    POOL_ENTER(p);
    r = cede_kernels_set(p->kernels, name, function,
                         function && p->gpus ? cede_gpus_context(p->gpus) : NULL,
                         (uint32_t)(occupancy * LEASE_WHOLE + 0.5));
    return SAY(r, {-EINVAL, "a name of 0 or of more than 63 bytes: give one of 1 to 63"},
               {-ENOSPC, "the pool has CEDE_KERNELS_MAX kernels: use fewer names"});
}

CEDE_API int cede_pool_kernel(struct cede_pool *p, const char *name, void *function)
{
    LONG_CALL(GIVEN(function) && GIVEN(name));
    return pool_set_kernel(p, name, function, 0);
}

CEDE_API int cede_pool_occupancy(struct cede_pool *p, const char *name, double occupancy)
{
    CALL(GIVEN(name) && IS(occupancy >= 0 && occupancy <= 1,
                           "an occupancy of %g: give a share of a GPU, 0 to 1", occupancy));
    return pool_set_kernel(p, name, NULL, occupancy);
}

/* ---- statistics ------------------------------------------------------------------------------ */

CEDE_API int cede_pool_get_statistics(struct cede_pool *p, int device,
                                      struct cede_pool_statistics *out, size_t size)
{
    CALL(GIVEN(out) && SIZED(size, *out));
    POOL_ENTER(p);
    if (device < 0 || (unsigned)device >= p->config.devices)
        return cede_pool_no_device(p, device);
    struct lease_view v = cede_leases_view(p->leases, (uint32_t)device, cede_clock_now_ns());
    *out = (struct cede_pool_statistics){
        .devices = p->config.devices,
        .has_gpu = p->gpus != NULL,
        .utilization_percent = p->devices[device].utilization,
        .active = v.active,
        .waiting = v.waiting,
        .limit = v.limit,
        .occupancy = (double)v.occupancy / LEASE_WHOLE,
        .started = v.started,
        .timed_out = v.timed_out,
        .stolen = v.stolen,
        .displaced = v.displaced,
        .busy_us = v.busy_ns / NSEC_PER_USEC,
    };
    memcpy(out->waits, v.waits, sizeof(out->waits));
    _Static_assert(sizeof(out->error) == sizeof(p->error.text), "one length");
    memcpy(out->error, p->error.text, sizeof(out->error));
    return 0;
}
