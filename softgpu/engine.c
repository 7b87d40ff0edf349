/* See engine.h. No system calls, no clock; memory is taken in softgpu_new() and softgpu_reserve()
 * only.
 *
 * Between two events nothing changes, so the state is small: who has the GPU (`cur`), whether a
 * switch to it is under way, and how far each group's kernels have run. A group's kernels carry the
 * value of the group's own progress (`progress_ns`) at which they end, so being switched out or
 * slowed down needs no bookkeeping for each kernel. Timeslices renew without events while nobody
 * waits: the phase is worked out when somebody comes. */
#include "softgpu/engine_impl.h"

#include <string.h>

/* ---- lists ---- */

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

/* Nearly all happen later than what is there: few have to be moved. What was put in first comes out
 * first. */
void softgpu_event_push(struct softgpu *e, struct event ev)
{
    if (e->events_end == e->events_cap) {
        e->events_end -= e->events_first;
        memmove(e->events, e->events + e->events_first, e->events_end * sizeof(*e->events));
        e->events_first = 0;
    }
    uint32_t i = e->events_end++;
    for (; i > e->events_first && e->events[i - 1].at_ns > ev.at_ns; i--)
        e->events[i] = e->events[i - 1];
    e->events[i] = ev;
}

/* ---- what runs ---- */

/* The most wanted part is used fully, and no part more than that. A collective is not slowed: its
 * peers would be ahead of it. */
static void update_rate(struct group *g)
{
    uint32_t most = ONE;
    for (unsigned p = 0; p < GPU_PARTS && !g->collectives; p++)
        most = g->together[p] > most ? g->together[p] : most;
    g->rate = (uint32_t)((uint64_t)ONE * ONE / most);
}

static void add_uses(struct group *g, const struct owner *o, bool on)
{
    for (unsigned p = 0; p < GPU_PARTS; p++)
        g->together[p] = on ? g->together[p] + o->uses[p] : g->together[p] - o->uses[p];
    update_rate(g);
}

void softgpu_set_uses(struct softgpu *e, uint32_t owner, const uint32_t uses[GPU_PARTS])
{
    struct owner *o = &e->owners[owner];
    struct group *g = &e->groups[o->group];
    if (o->running)
        add_uses(g, o, false);
    memcpy(o->uses, uses, sizeof(o->uses));
    if (o->running)
        add_uses(g, o, true);
}

void softgpu_running(struct softgpu *e, struct kernel *k, bool on)
{
    struct owner *o = &e->owners[k->owner];
    struct group *g = &e->groups[o->group];
    g->running ^= 1U << k->slot;
    g->occupied = on ? g->occupied + k->fraction : g->occupied - k->fraction;
    o->occupied = on ? o->occupied + k->fraction : o->occupied - k->fraction;
    if (k->ranks > 1)
        g->collectives = on ? g->collectives + 1 : g->collectives - 1;
    if (on && o->running++ == 0) {
        o->since_ns = g->busy_ns;
        add_uses(g, o, true);
    } else if (!on && --o->running == 0) {
        o->busy_ns += g->busy_ns - o->since_ns;
        add_uses(g, o, false);
    } else if (k->ranks > 1) {
        update_rate(g);
    }
}

/* ns times a factor, in ONEs; what is less than a nanosecond is carried in *rest. */
static uint64_t scaled(uint64_t ns, uint32_t factor, uint32_t *rest)
{
    uint64_t low = ns % ONE * factor + *rest;
    *rest = (uint32_t)(low % ONE);
    return ns / ONE * factor + low / ONE;
}

/* Until the group's progress is so much more: (progress_ns * ONE - rest) / rate, rounded up. */
static uint64_t time_for(const struct group *g, uint64_t progress_ns)
{
    uint64_t whole = progress_ns / g->rate * ONE, low = progress_ns % g->rate * ONE;
    if (low < g->progress_rest)
        return whole - (progress_ns ? (g->progress_rest - low) / g->rate : 0);
    return whole + (low - g->progress_rest + g->rate - 1) / g->rate;
}

