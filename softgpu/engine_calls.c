/* See engine.h: setting an engine up, and what its users ask of it. What follows from that in time
 * is in engine.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/engine_impl.h"

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
        /* What a batch program keeps beside 500 requests/s: 0.812, and 0.767 without. */
        .block_switch_ns = 140000,
        .block_limit_ns = 5000000000, /* blocks of 3 s survived, of 12 s did not */
        /* A 100 us kernel alone: p50 125, p99 133 us; 109 us when requests follow each other within
         * a millisecond. */
        .launch_ns = 25000,
        .launch_warm_ns = 10000,
        .launch_jitter_ns = 9000,
        .warm_ns = 1000000,
        .timeslice_us = SOFTGPU_TIMESLICE_US,
        .timeslice_call_idle_ns = 155000,
        .timeslice_call_busy_ns = 345000, /* 300-390 us */
        .suspend_call_ns = 600000,
        .resume_call_ns = 320000,
        .preempt_call_ns = 700000, /* 500-900 us */
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
    const uint32_t words = (groups + READY_BITS - 1) / READY_BITS;
    const uint32_t had = (e->groups_cap + READY_BITS - 1) / READY_BITS;
    if (!grow(&e->events, events, sizeof(*e->events)) ||
        !grow(&e->ready, words, sizeof(*e->ready)) ||
        !grow(&e->owners, groups, sizeof(*e->owners)) ||
        !grow(&e->groups, groups, sizeof(*e->groups)) ||
        !grow(&e->kernels, kernels, sizeof(*e->kernels)))
        return -ENOMEM;
    memset(e->ready + had, 0, (words - had) * sizeof(*e->ready));
    memset(e->owners + e->groups_cap, 0, (groups - e->groups_cap) * sizeof(*e->owners));
    for (; e->groups_cap < groups; e->groups_cap++)
        e->groups[e->groups_cap] = (struct group){.owner = SOFTGPU_NONE};
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
    free(e->ready);
    free(e->owners);
    free(e->groups);
    free(e->kernels);
    free(e->events);
    free(e);
}

static bool valid(const struct softgpu *e, uint32_t group)
{
    return group < e->groups_cap && e->owners[group].used;
}

/* The lowest free number. */
static int owner_add(struct softgpu *e, uint32_t *owner)
{
    while (e->owners_free < e->groups_cap && e->owners[e->owners_free].used)
        e->owners_free++;
    if (e->owners_free == e->groups_cap)
        return -ENOSPC;
    *owner = e->owners_free;
    e->owners[*owner] = (struct owner){.used = true, .next = SOFTGPU_NONE, .limit = ONE};
    return 0;
}

int softgpu_group_add(struct softgpu *e, uint64_t at_ns, uint32_t *group)
{
    softgpu_advance(e, at_ns);
    int r = owner_add(e, group);
    if (r < 0)
        return r;
    while (e->groups[e->groups_free].owner != SOFTGPU_NONE) /* not more than there are owners */
        e->groups_free++;
    const uint32_t i = e->groups_free;
    struct group *g = &e->groups[i];
    *g = (struct group){.owner = *group, .timeslice_us = e->p.timeslice_us, .rate = ONE};
    for (uint32_t s = 0; s < SOFTGPU_STREAMS; s++)
        g->streams[s] = (struct fifo){SOFTGPU_NONE, SOFTGPU_NONE};
    e->owners[*group].group = i;
    return 0;
}

int softgpu_group_join(struct softgpu *e, uint32_t with, uint64_t at_ns, uint32_t *group)
{
    if (!valid(e, with))
        return -EINVAL;
    softgpu_advance(e, at_ns);
    int r = owner_add(e, group);
    if (r < 0)
        return r;
    e->owners[*group].group = e->owners[with].group;
    e->owners[*group].next = e->owners[with].next;
    e->owners[with].next = *group;
    return 0;
}

/* Frees the kernels of one owner. */
static void fifo_drop(struct softgpu *e, struct fifo *f, uint32_t owner)
{
    struct fifo all = *f;
    *f = (struct fifo){SOFTGPU_NONE, SOFTGPU_NONE};
    for (uint32_t k; (k = softgpu_fifo_pop(e, &all)) != SOFTGPU_NONE;) {
        if (e->kernels[k].owner == owner)
            softgpu_kernel_free(e, k);
        else
            softgpu_fifo_push(e, f, k);
    }
}

