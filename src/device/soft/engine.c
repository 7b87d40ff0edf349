/* See engine.h. No system calls, no clock; memory is taken in softgpu_new() and softgpu_reserve()
 * only.
 *
 * Between two events nothing changes, so the state is small: who has the GPU (`cur`), whether a
 * switch to it is under way, and how far each group's kernels have run. A group's kernels carry the
 * value of the group's own running time (`busy_ns`) at which they end, so being switched out needs
 * no bookkeeping for each kernel. Timeslices renew without events while nobody waits: the phase is
 * worked out when somebody comes. */
#include "device/soft/engine_impl.h"

#include <stddef.h>

/* ---- lists, heap ---- */

void softgpu_fifo_push(struct softgpu *e, struct fifo *f, uint32_t k)
{
    e->kernels[k].next = SOFTGPU_NONE;
    if (f->head == SOFTGPU_NONE)
        f->head = k;
    else
        e->kernels[f->tail].next = k;
    f->tail = k;
}

uint32_t softgpu_fifo_pop(struct softgpu *e, struct fifo *f)
{
    uint32_t k = f->head;
    if (k != SOFTGPU_NONE)
        f->head = e->kernels[k].next;
    return k;
}

void softgpu_kernel_free(struct softgpu *e, uint32_t k)
{
    e->kernels[k].next = e->free_kernel;
    e->free_kernel = k;
}

static bool before(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->seq < b->seq;
}

void softgpu_sift_down(struct softgpu *e, uint32_t i)
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

void softgpu_event_push(struct softgpu *e, uint64_t at_ns, enum event_type type, uint32_t group,
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
        softgpu_sift_down(e, 0);
    return v;
}

/* ---- who may run ---- */

void softgpu_update_ready(struct softgpu *e, uint32_t g)
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

bool softgpu_executing(const struct softgpu *e)
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

static void softgpu_begin_turn(struct softgpu *e)
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
    if (e->cur != SOFTGPU_NONE && softgpu_executing(e)) {
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
        softgpu_begin_turn(e);
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
        /* One of several ranks spins until softgpu_meet() says that all run. */
        k->end_busy_ns = k->ranks > 1 ? SOFTGPU_NEVER : g->busy_ns + k->duration_ns;
        k->left_ns = k->duration_ns;
        g->occupied += k->fraction;
        g->running |= 1U << k->stream;
    }
}

void softgpu_settle(struct softgpu *e)
{
    if (e->switching)
        return;
    struct group *g = e->cur == SOFTGPU_NONE ? NULL : &e->groups[e->cur];
    bool mine = g && is_ready(e, e->cur);
    bool others = e->ready_count > (mine ? 1U : 0U);

    if (mine && e->idle)
        softgpu_begin_turn(e);
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
    } else if (g && (g->suspended || g->held) && softgpu_executing(e)) {
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
    if (softgpu_executing(e)) {
        const struct group *g = &e->groups[e->cur];
        uint64_t busy = first_end_busy(e, g);
        uint64_t end = busy == SOFTGPU_NEVER ? busy : e->now_ns + (busy - g->busy_ns);
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
        softgpu_fifo_pop(e, &g->streams[s]);
        g->running &= ~(1U << s);
        g->occupied -= e->kernels[k].fraction;
        g->last_end_ns = e->kernels[k].end_ns = e->now_ns;
        g->kernels--;
        if (g->streams[s].head == SOFTGPU_NONE)
            g->work &= ~(1U << s);
        softgpu_fifo_push(e, &e->done, k);
    }
    softgpu_update_ready(e, e->cur);
}

static void handle(struct softgpu *e, const struct event *ev)
{
    struct group *g = &e->groups[ev->group];
    if (ev->type != EVENT_ARRIVAL)
        e->calls_n--;
    switch (ev->type) {
    case EVENT_ARRIVAL:
        e->kernels[ev->arg].order = e->arrivals++;
        softgpu_fifo_push(e, &g->streams[e->kernels[ev->arg].stream], ev->arg);
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
    softgpu_update_ready(e, ev->group);
}

static void run_until(struct softgpu *e, uint64_t t)
{
    if (softgpu_executing(e))
        e->groups[e->cur].busy_ns += t - e->now_ns;
    e->now_ns = t;
}

void softgpu_advance(struct softgpu *e, uint64_t to_ns)
{
    for (uint64_t t; (t = softgpu_next_event_ns(e)) <= to_ns;) {
        if (t == SOFTGPU_NEVER)
            break;
        run_until(e, t);
        if (softgpu_executing(e))
            end_kernels(e);
        if (e->switching && t == e->switch_end_ns) {
            e->switching = false;
            if (e->cur != SOFTGPU_NONE && is_ready(e, e->cur))
                softgpu_begin_turn(e);
            else if (e->cur != SOFTGPU_NONE)
                e->cur = SOFTGPU_NONE; /* suspended meanwhile: another switch */
            else
                e->idle = true;
        }
        while (e->events_n > 0 && e->events[0].at_ns <= t) {
            struct event ev = event_pop(e);
            handle(e, &ev);
        }
        softgpu_settle(e);
    }
    if (to_ns > e->now_ns && to_ns != SOFTGPU_NEVER)
        run_until(e, to_ns);
}

/* ---- collectives ---- */

uint32_t softgpu_ranks(const struct softgpu *e, struct softgpu_rank out[SOFTGPU_STREAMS])
{
    uint32_t n = 0;
    if (!softgpu_executing(e))
        return 0;
    const struct group *g = &e->groups[e->cur];
    for (uint32_t m = g->running; m; m &= m - 1) {
        uint32_t k = g->streams[__builtin_ctz(m)].head;
        if (e->kernels[k].ranks > 1)
            out[n++] = (struct softgpu_rank){k, e->kernels[k].ranks, e->kernels[k].collective};
    }
    return n;
}

void softgpu_meet(struct softgpu *e, uint32_t kernel, bool met)
{
    struct kernel *k = &e->kernels[kernel];
    uint64_t busy_ns = e->groups[k->group].busy_ns;
    if (met == (k->end_busy_ns != SOFTGPU_NEVER))
        return;
    if (!met)
        k->left_ns = k->end_busy_ns - busy_ns;
    k->end_busy_ns = met ? busy_ns + k->left_ns : SOFTGPU_NEVER;
}

uint64_t softgpu_now_ns(const struct softgpu *e)
{
    return e->now_ns;
}

bool softgpu_pop_completion(struct softgpu *e, struct softgpu_completion *out)
{
    uint32_t k = softgpu_fifo_pop(e, &e->done);
    if (k == SOFTGPU_NONE)
        return false;
    const struct kernel *kn = &e->kernels[k];
    *out = (struct softgpu_completion){kn->group,     kn->stream,   kn->cookie,
                                       kn->submit_ns, kn->start_ns, kn->end_ns};
    softgpu_kernel_free(e, k);
    return true;
}