/* Who has the engine. A group that has no work keeps it until another group gets it, or until it
 * is suspended. */
static uint32_t who_has_it(const struct softgpu *e)
{
    if (e->switching || e->cur == SOFTGPU_NONE || (e->idle && e->groups[e->cur].blocks))
        return 0;
    uint32_t o = softgpu_executing(e) ? e->groups[e->cur].owner : SOFTGPU_NONE;
    while (o != SOFTGPU_NONE && !e->owners[o].running)
        o = e->owners[o].next;
    return o == SOFTGPU_NONE ? e->last_who : e->owners[o].tag;
}

/* From now until a later time nothing changes. A group is said to have the engine while its state
 * is restored, and until it is saved. */
static void record_switch(struct softgpu *e)
{
    uint32_t who = who_has_it(e);
    if (who == e->last_who)
        return;
    uint64_t ns = e->now_ns;
    if (e->switching)
        ns += e->saved_ns;
    else if (ns == e->switch_end_ns)
        ns -= e->restored_ns;
    e->last_who = who;
    e->switches[*e->switches_end % e->switches_size] = (struct softgpu_switch){ns, who};
    ++*e->switches_end;
}

static void run_until(struct softgpu *e, uint64_t t)
{
    if (e->switches && t > e->now_ns)
        record_switch(e);
    if (softgpu_executing(e)) {
        struct group *g = &e->groups[e->cur];
        uint64_t progress_ns = scaled(t - e->now_ns, g->rate, &g->progress_rest);
        g->busy_ns += t - e->now_ns;
        g->progress_ns += progress_ns;
        for (unsigned p = 0; p < GPU_PARTS; p++)
            e->parts_ns[p] += scaled(progress_ns, g->together[p], &e->parts_rest[p]);
    }
    e->now_ns = t;
}

/* ---- who may run ---- */

void softgpu_update_ready(struct softgpu *e, uint32_t owner)
{
    struct owner *o = &e->owners[owner];
    struct group *g = &e->groups[o->group];
    g->blocks -= o->blocks;
    o->blocks = (o->suspended || o->locked) && o->arrived != 0;
    g->blocks += o->blocks;
    const bool ready = g->blocks == 0 && g->work != 0 && !g->reset;
    e->ready_count += ready - softgpu_ready(e, o->group);
    e->ready[o->group / READY_BITS] ^= (uint64_t)(ready != softgpu_ready(e, o->group))
                                       << o->group % READY_BITS;
}

/* The next group on the runlist with work, the one at `from` last. There is one. */
static uint32_t next_ready(const struct softgpu *e, uint32_t from)
{
    uint32_t word = (from + 1) / READY_BITS;
    const uint32_t words = (e->groups_cap + READY_BITS - 1) / READY_BITS;
    uint64_t bits =
        word < words ? e->ready[word] >> (from + 1) % READY_BITS << (from + 1) % READY_BITS : 0;
    while (!bits) {
        word = word + 1 < words ? word + 1 : 0;
        bits = e->ready[word];
    }
    return word * READY_BITS + (uint32_t)__builtin_ctzll(bits);
}

bool softgpu_executing(const struct softgpu *e)
{
    return !e->switching && e->cur != SOFTGPU_NONE && e->groups[e->cur].running != 0 &&
           !e->groups[e->cur].preempted;
}

