/* From the scheduler's plan to the device: applies the difference between what is wanted and what
 * is, and writes each change to the journal before it is made. The order is, over all devices:
 * suspend, set timeslices, resume, so that two batch jobs never run at once beside a better one,
 * and the halves of a job on several devices begin their turn within a few calls of each other. */
#include "engine/apply.h"

#include <errno.h>
#include <string.h>

#define RETRY_NS   NSEC_PER_SEC
#define ORPHANS_NS (2 * NSEC_PER_SEC) /* between two attempts to undo them */

static void apply_failed(struct model *m, struct channel_group *g, int r, const struct error *err)
{
    struct process *p = &m->processes[g->process];
    g->retry_at = m->now + RETRY_NS;
    if (r == -ESRCH || r == -ENOENT)
        p->scan_at = m->now; /* process or group gone: the scan finds out */
    else
        model_job_failed(m, p->job, r, err);
}

static bool is_due(const struct channel_group *g)
{
    return g->want_runnable ? g->suspended : !g->suspended || g->suspend_unsure;
}

/* Suspends or resumes all groups of one process on one device that want it, in one call. */
static void apply_runnable(struct model *m, uint32_t slot)
{
    enum { BATCH = 256 };
    const struct device_group *list[BATCH];
    uint32_t slots[BATCH];
    size_t n = 0;
    const struct channel_group *first = &m->groups[slot];
    bool resume = first->want_runnable;
    struct error err = {""};

    for (uint32_t i = m->processes[first->process].first_group; i != SLOT_NONE && n < BATCH;
         i = m->groups[i].next) {
        struct channel_group *g = &m->groups[i];
        if (g->dg.gpu != first->dg.gpu || g->want_runnable != resume || !is_due(g) ||
            g->retry_at > m->now)
            continue;
        if (!resume) {
            int r = journal_put_group(m->journal, i, model_journal_flags(g) | JG_SUSPENDED, &g->dg);
            if (r < 0) {
                error_set(&err, r, "cannot write the journal (%s): left running", strerror(-r));
                apply_failed(m, g, r, &err);
                continue;
            }
        }
        slots[n] = i;
        list[n++] = &g->dg;
    }
    if (!n)
        return;
    int r = m->driver->ops->set_running(m->driver, list, n, resume, &err);
    /* After an error some may be suspended: they count as such until a resume says otherwise. Only
     * -EPERM says that none is (ops.h); what may never be steered must not stay on record. */
    bool nothing_done = r == -EPERM || (r < 0 && !proc_alive(m->processes[first->process].id));
    for (size_t k = 0; k < n; k++) {
        struct channel_group *g = &m->groups[slots[k]];
        g->suspended = resume ? r < 0 : !nothing_done;
        g->suspend_unsure = r < 0;
        if (r < 0)
            apply_failed(m, g, r, &err);
        journal_put_group(m->journal, slots[k], model_journal_flags(g), &g->dg);
    }
}

static void apply_timeslice(struct model *m, uint32_t slot)
{
    struct channel_group *g = &m->groups[slot];
    struct error err = {""};
    if (g->retry_at > m->now || (g->timeslice_us == g->want_us && !g->timeslice_unknown) ||
        !(m->gpus[g->dg.gpu].caps & GPU_CAP_TIMESLICE))
        return;
    int r = journal_put_group(m->journal, slot, model_journal_flags(g) | JG_TIMESLICE, &g->dg);
    if (r == 0) {
        r = m->driver->ops->set_timeslice(m->driver, &g->dg, g->want_us, &err);
        /* A control that failed may have done it. */
        g->timeslice_unknown = r < 0 && (r != -EPERM || g->timeslice_unknown);
    } else {
        error_set(&err, r, "cannot write the journal (%s): left as it is", strerror(-r));
    }
    if (r == 0)
        g->timeslice_us = g->want_us;
    else
        apply_failed(m, g, r, &err);
    journal_put_group(m->journal, slot, model_journal_flags(g), &g->dg);
}

uint64_t apply_plan(struct model *m, const struct sched_plan *plan)
{
    uint64_t retry_at = TIME_NEVER;
    for (size_t i = 0; i < plan->n; i++) {
        struct channel_group *g = &m->groups[plan->settings[i].group];
        const struct gpu_info *gpu = &m->gpus[g->dg.gpu];
        uint64_t us = plan->settings[i].timeslice_us;
        g->want_us =
            us ? clamp_u64(us, gpu->timeslice_min_us, gpu->timeslice_max_us) : g->dg.timeslice_us;
        g->want_runnable = plan->settings[i].runnable;
    }
    for (size_t i = 0; i < plan->n; i++) {
        if (!plan->settings[i].runnable && is_due(&m->groups[plan->settings[i].group]))
            apply_runnable(m, plan->settings[i].group);
    }
    for (size_t i = 0; i < plan->n; i++)
        apply_timeslice(m, plan->settings[i].group);
    for (size_t i = 0; i < plan->n; i++) {
        if (plan->settings[i].runnable && m->groups[plan->settings[i].group].suspended)
            apply_runnable(m, plan->settings[i].group);
    }
    for (size_t i = 0; i < plan->n; i++) {
        uint64_t at = m->groups[plan->settings[i].group].retry_at;
        retry_at = at > m->now ? min_u64(retry_at, at) : retry_at;
    }
    return retry_at;
}

bool apply_detach(struct model *m, uint32_t process)
{
    struct process *p = &m->processes[process];
    bool runs = true;
    for_each_group_of (m, p, i) {
        struct channel_group *g = &m->groups[i];
        g->want_runnable = true;
        g->want_us = g->dg.timeslice_us;
        g->retry_at = 0;
        if (g->suspended)
            apply_runnable(m, i);
        apply_timeslice(m, i);
        runs &= !g->suspended;
    }
    model_process_detach(m, process); /* what could not be undone is tried again */
    return runs;
}

/* ---- what an earlier holder left ---- */

static bool is_orphan(uint32_t slot, void *arg)
{
    const struct model *m = arg;
    return m->groups[slot].orphan;
}

void undo_orphans(struct model *m)
{
    uint32_t flags;
    journal_undo(m->journal, m->driver, is_orphan, m);
    for (uint32_t i = 0; i < m->groups_end; i++) {
        if (m->groups[i].orphan && !journal_group(m->journal, i, &flags))
            model_orphan_remove(m, i);
    }
    m->orphans_until = m->now + ORPHANS_NS;
}

void undo_by_restorer(struct model *m)
{
    for (uint32_t i = 0; i < m->groups_end; i++) {
        struct channel_group *g = &m->groups[i];
        uint32_t flags = 0;
        if (!group_live(g))
            continue;
        journal_group(m->journal, i, &flags);
        g->suspended = flags & JG_SUSPENDED; /* what it could not undo it left there */
        g->suspend_unsure = true;
        g->timeslice_unknown = m->gpus[g->dg.gpu].caps & GPU_CAP_TIMESLICE;
    }
}
