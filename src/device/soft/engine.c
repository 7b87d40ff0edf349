/* See engine.h. No system calls, no clock; memory is taken in softgpu_new() and softgpu_reserve()
 * only.
 *
 * Between two events nothing changes, so the state is small: who has the GPU (`cur`), whether a
 * switch to it is under way, and how far each group's kernels have run. A group's kernels carry the
 * value of the group's own running time (`busy_ns`) at which they end, so being switched out needs
 * no bookkeeping for each kernel. Timeslices renew without events while nobody waits: the phase is
 * worked out when somebody comes. */
#include "device/soft/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ONE            65536U /* an SM fraction of 1 */
#define CALLS_IN_GROUP 8U     /* room for pending controls: so many for each group */

enum event_type { EVENT_ARRIVAL, EVENT_TIMESLICE, EVENT_SUSPEND, EVENT_RESUME };

struct event {
    uint64_t at_ns, seq; /* seq: what was put in first comes out first */
    enum event_type type;
    uint32_t group;
    uint32_t arg; /* kernel, or timeslice in us */
};

struct kernel {
    uint64_t submit_ns, start_ns, end_ns;
    uint64_t order; /* of arrival */
    uint64_t duration_ns;
    uint64_t end_busy_ns; /* ends when the group has run for so long in all */
    uint64_t cookie;
    uint32_t group, stream, fraction, next;
};

struct fifo {
    uint32_t head, tail;
};

struct group {
    bool used, suspended, held;
    bool preempted;    /* in mid-kernel and switched out: has to be restored */
    uint32_t work;     /* streams with kernels that arrived */
    uint32_t seen;     /* streams that are looked at in this turn */
    uint32_t running;  /* streams whose first kernel has begun */
    uint32_t occupied; /* sum of the fractions of those */
    uint32_t timeslice_us, kernels;
    uint64_t busy_ns, bursts, last_end_ns, last_call_ns;
    struct fifo streams[SOFTGPU_STREAMS];
    uint64_t last_arrival_ns[SOFTGPU_STREAMS];
};

struct softgpu {
    struct softgpu_params p;
    uint64_t now_ns, seq, arrivals, random;

    struct group *groups;
    uint64_t *ready; /* bit map: runnable groups with work */
    uint32_t groups_cap, ready_count;

    struct kernel *kernels;
    uint32_t kernels_cap, free_kernel;
    struct fifo done;

    struct event *events;       /* binary heap */
    uint32_t events_n, calls_n; /* calls_n: of those, not arrivals */

    uint32_t cur;  /* has the GPU, or gets it when the switch is over */
    uint32_t turn; /* where on the runlist: number of the last group that had the GPU */
    bool switching, idle;
    uint64_t switch_end_ns;
    bool contended; /* another group waits: slice_start_ns is of this very slice */
    uint64_t slice_start_ns;
};

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

static uint64_t max_ns(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- lists, heap ---- */

static void fifo_push(struct softgpu *e, struct fifo *f, uint32_t k)
{
    e->kernels[k].next = SOFTGPU_NONE;
    if (f->head == SOFTGPU_NONE)
        f->head = k;
    else
        e->kernels[f->tail].next = k;
    f->tail = k;
}

static uint32_t fifo_pop(struct softgpu *e, struct fifo *f)
{
    uint32_t k = f->head;
    if (k != SOFTGPU_NONE)
        f->head = e->kernels[k].next;
    return k;
}

static void kernel_free(struct softgpu *e, uint32_t k)
{
    e->kernels[k].next = e->free_kernel;
    e->free_kernel = k;
}

static bool before(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->seq < b->seq;
}

static void sift_down(struct softgpu *e, uint32_t i)
{
    struct event v = e->events[i];
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= e->events_n)
            break;
        if (child + 1 < e->events_n && before(&e->events[child + 1], &e->events[child]))
            child++;
        if (!before(&e->events[child], &v))
            break;
        e->events[i] = e->events[child];
        i = child;
    }
    e->events[i] = v;
}

