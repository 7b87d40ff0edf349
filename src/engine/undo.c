/* See undo.h. */
#include "engine/undo.h"

#include <errno.h>

#define AGAIN_NS (2 * NSEC_PER_SEC)

static bool is_orphan(uint32_t slot, void *arg)
{
    const struct model *m = arg;
    return m->groups[slot].orphan;
}

void undo_orphans(const struct apply *a, struct model *m)
{
    uint32_t flags;
    journal_undo(a->journal, a->driver, is_orphan, m);
    for (uint32_t i = 0; i < m->groups_end; i++) {
        if (m->groups[i].orphan && !journal_group(a->journal, i, &flags))
            model_orphan_remove(m, i);
    }
    m->orphans_until = m->now + AGAIN_NS;
}

void undo_by_restorer(const struct apply *a, struct model *m)
{
    for (uint32_t i = 0; i < m->groups_end; i++) {
        struct channel_group *g = &m->groups[i];
        uint32_t flags = 0;
        if (!group_live(g))
            continue;
        journal_group(a->journal, i, &flags);
        g->suspended = flags & JG_SUSPENDED; /* what it could not undo it left there */
        g->suspend_unsure = true;
        g->timeslice_unknown = m->gpus[g->dg.gpu].caps & GPU_CAP_TIMESLICE;
    }
}
