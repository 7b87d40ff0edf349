/* See undo.h. */
#include "engine/undo.h"

#include <errno.h>

#define SCANS_MAX 1024 /* of one process that takes long to search: some seconds */
#define AGAIN_NS  (2 * NSEC_PER_SEC)

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

static void undo_process(const struct apply *a, const struct model *m, struct proc_id id)
{
    const struct device_ops *ops = a->driver->ops;
    struct group_list found = {0};
    for (int n = 0; n < SCANS_MAX; n++) {
        group_list_free(&found);
        if (ops->scan(a->driver, id, &found, NULL) != -EAGAIN)
            break;
    }
    for (size_t k = 0; k < found.n; k++) {
        const struct device_group *g = &found.v[k];
        ops->resume(a->driver, &g, 1, NULL);
        if (g->gpu < m->ngpus && (g->timeslice_us <= m->gpus[g->gpu].timeslice_min_us ||
                                  g->timeslice_us > m->gpus[g->gpu].timeslice_default_us))
            ops->set_timeslice(a->driver, g, m->gpus[g->gpu].timeslice_default_us, NULL);
    }
    group_list_free(&found);
    ops->forget(a->driver, id.pid); /* what it saw here is not what restoring sets */
}

void undo_everything(const struct apply *a, struct model *m)
{
    struct pid_list pids = {0};
    journal_undo(a->journal, a->driver, NULL, NULL);
    a->driver->ops->processes(a->driver, &pids, NULL);
    for (size_t i = 0; i < pids.n; i++) {
        struct proc_stat st;
        if (proc_stat_read(pids.v[i], &st) == 0)
            undo_process(a, m, st.id);
    }
    pid_list_free(&pids);
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