static void events_drop(struct softgpu *e, uint32_t owner)
{
    uint32_t n = e->events_first;
    for (uint32_t i = n; i < e->events_end; i++) {
        if (e->events[i].owner != owner)
            e->events[n++] = e->events[i];
        else if (e->events[i].kernel != SOFTGPU_NONE)
            softgpu_kernel_free(e, e->events[i].kernel);
        else
            e->calls_n--;
    }
    e->events_end = n;
}

int softgpu_group_remove(struct softgpu *e, uint32_t group, uint64_t at_ns)
{
    if (!valid(e, group))
        return -EINVAL;
    softgpu_advance(e, at_ns);

    struct owner *o = &e->owners[group];
    struct group *g = &e->groups[o->group];
    for (uint32_t s = 0; s < SOFTGPU_STREAMS; s++) {
        uint32_t bit = 1U << s;
        if ((g->running & bit) && e->kernels[g->streams[s].head].owner == group)
            softgpu_running(e, &e->kernels[g->streams[s].head], false);
        fifo_drop(e, &g->streams[s], group);
        if (g->streams[s].head == SOFTGPU_NONE)
            g->work &= ~bit;
        if (o->has & bit)
            g->users[o->slots[s]]--;
    }
    g->preempted &= g->running != 0;
    fifo_drop(e, &e->done, group);
    events_drop(e, group);

    o->arrived = 0;
    softgpu_update_ready(e, group);
    o->used = false;
    uint32_t *at = &g->owner;
    while (*at != group)
        at = &e->owners[*at].next;
    *at = o->next;
    e->owners_free = group < e->owners_free ? group : e->owners_free;
    if (g->owner == SOFTGPU_NONE && o->group < e->groups_free)
        e->groups_free = o->group;
    if (g->owner == SOFTGPU_NONE && e->cur == o->group)
        e->cur = SOFTGPU_NONE, e->draining = false; /* a switch to it still takes its time */
    softgpu_settle(e);
    return 0;
}

int softgpu_lock(struct softgpu *e, uint32_t group, bool on, uint64_t at_ns)
{
    if (!valid(e, group))
        return -EINVAL;
    softgpu_advance(e, at_ns);
    e->owners[group].locked = on;
    softgpu_update_ready(e, group);
    softgpu_settle(e);
    return 0;
}

int softgpu_uses(struct softgpu *e, uint32_t group, const float uses[GPU_PARTS], uint64_t at_ns)
{
    uint32_t v[GPU_PARTS];
    for (unsigned p = 0; p < GPU_PARTS; p++) {
        if (!(uses[p] >= 0 && uses[p] <= 1))
            return -EINVAL;
        v[p] = (uint32_t)(uses[p] * (float)ONE + 0.5F);
    }
    if (!valid(e, group))
        return -EINVAL;
    softgpu_advance(e, at_ns);
    softgpu_set_uses(e, group, v);
    return 0;
}

int softgpu_client(struct softgpu *e, uint32_t group, uint32_t sm_percent, bool below)
{
    if (!valid(e, group) || sm_percent > 100)
        return -EINVAL;
    e->owners[group].limit = sm_percent ? ONE * sm_percent / 100 : ONE;
    e->owners[group].below = below;
    return 0;
}

void softgpu_record(struct softgpu *e, struct softgpu_switch *ring, uint32_t size, uint64_t *end)
{
    e->switches = size ? ring : NULL;
    e->switches_size = size;
    e->switches_end = end;
    e->last_who = 0;
}

int softgpu_tag(struct softgpu *e, uint32_t group, uint32_t tag)
{
    if (!valid(e, group))
        return -EINVAL;
    e->owners[group].tag = tag;
    return 0;
}

uint32_t softgpu_resets(const struct softgpu *e)
{
    return e->resets;
}

void softgpu_counters(const struct softgpu *e, uint64_t parts_ns[GPU_PARTS])
{
    memcpy(parts_ns, e->parts_ns, sizeof(e->parts_ns));
}

int softgpu_group_info(const struct softgpu *e, uint32_t group, struct softgpu_group_info *out)
{
    if (!valid(e, group))
        return -EINVAL;
    const struct owner *o = &e->owners[group];
    const struct group *g = &e->groups[o->group];
    *out = (struct softgpu_group_info){
        .busy_ns = o->busy_ns + (o->running ? g->busy_ns - o->since_ns : 0),
        .bursts = o->bursts,
        .timeslice_us = g->timeslice_us,
        .kernels = o->kernels,
        .suspended = o->suspended,
        .block_ends = g->block_ends,
        .reset = g->reset,
    };
    return 0;
}

/* ---- work and controls ---- */

/* Host overhead: mostly the plain value, one in a hundred nearly all of the jitter on top: u^8 for
 * u even in 0..1. */
