/* See engine.h: setting an engine up, and what its users ask of it. What follows from that in time
 * is in engine.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/soft/engine_impl.h"

void softgpu_params_h200(struct softgpu_params *p)
{
    /* Measured on one H200, driver 580.159.04; tests/device_soft/calibration.c compares each row.
     */
    *p = (struct softgpu_params){
        /* Busy batch -> latency: 155 us with 33 of 264 blocks, 178 us with all. A request costs a
         * batch program 0.444 ms at 2000/s (there the batch share is most sensitive to it), 0.1 ms
         * its own work: two switches of 172 us. Batch -> batch 205 us: the sums of the shares at
         * timeslices of 3000:1000 and 7500:2500 us. */
        .switch_ns = 145000,
        .save_ns = 30000,
        .restore_ns = 27000,
        /* A 100 us kernel alone: p50 125, p99 133 us; 109 us when requests follow each other within
         * a millisecond. */
        .launch_ns = 25000,
        .launch_warm_ns = 10000,
        .launch_jitter_ns = 9000,
        .warm_ns = 1000000,
        .timeslice_us = 2048, /* what the vendor's library sets */
        .timeslice_call_idle_ns = 155000,
        .timeslice_call_busy_ns = 345000, /* 300-390 us */
        .suspend_call_ns = 600000,
        .resume_call_ns = 320000,
        .seed = 1,
    };
}

/* ---- set-up ---- */

static bool grow(void *array, size_t n, size_t size)
{
    void *p = reallocarray(*(void **)array, n, size);
    if (p)
        *(void **)array = p;
    return p != NULL;
}

int softgpu_reserve(struct softgpu *e, uint32_t groups, uint32_t kernels)
{
    if (groups > UINT32_MAX / 32 || kernels > UINT32_MAX / 32)
        return -EINVAL;
    groups = groups > e->groups_cap ? groups : e->groups_cap;
    kernels = kernels > e->kernels_cap ? kernels : e->kernels_cap;
    /* Twice what there can be, so that they are seldom moved to the front. */
    uint32_t events = 2 * (kernels + groups * CALLS_IN_GROUP);

    /* An array that could grow is kept on failure: only the limits below are what counts. */
    if (!grow(&e->events, events, sizeof(*e->events)) ||
        !grow(&e->groups, groups, sizeof(*e->groups)) ||
        !grow(&e->kernels, kernels, sizeof(*e->kernels)))
        return -ENOMEM;
    memset(e->groups + e->groups_cap, 0, (groups - e->groups_cap) * sizeof(*e->groups));
    e->groups_cap = groups;
    e->events_cap = events;
    while (e->kernels_cap < kernels)
        softgpu_kernel_free(e, e->kernels_cap++);
    return 0;
}

int softgpu_new(const struct softgpu_params *p, uint32_t groups, uint32_t kernels,
                struct softgpu **out)
{
    if (groups == 0 || kernels == 0 || p->timeslice_us < SOFTGPU_TIMESLICE_MIN_US ||
        p->timeslice_us > SOFTGPU_TIMESLICE_MAX_US)
        return -EINVAL;
    struct softgpu *e = calloc(1, sizeof(*e));
    if (!e)
        return -ENOMEM;
    e->p = *p;
    e->random = p->seed;
    e->cur = e->free_kernel = SOFTGPU_NONE;
    e->done = (struct fifo){SOFTGPU_NONE, SOFTGPU_NONE};
    e->idle = true;
    int r = softgpu_reserve(e, groups, kernels);
    if (r < 0) {
        softgpu_free(e);
        return r;
    }
    /* So that the first group in order is the first one on the runlist. */
    e->turn = e->groups_cap - 1;
    *out = e;
    return 0;
}

void softgpu_free(struct softgpu *e)
{
    if (!e)
        return;
    free(e->groups);
    free(e->kernels);
    free(e->events);
    free(e);
}

static bool valid(const struct softgpu *e, uint32_t group)
{
    return group < e->groups_cap && e->groups[group].used;
}

int softgpu_group_add(struct softgpu *e, uint64_t at_ns, uint32_t *group)
{
    softgpu_advance(e, at_ns);
    for (uint32_t i = 0; i < e->groups_cap; i++) {
        struct group *g = &e->groups[i];
        if (g->used)
            continue;
        memset(g, 0, sizeof(*g));
        for (uint32_t s = 0; s < SOFTGPU_STREAMS; s++)
            g->streams[s] = (struct fifo){SOFTGPU_NONE, SOFTGPU_NONE};
        g->used = true;
        g->timeslice_us = e->p.timeslice_us;
        *group = i;
        return 0;
    }
    return -ENOSPC;
}