/* There is room: an arrival for every kernel, and control() counts. */
static void event_push(struct softgpu *e, uint64_t at_ns, enum event_type type, uint32_t group,
                       uint32_t arg)
{
    struct event v = {at_ns, e->seq++, type, group, arg};
    uint32_t i = e->events_n++;
    for (; i > 0 && before(&v, &e->events[(i - 1) / 2]); i = (i - 1) / 2)
        e->events[i] = e->events[(i - 1) / 2];
    e->events[i] = v;
}

static struct event event_pop(struct softgpu *e)
{
    struct event v = e->events[0];
    e->events[0] = e->events[--e->events_n];
    if (e->events_n > 0)
        sift_down(e, 0);
    return v;
}

/* ---- who may run ---- */

static void update_ready(struct softgpu *e, uint32_t g)
{
    const struct group *grp = &e->groups[g];
    uint64_t bit = 1ULL << (g % 64), *word = &e->ready[g / 64];
    bool ready = grp->used && !grp->suspended && !grp->held && grp->work != 0;
    if (ready == ((*word & bit) != 0))
        return;
    *word ^= bit;
    e->ready_count = ready ? e->ready_count + 1 : e->ready_count - 1;
}

static bool is_ready(const struct softgpu *e, uint32_t g)
{
    return (e->ready[g / 64] >> (g % 64) & 1) != 0;
}

/* The next group on the runlist with work, the one at `from` last. */
static uint32_t next_ready(const struct softgpu *e, uint32_t from)
{
    uint32_t words = e->groups_cap / 64, first = (from + 1) % e->groups_cap;
    if (e->ready_count == 0)
        return SOFTGPU_NONE;
    for (uint32_t i = 0; i <= words; i++) {
        uint32_t w = (first / 64 + i) % words;
        uint64_t bits = e->ready[w];
        if (i == 0)
            bits &= ~0ULL << (first % 64);
        if (bits)
            return w * 64 + (uint32_t)__builtin_ctzll(bits);
    }
    return SOFTGPU_NONE;
}

/* The group with the GPU is running kernels. */
static bool executing(const struct softgpu *e)
{
    return !e->switching && e->cur != SOFTGPU_NONE && e->groups[e->cur].running != 0 &&
           !e->groups[e->cur].preempted;
}

static uint64_t slice_end(const struct softgpu *e)
{
    return e->slice_start_ns + e->groups[e->cur].timeslice_us * 1000ULL;
}

/* Moves slice_start_ns over the renewals that nobody noticed. */
static void renew_slice(struct softgpu *e)
{
    uint64_t slice_ns = e->groups[e->cur].timeslice_us * 1000ULL;
    if (e->now_ns > e->slice_start_ns)
        e->slice_start_ns += (e->now_ns - e->slice_start_ns) / slice_ns * slice_ns;
}

static void begin_turn(struct softgpu *e)
{
    struct group *g = &e->groups[e->cur];
    g->preempted = false;
    g->seen = g->work;
    e->turn = e->cur;
    e->slice_start_ns = e->now_ns;
    e->contended = false;
}

/* Gives the GPU to `to` (may be none). `free`: nothing has to leave it first. */
static void switch_to(struct softgpu *e, uint32_t to, bool free)
{
    uint64_t cost = 0;
    if (e->cur != SOFTGPU_NONE && executing(e)) {
        struct group *out = &e->groups[e->cur];
        out->preempted = true;
        cost += (uint64_t)e->p.save_ns * out->occupied / ONE;
        free = false;
    }
    if (to != SOFTGPU_NONE && e->groups[to].preempted) {
        cost += (uint64_t)e->p.restore_ns * e->groups[to].occupied / ONE;
        free = false;
    }
    if (to != SOFTGPU_NONE && to != e->cur)
        e->groups[to].bursts++;
    e->cur = to;
    if (free) {
        begin_turn(e);
        return;
    }
    e->switching = true;
    e->switch_end_ns = e->now_ns + e->p.switch_ns + cost;
}

