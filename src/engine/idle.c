/* See idle.h. */
#include "engine/idle.h"

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

void idle_decided(struct idle *x, const struct model *m)
{
    for (unsigned d = 0; d < m->ngpus; d++) {
        idle_add(&x->on[d], m->now);
        x->on[d].waits = anybody_waits(m, d);
    }
}

void idle_observed(struct idle *x, const struct model *m, const struct demand *demand)
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
