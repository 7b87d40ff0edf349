/* See engine.h, struct fabric. Nothing changes between two events of any engine, so it is enough to
 * compare at each event which ranks run. */
#include "softgpu/engine_impl.h"

/* Bit map of streams: kernels of the group that has the GPU and is not switched out or in. */
static uint32_t fabric_running(const struct softgpu *e)
{
    return softgpu_executing(e) ? e->groups[e->cur].running : 0;
}

static struct kernel *fabric_kernel(struct softgpu *e, uint32_t streams)
{
    return &e->kernels[e->groups[e->cur].streams[__builtin_ctz(streams)].head];
}

static bool all_ranks_run(const struct fabric *f, const struct kernel *k)
{
    uint32_t present = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        for (uint32_t m = fabric_running(f->engines[i]); m; m &= m - 1) {
            const struct kernel *o = fabric_kernel(f->engines[i], m);
            present += o->ranks > 1 && o->collective == k->collective;
        }
    }
    return present >= k->ranks;
}

/* Each collective whose ranks all run goes on. Each other one spins, and what it has left of its
 * duration stays the same. */
static void fabric_couple(struct fabric *f)
{
    for (uint32_t i = 0; i < f->n; i++) {
        struct softgpu *e = f->engines[i];
        for (uint32_t m = fabric_running(e); m; m &= m - 1) {
            struct kernel *k = fabric_kernel(e, m);
            uint64_t progress_ns = e->groups[e->cur].progress_ns;
            bool spins = k->end_progress_ns == SOFTGPU_NEVER;
            if (k->ranks <= 1 || all_ranks_run(f, k) != spins)
                continue;
            if (!spins)
                k->left_ns = k->end_progress_ns - progress_ns;
            k->end_progress_ns = spins ? progress_ns + k->left_ns : SOFTGPU_NEVER;
        }
    }
}

uint64_t fabric_next_event_ns(struct fabric *f)
{
    uint64_t next = SOFTGPU_NEVER;
    fabric_couple(f);
    for (uint32_t i = 0; i < f->n; i++) {
        uint64_t t = softgpu_next_event_ns(f->engines[i]);
        next = t < next ? t : next;
    }
    return next;
}

void fabric_advance(struct fabric *f, uint64_t to_ns)
{
    for (uint64_t t; (t = fabric_next_event_ns(f)) <= to_ns && t != SOFTGPU_NEVER;) {
        for (uint32_t i = 0; i < f->n; i++)
            softgpu_advance(f->engines[i], t);
    }
    for (uint32_t i = 0; i < f->n; i++)
        softgpu_advance(f->engines[i], to_ns);
    fabric_couple(f);
}