static void start_kernels(struct softgpu *e)
{
    struct group *g = &e->groups[e->cur];
    for (;;) {
        /* The oldest that has not begun; if that one does not fit nothing overtakes it, or large
         * kernels would wait for ever. */
        uint32_t best = SOFTGPU_NONE;
        for (uint32_t m = g->work & g->seen & ~g->running; m; m &= m - 1) {
            uint32_t k = g->streams[__builtin_ctz(m)].head;
            if (best == SOFTGPU_NONE || e->kernels[k].order < e->kernels[best].order)
                best = k;
        }
        if (best == SOFTGPU_NONE || g->occupied + e->kernels[best].fraction > ONE)
            return;
        struct kernel *k = &e->kernels[best];
        k->start_ns = e->now_ns;
        k->end_busy_ns = g->busy_ns + k->duration_ns;
        g->occupied += k->fraction;
        g->running |= 1U << k->stream;
    }
}

/* After all events of one moment: who has the GPU from now on. */
static void settle(struct softgpu *e)
{
    if (e->switching)
        return;
    struct group *g = e->cur == SOFTGPU_NONE ? NULL : &e->groups[e->cur];
    bool mine = g && is_ready(e, e->cur);
    bool others = e->ready_count > (mine ? 1U : 0U);

    if (mine && e->idle)
        begin_turn(e);
    if (mine && !others) {
        g->seen |= g->work;
        e->contended = false;
    } else if (mine && !e->contended) {
        renew_slice(e);
        e->contended = true;
    }

    if (mine && (g->work & g->seen) && !(others && e->now_ns >= slice_end(e))) {
        start_kernels(e);
    } else if (others) {
        switch_to(e, next_ready(e, e->turn), e->idle);
    } else if (g && (g->suspended || g->held) && executing(e)) {
        switch_to(e, SOFTGPU_NONE, false);
    } else {
        e->idle = true;
        e->contended = false;
        return;
    }
    e->idle = false;
    if (!e->switching && e->cur != SOFTGPU_NONE)
        start_kernels(e);
}

/* ---- events ---- */

static uint64_t first_end_busy(const struct softgpu *e, const struct group *g)
{
    uint64_t t = SOFTGPU_NEVER;
    for (uint32_t m = g->running; m; m &= m - 1) {
        const struct kernel *k = &e->kernels[g->streams[__builtin_ctz(m)].head];
        t = k->end_busy_ns < t ? k->end_busy_ns : t;
    }
    return t;
}

uint64_t softgpu_next_event_ns(const struct softgpu *e)
{
    uint64_t t = e->events_n ? e->events[0].at_ns : SOFTGPU_NEVER;
    if (e->switching)
        return e->switch_end_ns < t ? e->switch_end_ns : t;
    if (executing(e)) {
        const struct group *g = &e->groups[e->cur];
        uint64_t end = e->now_ns + (first_end_busy(e, g) - g->busy_ns);
        t = end < t ? end : t;
        if (e->contended && slice_end(e) < t)
            t = max_ns(slice_end(e), e->now_ns);
    }
    return t;
}

static void end_kernels(struct softgpu *e)
{
    struct group *g = &e->groups[e->cur];
    for (uint32_t m = g->running; m; m &= m - 1) {
        uint32_t s = (uint32_t)__builtin_ctz(m), k = g->streams[s].head;
        if (e->kernels[k].end_busy_ns > g->busy_ns)
            continue;
        fifo_pop(e, &g->streams[s]);
        g->running &= ~(1U << s);
        g->occupied -= e->kernels[k].fraction;
        g->last_end_ns = e->kernels[k].end_ns = e->now_ns;
        g->kernels--;
        if (g->streams[s].head == SOFTGPU_NONE)
            g->work &= ~(1U << s);
        fifo_push(e, &e->done, k);
    }
    update_ready(e, e->cur);
}

