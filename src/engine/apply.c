/* From the scheduler's plan to the device: applies the difference between what is wanted and what
 * is, and writes each change to the journal before it is made. The order is: suspend, set
 * timeslices, resume, so that two batch jobs never run at once beside a better one. */
#include <errno.h>
#include <string.h>

#include "engine/manager_impl.h"

#define SCANS_MAX 1024 /* of one process that takes long to search: some seconds */

uint32_t mgr_journal_flags(const struct mgroup *g)
{
    return (g->suspended ? JG_SUSPENDED : 0U) |
           (g->timeslice_unknown || g->timeslice_us != g->dg.timeslice_us ? JG_TIMESLICE : 0U);
}

static void apply_failed(struct manager *m, struct mgroup *g, int r, const struct error *err)
{
    struct mprocess *p = &m->processes[g->process];
    g->retry_at = m->now + RETRY_NS;
    if (r == -ESRCH || r == -ENOENT)
        p->scan_at = m->now; /* process or group gone: the scan finds out */
    else
        mgr_job_failed(m, p->job, r, err);
}

static bool is_due(const struct mgroup *g)
{
    return g->want_runnable ? g->suspended : !g->suspended || g->suspend_unsure;
}

/* Suspends or resumes all groups of one process on one device that want it, in one call. */
void mgr_apply_runnable(struct manager *m, uint32_t slot)
{
    enum { BATCH = 256 };
    const struct device_group *list[BATCH];
    uint32_t slots[BATCH];
    size_t n = 0;
    const struct mgroup *first = &m->groups[slot];
    bool resume = first->want_runnable;
    struct error err = {""};

    for (uint32_t i = m->processes[first->process].first_group; i != SLOT_NONE && n < BATCH;
         i = m->groups[i].next) {
        struct mgroup *g = &m->groups[i];
        if (g->dg.gpu != first->dg.gpu || g->want_runnable != resume || !is_due(g) ||
            g->retry_at > m->now)
            continue;
        if (!resume) {
            int r = journal_put_group(m->journal, i, mgr_journal_flags(g) | JG_SUSPENDED, &g->dg);
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
    const struct device_ops *ops = m->driver->ops;
    int r = resume ? ops->resume(m->driver, list, n, &err) : ops->suspend(m->driver, list, n, &err);
    /* After an error some may be suspended: they count as such until a resume says otherwise. */
    bool nothing_done = r == -EPERM || (r < 0 && !proc_alive(m->processes[first->process].id));
    for (size_t k = 0; k < n; k++) {
        struct mgroup *g = &m->groups[slots[k]];
        g->suspended = resume ? r < 0 : !nothing_done;
        g->suspend_unsure = r < 0;
        if (r < 0)
            apply_failed(m, g, r, &err);
        journal_put_group(m->journal, slots[k], mgr_journal_flags(g), &g->dg);
    }
}

void mgr_apply_timeslice(struct manager *m, uint32_t slot)
{
    struct mgroup *g = &m->groups[slot];
    struct error err = {""};
    if (g->retry_at > m->now || (g->timeslice_us == g->want_us && !g->timeslice_unknown) ||
        !(m->gpus[g->dg.gpu].caps & GPU_CAP_TIMESLICE))
        return;
    uint64_t before = g->timeslice_us;
    int r = journal_put_group(m->journal, slot, mgr_journal_flags(g) | JG_TIMESLICE, &g->dg);
    if (r == 0)
        r = m->driver->ops->set_timeslice(m->driver, &g->dg, g->want_us, &err);
    else
        error_set(&err, r, "cannot write the journal (%s): left as it is", strerror(-r));
    g->timeslice_us = r == 0 ? g->want_us : before;
    g->timeslice_unknown &= r != 0;
    if (r < 0)
        apply_failed(m, g, r, &err);
    journal_put_group(m->journal, slot, mgr_journal_flags(g), &g->dg);
}

void mgr_decide(struct manager *m, uint32_t device)
{
    struct sched_plan plan;
    if (sched_decide(m->sched, device, m->now, &plan) < 0)
        return;
    const struct gpu_info *gpu = &m->gpus[device];
    m->dirty[device] = false;
    m->wake[device] = plan.wake_ns;
    for (size_t i = 0; i < plan.n; i++) {
        struct mgroup *g = &m->groups[plan.settings[i].group];
        uint64_t us = plan.settings[i].timeslice_us;
        g->want_us =
            us ? clamp_u64(us, gpu->timeslice_min_us, gpu->timeslice_max_us) : g->dg.timeslice_us;
        g->want_runnable = plan.settings[i].runnable;
        if (g->want_runnable)
            m->jobs[m->processes[g->process].job].on[device].ran = true;
    }
    for (size_t i = 0; i < plan.n; i++) {
        if (!plan.settings[i].runnable && is_due(&m->groups[plan.settings[i].group]))
            mgr_apply_runnable(m, plan.settings[i].group);
    }
    for (size_t i = 0; i < plan.n; i++)
        mgr_apply_timeslice(m, plan.settings[i].group);
    for (size_t i = 0; i < plan.n; i++) {
        if (plan.settings[i].runnable && m->groups[plan.settings[i].group].suspended)
            mgr_apply_runnable(m, plan.settings[i].group);
    }
    mgr_demand_decided(m, device);
    for (size_t i = 0; i < plan.n; i++) {
        uint64_t retry = m->groups[plan.settings[i].group].retry_at;
        if (retry > m->now)
            m->wake[device] = min_u64(m->wake[device], retry);
    }
}

static bool is_unclaimed(uint32_t slot, void *arg)
{
    const struct manager *m = arg;
    return m->unclaimed[slot];
}

/* Records of an earlier holder whose job is not ours, or which a restorer undid already. */
void mgr_undo_unclaimed(struct manager *m)
{
    journal_undo(m->journal, m->driver, is_unclaimed, m);
    m->nunclaimed = 0;
    for (uint32_t i = 0; i < JOURNAL_GROUPS; i++) {
        uint32_t flags;
        m->unclaimed[i] = m->unclaimed[i] && journal_group(m->journal, i, &flags);
        m->nunclaimed += m->unclaimed[i];
    }
    m->claim_until = m->now + CLAIM_NS;
}

/* After damage to the journal nothing tells whom it was about: every GPU process is resumed, and a
 * timeslice that nobody but a cede sets (the smallest, or longer than the default) becomes the
 * default. Best effort: those that this user may not steer nobody of this user's has changed. */
void mgr_undo_all(struct manager *m)
{
    const struct device_ops *ops = m->driver->ops;
    struct pid_list pids = {0};
    journal_undo(m->journal, m->driver, NULL, NULL);
    ops->processes(m->driver, &pids, NULL);
    for (size_t i = 0; i < pids.n; i++) {
        struct proc_stat st;
        struct group_list found = {0};
        bool there = proc_stat_read(pids.v[i], &st) == 0;
        for (int n = 0; there && n < SCANS_MAX; n++) {
            group_list_free(&found);
            if (ops->scan(m->driver, st.id, &found, NULL) != -EAGAIN)
                break;
        }
        for (size_t k = 0; k < found.n; k++) {
            const struct device_group *g = &found.v[k];
            ops->resume(m->driver, &g, 1, NULL);
            const struct gpu_info *gpu = &m->gpus[g->gpu];
            if (g->gpu < m->ngpus && (g->timeslice_us <= gpu->timeslice_min_us ||
                                      g->timeslice_us > gpu->timeslice_default_us))
                ops->set_timeslice(m->driver, g, gpu->timeslice_default_us, NULL);
        }
        group_list_free(&found);
        ops->forget(m->driver, pids.v[i]); /* what it saw here is not what restoring sets */
    }
    pid_list_free(&pids);
}

/* The restorer took us for hung and undid everything: nothing is known of the groups any more. */
void mgr_restored_by_others(struct manager *m)
{
    for (uint32_t i = 0; i < m->groups_end; i++) {
        struct mgroup *g = &m->groups[i];
        if (!g->dg.proc.pid)
            continue;
        uint32_t flags = 0;
        journal_group(m->journal, i, &flags);
        g->suspended = flags & JG_SUSPENDED; /* what it could not undo it left there */
        g->suspend_unsure = true;
        g->timeslice_unknown = m->gpus[g->dg.gpu].caps & GPU_CAP_TIMESLICE;
    }
    mgr_all_dirty(m);
}