bool softgpu_working(const struct softgpu *e)
{
    return e->switching || softgpu_executing(e);
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

static bool at_block_ends(const struct softgpu *e, uint32_t group)
{
    return group != SOFTGPU_NONE && e->groups[group].block_ends;
}

/* Gives the GPU to `to` (may be none). `free`: nothing has to leave it first. */
static void switch_to(struct softgpu *e, uint32_t to, bool free)
{
    const bool blocks = at_block_ends(e, e->cur) || at_block_ends(e, to);
    uint64_t cost = 0;
    e->saved_ns = (uint64_t)e->p.switch_ns * 2 / 5;
    e->restored_ns = 0;
    if (e->cur != SOFTGPU_NONE && softgpu_executing(e)) {
        struct group *out = &e->groups[e->cur];
        out->preempted = true;
        cost += (uint64_t)e->p.save_ns * out->occupied / ONE;
        e->saved_ns += cost;
        free = false;
    }
    if (to != SOFTGPU_NONE && e->groups[to].preempted) {
        e->restored_ns = (uint64_t)e->p.restore_ns * e->groups[to].occupied / ONE;
        cost += e->restored_ns;
        free = false;
    }
    if (to != SOFTGPU_NONE && to != e->cur) {
        for (uint32_t o = e->groups[to].owner; o != SOFTGPU_NONE; o = e->owners[o].next)
            e->owners[o].bursts += e->owners[o].arrived != 0;
    }
    e->cur = to;
    if (free) {
        softgpu_begin_turn(e);
        return;
    }
    e->switching = true;
    e->switch_end_ns = e->now_ns + (blocks ? e->p.block_switch_ns : e->p.switch_ns + cost);
}

/* Whether a kernel begins before another, of which there may be none. */
static bool begins_before(const struct softgpu *e, uint32_t k, uint32_t other)
{
    if (other == SOFTGPU_NONE)
        return true;
    const struct kernel *a = &e->kernels[k], *b = &e->kernels[other];
    const bool below = e->owners[a->owner].below;
    return below == e->owners[b->owner].below ? a->order < b->order : !below;
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
            const struct owner *o = &e->owners[e->kernels[k].owner];
            const bool over = o->limit < ONE && o->occupied + e->kernels[k].fraction > o->limit;
            if (!over && begins_before(e, k, best))
                best = k;
        }
        if (best == SOFTGPU_NONE || g->occupied + e->kernels[best].fraction > ONE)
            return;
        struct kernel *k = &e->kernels[best];
        k->start_ns = e->now_ns;
        /* One of several ranks spins until fabric.c finds that all run. */
        k->end_progress_ns = k->ranks > 1 ? SOFTGPU_NEVER : g->progress_ns + k->duration_ns;
        k->left_ns = k->duration_ns;
        softgpu_running(e, k, true);
    }
}

/* Whether the group has to run on, though it may not keep the GPU. Another mode does not change
 * that once it is so. */
static bool drains(struct softgpu *e)
{
    if (!softgpu_executing(e) || e->groups[e->cur].reset ||
        !(e->draining || at_block_ends(e, e->cur)))
        return false;
    if (!e->draining)
        e->drain_end_ns = e->now_ns + e->p.block_limit_ns;
    e->draining = true;
    return true;
}

void softgpu_settle(struct softgpu *e)
{
    if (e->switching)
        return;
    struct group *g = e->cur == SOFTGPU_NONE ? NULL : &e->groups[e->cur];
    bool mine = g && softgpu_ready(e, e->cur);
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

    bool stays = mine && (g->work & g->seen) && !(others && e->now_ns >= slice_end(e));
    if (!stays && (others || (g && g->blocks)) && drains(e))
        return;
    e->draining = false;
    if (!stays && others) {
        switch_to(e, next_ready(e, e->turn), e->idle);
    } else if (!stays && g && (g->blocks || g->reset) && softgpu_executing(e)) {
        switch_to(e, SOFTGPU_NONE, false);
    } else if (!stays) {
        e->idle = true;
        e->contended = false;
        return;
    }
    e->idle = false;
    if (!e->switching && e->cur != SOFTGPU_NONE)
        start_kernels(e);
}

/* ---- events ---- */

static uint64_t first_end(const struct softgpu *e, const struct group *g)
{
    uint64_t t = SOFTGPU_NEVER;
    for (uint32_t m = g->running; m; m &= m - 1) {
        const struct kernel *k = &e->kernels[g->streams[__builtin_ctz(m)].head];
        t = k->end_progress_ns < t ? k->end_progress_ns : t;
    }
    return t;
}