static void handle(struct softgpu *e, const struct event *ev)
{
    struct group *g = &e->groups[ev->group];
    if (ev->type != EVENT_ARRIVAL)
        e->calls_n--;
    switch (ev->type) {
    case EVENT_ARRIVAL:
        e->kernels[ev->arg].order = e->arrivals++;
        fifo_push(e, &g->streams[e->kernels[ev->arg].stream], ev->arg);
        g->work |= 1U << e->kernels[ev->arg].stream;
        break;
    case EVENT_TIMESLICE:
        /* At once, for the slice that runs too. */
        if (ev->group == e->cur && !e->switching && !e->contended)
            renew_slice(e);
        g->timeslice_us = ev->arg;
        break;
    case EVENT_SUSPEND:
        g->suspended = true;
        break;
    case EVENT_RESUME:
        g->suspended = false;
        break;
    }
    update_ready(e, ev->group);
}

static void run_until(struct softgpu *e, uint64_t t)
{
    if (executing(e))
        e->groups[e->cur].busy_ns += t - e->now_ns;
    e->now_ns = t;
}

void softgpu_advance(struct softgpu *e, uint64_t to_ns)
{
    for (uint64_t t; (t = softgpu_next_event_ns(e)) <= to_ns;) {
        if (t == SOFTGPU_NEVER)
            break;
        run_until(e, t);
        if (executing(e))
            end_kernels(e);
        if (e->switching && t == e->switch_end_ns) {
            e->switching = false;
            if (e->cur != SOFTGPU_NONE && is_ready(e, e->cur))
                begin_turn(e);
            else if (e->cur != SOFTGPU_NONE)
                e->cur = SOFTGPU_NONE; /* suspended meanwhile: another switch */
            else
                e->idle = true;
        }
        while (e->events_n > 0 && e->events[0].at_ns <= t) {
            struct event ev = event_pop(e);
            handle(e, &ev);
        }
        settle(e);
    }
    if (to_ns > e->now_ns && to_ns != SOFTGPU_NEVER)
        run_until(e, to_ns);
}

uint64_t softgpu_now_ns(const struct softgpu *e)
{
    return e->now_ns;
}

bool softgpu_pop_completion(struct softgpu *e, struct softgpu_completion *out)
{
    uint32_t k = fifo_pop(e, &e->done);
    if (k == SOFTGPU_NONE)
        return false;
    const struct kernel *kn = &e->kernels[k];
    *out = (struct softgpu_completion){kn->group,     kn->stream,   kn->cookie,
                                       kn->submit_ns, kn->start_ns, kn->end_ns};
    kernel_free(e, k);
    return true;
}

/* ---- set-up ---- */