static uint64_t launch_time(struct softgpu *e, const struct owner *o)
{
    e->random = e->random * 6364136223846793005ULL + 1442695040888963407ULL;
    uint64_t u = e->random >> 48;
    for (int i = 0; i < 3; i++)
        u = u * u >> 16;
    bool warm = o->kernels > 0 || (o->last_end_ns && e->now_ns - o->last_end_ns < e->p.warm_ns);
    return (warm ? e->p.launch_warm_ns : e->p.launch_ns) + (u * e->p.launch_jitter_ns >> 16);
}

/* The stream of the group for one of an owner's, for as long as the owner is there: one that nobody
 * has, best that of the same number, or else the one with the fewest owners. */
static uint32_t slot_for(struct softgpu *e, struct owner *o, uint32_t stream)
{
    uint32_t *users = e->groups[o->group].users, best = stream;
    if (o->has & 1U << stream)
        return o->slots[stream];
    for (uint32_t s = 0; s < SOFTGPU_STREAMS; s++)
        best = users[s] < users[best] ? s : best;
    users[best]++;
    o->has |= 1U << stream;
    return o->slots[stream] = (uint8_t)best;
}

int softgpu_submit(struct softgpu *e, uint32_t group, const struct softgpu_kernel *k,
                   uint64_t at_ns)
{
    /* A year of nanoseconds: sums of such times cannot overflow. */
    const uint64_t longest_ns = 31536000ULL * 1000000000;
    if (!valid(e, group) || k->stream >= SOFTGPU_STREAMS || k->duration_ns == 0 ||
        k->duration_ns > longest_ns || !(k->sm_fraction > 0) || !(k->sm_fraction <= 1) ||
        k->launch_ns > max_ns(e->now_ns, at_ns) + longest_ns)
        return -EINVAL;
    if (e->free_kernel == SOFTGPU_NONE)
        return -ENOSPC;
    softgpu_advance(e, at_ns);

    struct owner *o = &e->owners[group];
    uint32_t slot = slot_for(e, o, k->stream);
    uint64_t *last_ns = &e->groups[o->group].last_arrival_ns[slot];
    uint64_t submit_ns = max_ns(e->now_ns, k->launch_ns);
    uint64_t arrival_ns = submit_ns + launch_time(e, o);
    arrival_ns = *last_ns = max_ns(arrival_ns, *last_ns); /* a stream keeps its order */
    o->kernels++;

    uint32_t fraction = (uint32_t)(k->sm_fraction * (float)ONE);
    uint64_t duration_ns = k->duration_ns;
    if (fraction > o->limit) {
        duration_ns = (uint64_t)((double)duration_ns * fraction / o->limit);
        fraction = o->limit;
    }
    uint32_t i = e->free_kernel;
    e->free_kernel = e->kernels[i].next;
    e->kernels[i] = (struct kernel){
        .submit_ns = submit_ns,
        .duration_ns = duration_ns,
        .cookie = k->cookie,
        .collective = k->collective,
        .ranks = k->ranks,
        .owner = group,
        .stream = k->stream,
        .slot = slot,
        .fraction = fraction ? fraction : 1,
        .next = SOFTGPU_NONE,
    };
    softgpu_event_push(e, (struct event){.at_ns = arrival_ns, .owner = group, .kernel = i});
    return 0;
}

int softgpu_control(struct softgpu *e, uint32_t group, enum softgpu_call call, uint32_t value,
                    uint64_t at_ns, uint64_t *done_ns)
{
    if (!valid(e, group) || (call == SOFTGPU_TIMESLICE && (value < SOFTGPU_TIMESLICE_MIN_US ||
                                                           value > SOFTGPU_TIMESLICE_MAX_US)))
        return -EINVAL;
    if (e->calls_n == e->groups_cap * CALLS_IN_GROUP)
        return -ENOSPC;
    softgpu_advance(e, at_ns);
    uint64_t cost = call == SOFTGPU_SUSPEND                ? e->p.suspend_call_ns
                    : call == SOFTGPU_RESUME               ? e->p.resume_call_ns
                    : call == SOFTGPU_PREEMPT              ? e->p.preempt_call_ns
                    : e->switching || softgpu_executing(e) ? e->p.timeslice_call_busy_ns
                                                           : e->p.timeslice_call_idle_ns;
    /* Calls for one group take effect in the order in which they were made. */
    struct group *g = &e->groups[e->owners[group].group];
    *done_ns = g->last_call_ns = max_ns(e->now_ns + cost, g->last_call_ns);
    e->calls_n++;
    softgpu_event_push(e, (struct event){*done_ns, group, SOFTGPU_NONE, call, value});
    return 0;
}
