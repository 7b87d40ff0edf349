/* See switches.h. */
#include "core/observe/switches.h"

#include <errno.h>

#define SWITCHES_NS (50 * NSEC_PER_MSEC) /* the driver itself looks every 33 ms (NVIDIA) */
#define KEPT_MAX    65536U               /* switches that a trace has not taken */
#define RETRY_NS    (10 * NSEC_PER_SEC)

/* A compute group of the process on the GPU that the scheduler knows; it stands for all of them. */
static uint32_t group_of(const struct model *m, pid_t pid, uint32_t gpu)
{
    const uint32_t p = pid > 0 ? model_process_find(m, pid) : SLOT_NONE;
    if (p == SLOT_NONE)
        return SLOT_NONE;
    for_each_group_of (m, &m->processes[p], g) {
        if (m->groups[g].dg.gpu != gpu || m->groups[g].dg.kind != GROUP_COMPUTE)
            continue;
        for_each_twin (m, g, t) {
            if (m->groups[t].sched_job != SLOT_NONE)
                return t;
        }
    }
    return SLOT_NONE;
}

static bool is_wanted(const struct model *m, unsigned gpu)
{
    double busy = 0; /* of latency jobs; unknown counts as 1 */
    for_each_job (m, j) {
        if (model_class(m, j) == CLASS_LATENCY && j->ngroups)
            busy += j->on[gpu].busy < 0 ? 1 : j->on[gpu].busy;
    }
    return sched_wants_switches(m->sched, gpu, busy);
}

/* lost: GPUs where earlier switches are missing. */
static void emit_switches(struct model *m, const struct switch_list *l, uint32_t wanted,
                          uint32_t lost)
{
    for_each (s, l->v, l->n) {
        if (!(wanted >> s->gpu & 1))
            continue;
        if (s->pid == GPU_UNKNOWN)
            lost |= 1U << s->gpu;
        model_emit(m, (struct sched_event){.type = EV_SWITCH,
                                           .device = s->gpu,
                                           .group = group_of(m, s->pid, s->gpu),
                                           .at_ns = s->ns,
                                           .on = lost >> s->gpu & 1});
        if (s->pid != GPU_UNKNOWN)
            lost &= ~(1U << s->gpu);
    }
}

static void switches_keep(struct switches *x, const struct switch_list *l)
{
    int r = 0;
    if (x->kept.n + l->n > KEPT_MAX)
        x->kept.n = 0;
    for (size_t i = 0; i < l->n && r == 0; i++)
        r = switch_list_push(&x->kept, &l->v[i]);
}

uint64_t switches_due(struct switches *x, struct model *m)
{
    const struct device_ops *ops = m->driver->ops;
    uint32_t wanted = 0;
    x->refused |= !ops->switches;
    for (unsigned d = 0; d < m->ngpus; d++)
        wanted |= is_wanted(m, d) ? 1U << d : 0;
    if (!ops->switches)
        return TIME_NEVER;
    if (!wanted && !x->traced) {
        if (x->recording)
            ops->switches(m->driver, NULL, NULL);
        x->recording = false;
        return TIME_NEVER;
    }
    if (m->now < x->at)
        return x->at;
    _cleanup_(switch_list_free) struct switch_list list = {0};
    const int r = ops->switches(m->driver, &list, NULL);
    const bool begins = !x->recording;
    x->recording = true;
    x->refused = r < 0 && r != -EAGAIN;
    x->at = m->now + (x->refused ? RETRY_NS : SWITCHES_NS);
    emit_switches(m, &list, wanted, begins ? UINT32_MAX : 0);
    if (x->traced)
        switches_keep(x, &list);
    return x->at;
}

int switches_take(struct switches *x, struct model *m, struct switch_list *out)
{
    if (!x->traced) {
        x->traced = true;
        x->at = 0;
    }
    switches_due(x, m);
    *out = x->kept;
    x->kept = (struct switch_list){0};
    return x->refused ? -ENOTSUP : 0;
}

void switches_untaken(struct switches *x)
{
    x->traced = false;
    switch_list_free(&x->kept);
}

void switches_free(struct switches *x)
{
    switch_list_free(&x->kept);
}