uint64_t softgpu_next_event_ns(const struct softgpu *e)
{
    uint64_t t = e->events_first < e->events_end ? e->events[e->events_first].at_ns : SOFTGPU_NEVER;
    if (e->switching)
        return e->switch_end_ns < t ? e->switch_end_ns : t;
    if (softgpu_executing(e)) {
        const struct group *g = &e->groups[e->cur];
        uint64_t end = first_end(e, g);
        if (end != SOFTGPU_NEVER)
            end = e->now_ns + time_for(g, end - g->progress_ns);
        t = end < t ? end : t;
        if (e->draining)
            return e->drain_end_ns < t ? e->drain_end_ns : t;
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
        struct kernel *kn = &e->kernels[k];
        struct owner *o = &e->owners[kn->owner];
        if (kn->end_progress_ns > g->progress_ns)
            continue;
        softgpu_fifo_pop(e, &g->streams[s]);
        softgpu_running(e, kn, false);
        o->last_end_ns = kn->end_ns = e->now_ns;
        o->kernels--;
        if (g->streams[s].head == SOFTGPU_NONE)
            g->work &= ~(1U << s);
        softgpu_fifo_push(e, &e->done, k);
        if (--o->arrived == 0)
            softgpu_update_ready(e, kn->owner);
    }
}

static void handle(struct softgpu *e, struct event ev)
{
    struct owner *o = &e->owners[ev.owner];
    struct group *g = &e->groups[o->group];
    if (ev.kernel != SOFTGPU_NONE) {
        struct kernel *k = &e->kernels[ev.kernel];
        k->order = e->arrivals++;
        softgpu_fifo_push(e, &g->streams[k->slot], ev.kernel);
        bool first = o->arrived++ == 0;
        /* The GPU is at work for other owners: to this one that is as if it got it now. */
        o->bursts += first && o->group == e->cur && g->work;
        g->work |= 1U << k->slot;
        if (!first)
            return; /* nothing follows for who may run */
    } else {
        e->calls_n--;
        if (ev.call == SOFTGPU_PREEMPT) {
            g->block_ends = ev.value != 0;
        } else if (ev.call != SOFTGPU_TIMESLICE) {
            if (ev.call == SOFTGPU_SUSPEND)
                o->suspended++;
            else if (o->suspended)
                o->suspended--;
        } else {
            /* At once, for the slice that runs too. */
            if (o->group == e->cur && !e->switching && !e->contended)
                renew_slice(e);
            g->timeslice_us = ev.value;
        }
    }
    softgpu_update_ready(e, ev.owner);
}

void softgpu_advance(struct softgpu *e, uint64_t to_ns)
{
    for (uint64_t t; (t = softgpu_next_event_ns(e)) <= to_ns;) {
        if (t == SOFTGPU_NEVER)
            break;
        run_until(e, t);
        if (softgpu_executing(e))
            end_kernels(e);
        if (e->draining && t == e->drain_end_ns && softgpu_executing(e)) {
            e->groups[e->cur].reset = true;
            e->resets++;
            softgpu_update_ready(e, e->groups[e->cur].owner);
        }
        if (e->switching && t == e->switch_end_ns) {
            e->switching = false;
            if (e->cur != SOFTGPU_NONE && softgpu_ready(e, e->cur))
                softgpu_begin_turn(e);
            else if (e->cur != SOFTGPU_NONE)
                e->cur = SOFTGPU_NONE; /* suspended meanwhile: another switch */
            else
                e->idle = true;
        }
        while (e->events_first < e->events_end && e->events[e->events_first].at_ns <= t)
            handle(e, e->events[e->events_first++]);
        softgpu_settle(e);
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
    uint32_t k = softgpu_fifo_pop(e, &e->done);
    if (k == SOFTGPU_NONE)
        return false;
    const struct kernel *kn = &e->kernels[k];
    *out = (struct softgpu_completion){kn->owner,     kn->stream,   kn->cookie,
                                       kn->submit_ns, kn->start_ns, kn->end_ns};
    softgpu_kernel_free(e, k);
    return true;
}
