/* See counts.h. */
#include "engine/counts.h"

static enum job_where where_is(const struct job *j)
{
    if (j->swap.phase != SWAP_HERE)
        return WHERE_SWAPPED;
    if (j->rec.paused || j->trial.held)
        return WHERE_PAUSED;
    return model_job_waits(j) ? WHERE_QUEUED : WHERE_HERE;
}

/* Counts a swap when the memory has left, once until it is back. */
static void count_swaps(struct job *j)
{
    struct job_counts *c = &j->counts;
    bool left = j->swap.phase == SWAP_AWAY && !c->away;
    c->away = j->swap.phase != SWAP_HERE && (c->away || left);
    c->total.swaps += left;
    for (unsigned d = 0; d < DEVICE_GPUS_MAX && left; d++)
        c->total.swapped_bytes += j->swap.bytes[d];
}

/* Adds the time in the present state. */
static void counts_add(struct gpu_totals *t, const struct gpu_counts *c, uint64_t now)
{
    t->ran_ns += c->runs ? now - c->since : 0;
    t->waited_ns += c->waits ? now - c->since : 0;
}

static void count_on(struct model *m, struct job *j, unsigned d)
{
    struct gpu_counts *c = &j->counts.on[d];
    struct gpu_totals *t = &j->counts.total.on[d];
    bool runs, there = sched_member_state(m->sched, j->unit, d, &runs);
    runs &= !j->out_of_turn;
    bool waits = there && !runs && !j->on[d].idle && j->counts.where == WHERE_HERE;
    if (runs == c->runs && waits == c->waits)
        return;
    counts_add(t, c, m->now);
    t->turns += runs && !c->runs;
    t->preempted += waits && c->runs;
    *c = (struct gpu_counts){.runs = runs, .waits = waits, .since = m->now};
}

/* Whether a job that is not at its own ceiling waits for the GPU. */
static bool anybody_waits(const struct model *m, unsigned d)
{
    for_each_job (m, j) {
        if (j->counts.on[d].waits && !sched_member_at_ceiling(m->sched, j->unit, d))
            return true;
    }
    return false;
}

static void idle_add(struct gpu_idle *on, uint64_t now)
{
    on->waited_ns += on->waits ? now - on->since : 0;
    on->since = now;
}

void counts_update(struct counts *x, struct model *m, bool decided)
{
    for_each_job (m, j) {
        struct job_counts *c = &j->counts;
        enum job_where where = where_is(j);
        if (where != c->where) {
            c->total.where_ns[c->where] += m->now - c->where_since;
            c->where = where;
            c->where_since = m->now;
        }
        count_swaps(j);
        for (unsigned d = 0; d < m->ngpus && decided; d++)
            count_on(m, j, d);
    }
    for (unsigned d = 0; d < m->ngpus && decided; d++) {
        idle_add(&x->on[d], m->now);
        x->on[d].waits = anybody_waits(m, d);
    }
}

void counts_observed(struct counts *x, const struct model *m, const struct demand *demand)
{
    if (demand->counted_ns == x->counted_ns)
        return;
    const double window_ns = (double)(demand->counted_ns - x->counted_ns);
    for (unsigned d = 0; d < m->ngpus; d++) {
        struct gpu_idle *on = &x->on[d];
        const double busy = demand->all_busy[d];
        idle_add(on, m->now);
        if (x->counted_ns && busy >= 0 && m->gpus[d].caps & GPU_CAP_USAGE) {
            const double idle_ns = (double)on->waited_ns - busy * window_ns;
            on->idle_ns += idle_ns > 0 ? (uint64_t)idle_ns : 0;
            on->known = true;
        }
        on->waited_ns = 0;
    }
    x->counted_ns = demand->counted_ns;
}

void counts_now(const struct model *m, const struct job *j, struct job_totals *out)
{
    *out = j->counts.total;
    out->where_ns[j->counts.where] += m->now - j->counts.where_since;
    for (unsigned d = 0; d < m->ngpus; d++)
        counts_add(&out->on[d], &j->counts.on[d], m->now);
}