int softgpu_reserve(struct softgpu *e, uint32_t groups, uint32_t kernels)
{
    /* Whole words of the bit map. Each array that could grow is kept on failure: only the limits
     * below are what counts. */
    if (groups > UINT32_MAX / 32 || kernels > UINT32_MAX / 32)
        return -EINVAL;
    groups = (groups + 63) / 64 * 64;
    groups = groups > e->groups_cap ? groups : e->groups_cap;
    kernels = kernels > e->kernels_cap ? kernels : e->kernels_cap;
    uint32_t events = kernels + groups * CALLS_IN_GROUP;

    void *p;
    if (!(p = reallocarray(e->events, events, sizeof(*e->events))))
        return -ENOMEM;
    e->events = p;
    if (!(p = reallocarray(e->groups, groups, sizeof(*e->groups))))
        return -ENOMEM;
    e->groups = p;
    if (!(p = reallocarray(e->ready, groups / 64, sizeof(*e->ready))))
        return -ENOMEM;
    e->ready = p;
    if (!(p = reallocarray(e->kernels, kernels, sizeof(*e->kernels))))
        return -ENOMEM;
    e->kernels = p;

    memset(e->groups + e->groups_cap, 0, (groups - e->groups_cap) * sizeof(*e->groups));
    memset(e->ready + e->groups_cap / 64, 0, (groups - e->groups_cap) / 64 * sizeof(*e->ready));
    e->groups_cap = groups;
    while (e->kernels_cap < kernels)
        kernel_free(e, e->kernels_cap++);
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
    free(e->ready);
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
        while ((k = fifo_pop(e, &g->streams[s])) != SOFTGPU_NONE)
            kernel_free(e, k);
    }
    struct fifo done = e->done;
    e->done = (struct fifo){SOFTGPU_NONE, SOFTGPU_NONE};
    for (uint32_t k; (k = fifo_pop(e, &done)) != SOFTGPU_NONE;) {
        if (e->kernels[k].group == group)
            kernel_free(e, k);
        else
            fifo_push(e, &e->done, k);
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->events_n; i++) {
        if (e->events[i].group != group)
            e->events[n++] = e->events[i];
        else if (e->events[i].type == EVENT_ARRIVAL)
            kernel_free(e, e->events[i].arg);
        else
            e->calls_n--;
    }
    e->events_n = n;
    for (uint32_t i = n / 2; i-- > 0;)
        sift_down(e, i);

    g->used = false;
    update_ready(e, group);
    if (e->cur == group)
        e->cur = SOFTGPU_NONE; /* a switch to it still takes its time */
    settle(e);
    return 0;
}

int softgpu_hold(struct softgpu *e, uint32_t group, bool on, uint64_t at_ns)
{
    if (!valid(e, group))
        return -EINVAL;
    softgpu_advance(e, at_ns);
    e->groups[group].held = on;
    update_ready(e, group);
    settle(e);
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
        .group = group,
        .stream = k->stream,
        .fraction = fraction ? fraction : 1,
        .next = SOFTGPU_NONE,
    };
    event_push(e, arrival_ns, EVENT_ARRIVAL, group, i);
    return 0;
}

static int control(struct softgpu *e, uint32_t group, enum event_type type, uint32_t arg,
                   uint64_t at_ns, uint64_t *done_ns)
{
    if (!valid(e, group))
        return -EINVAL;
    if (e->calls_n == e->groups_cap * CALLS_IN_GROUP)
        return -ENOSPC;
    softgpu_advance(e, at_ns);
    uint64_t cost = type == EVENT_SUSPEND          ? e->p.suspend_call_ns
                    : type == EVENT_RESUME         ? e->p.resume_call_ns
                    : e->switching || executing(e) ? e->p.timeslice_call_busy_ns
                                                   : e->p.timeslice_call_idle_ns;
    /* Calls for one group take effect in the order in which they were made. */
    *done_ns = max_ns(e->now_ns + cost, e->groups[group].last_call_ns);
    e->groups[group].last_call_ns = *done_ns;
    e->calls_n++;
    event_push(e, *done_ns, type, group, arg);
    return 0;
}

int softgpu_set_timeslice(struct softgpu *e, uint32_t group, uint32_t us, uint64_t at_ns,
                          uint64_t *done_ns)
{
    if (us < SOFTGPU_TIMESLICE_MIN_US || us > SOFTGPU_TIMESLICE_MAX_US)
        return -EINVAL;
    return control(e, group, EVENT_TIMESLICE, us, at_ns, done_ns);
}

int softgpu_suspend(struct softgpu *e, uint32_t group, uint64_t at_ns, uint64_t *done_ns)
{
    return control(e, group, EVENT_SUSPEND, 0, at_ns, done_ns);
}

int softgpu_resume(struct softgpu *e, uint32_t group, uint64_t at_ns, uint64_t *done_ns)
{
    return control(e, group, EVENT_RESUME, 0, at_ns, done_ns);
}