int softgpu_group_remove(struct softgpu *e, uint32_t group, uint64_t at_ns)
{
    if (!valid(e, group))
        return -EINVAL;
    softgpu_advance(e, at_ns);

    struct group *g = &e->groups[group];
    for (uint32_t s = 0, k; s < SOFTGPU_STREAMS; s++) {
        while ((k = softgpu_fifo_pop(e, &g->streams[s])) != SOFTGPU_NONE)
            softgpu_kernel_free(e, k);
    }
    struct fifo done = e->done;
    e->done = (struct fifo){SOFTGPU_NONE, SOFTGPU_NONE};
    for (uint32_t k; (k = softgpu_fifo_pop(e, &done)) != SOFTGPU_NONE;) {
        if (e->kernels[k].group == group)
            softgpu_kernel_free(e, k);
        else
            softgpu_fifo_push(e, &e->done, k);
    }
    uint32_t n = e->events_first;
    for (uint32_t i = n; i < e->events_end; i++) {
        if (e->events[i].group != group)
            e->events[n++] = e->events[i];
        else if (e->events[i].kernel != SOFTGPU_NONE)
            softgpu_kernel_free(e, e->events[i].kernel);
        else
            e->calls_n--;
    }
    e->events_end = n;

    g->used = false;
    softgpu_update_ready(e, group);
    if (e->cur == group)
        e->cur = SOFTGPU_NONE; /* a switch to it still takes its time */
    softgpu_settle(e);
    return 0;
}

int softgpu_hold(struct softgpu *e, uint32_t group, bool on, uint64_t at_ns)
{
    if (!valid(e, group))
        return -EINVAL;
    softgpu_advance(e, at_ns);
    e->groups[group].held = on;
    softgpu_update_ready(e, group);
    softgpu_settle(e);
    return 0;
}

int softgpu_group_info(const struct softgpu *e, uint32_t group, struct softgpu_group_info *out)
{
    if (!valid(e, group))
        return -EINVAL;
    const struct group *g = &e->groups[group];
    *out = (struct softgpu_group_info){
        .busy_ns = g->busy_ns,
        .bursts = g->bursts,
        .timeslice_us = g->timeslice_us,
        .kernels = g->kernels,
        .suspended = g->suspended,
    };
    return 0;
}

/* ---- work and controls ---- */

/* Host overhead: mostly the plain value, one in a hundred nearly all of the jitter on top: u^8 for
 * u even in 0..1. */
static uint64_t launch_time(struct softgpu *e, const struct group *g)
{
    e->random = e->random * 6364136223846793005ULL + 1442695040888963407ULL;
    uint64_t u = e->random >> 48;
    for (int i = 0; i < 3; i++)
        u = u * u >> 16;
    bool warm = g->kernels > 0 || (g->last_end_ns && e->now_ns - g->last_end_ns < e->p.warm_ns);
    return (warm ? e->p.launch_warm_ns : e->p.launch_ns) + (u * e->p.launch_jitter_ns >> 16);
}

int softgpu_submit(struct softgpu *e, uint32_t group, const struct softgpu_kernel *k,
                   uint64_t at_ns)
{
    /* A year of nanoseconds: sums of such times cannot overflow. */
    if (!valid(e, group) || k->stream >= SOFTGPU_STREAMS || k->duration_ns == 0 ||
        k->duration_ns > 31536000ULL * 1000000000 || !(k->sm_fraction > 0) ||
        !(k->sm_fraction <= 1))
        return -EINVAL;
    if (e->free_kernel == SOFTGPU_NONE)
        return -ENOSPC;
    softgpu_advance(e, at_ns);

    struct group *g = &e->groups[group];
    uint64_t arrival_ns = e->now_ns + launch_time(e, g);
    arrival_ns = max_ns(arrival_ns, g->last_arrival_ns[k->stream]); /* a stream keeps its order */
    g->last_arrival_ns[k->stream] = arrival_ns;
    g->kernels++;

    uint32_t fraction = (uint32_t)(k->sm_fraction * (float)ONE);
    uint32_t i = e->free_kernel;
    e->free_kernel = e->kernels[i].next;
    e->kernels[i] = (struct kernel){
        .submit_ns = e->now_ns,
        .duration_ns = k->duration_ns,
        .cookie = k->cookie,
        .collective = k->collective,
        .ranks = k->ranks,
        .group = group,
        .stream = k->stream,
        .fraction = fraction ? fraction : 1,
        .next = SOFTGPU_NONE,
    };
    softgpu_event_push(e, (struct event){.at_ns = arrival_ns, .group = group, .kernel = i});
    return 0;
}

int softgpu_control(struct softgpu *e, uint32_t group, enum softgpu_call call,
                    uint32_t timeslice_us, uint64_t at_ns, uint64_t *done_ns)
{
    if (!valid(e, group) ||
        (call == SOFTGPU_TIMESLICE &&
         (timeslice_us < SOFTGPU_TIMESLICE_MIN_US || timeslice_us > SOFTGPU_TIMESLICE_MAX_US)))
        return -EINVAL;
    if (e->calls_n == e->groups_cap * CALLS_IN_GROUP)
        return -ENOSPC;
    softgpu_advance(e, at_ns);
    uint64_t cost = call == SOFTGPU_SUSPEND                ? e->p.suspend_call_ns
                    : call == SOFTGPU_RESUME               ? e->p.resume_call_ns
                    : e->switching || softgpu_executing(e) ? e->p.timeslice_call_busy_ns
                                                           : e->p.timeslice_call_idle_ns;
    /* Calls for one group take effect in the order in which they were made. */
    *done_ns = max_ns(e->now_ns + cost, e->groups[group].last_call_ns);
    e->groups[group].last_call_ns = *done_ns;
    e->calls_n++;
    softgpu_event_push(e, (struct event){*done_ns, group, SOFTGPU_NONE, call, timeslice_us});
    return 0;
}
