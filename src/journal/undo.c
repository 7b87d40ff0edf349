/* See journal.h: undoes the changes on record. Keeps no state, and tries everything once. */
#include <errno.h>
#include <signal.h>

#include "journal/journal.h"

/* Clears the flag if that succeeded; a group that is gone has nothing left to undo. */
static void undone(struct journal *j, uint32_t slot, int r, uint32_t flag)
{
    uint32_t flags;
    const struct device_group *g = journal_group(j, slot, &flags);
    if (g && r == 0)
        journal_put_group(j, slot, flags & ~flag, g);
    else if (r == -ESRCH || r == -ENOENT)
        journal_put_group(j, slot, 0, NULL);
}

/* Its process has ended. What was done to an MPS server's group stays with its other clients, of
 * whom no record tells: all programs are to be looked at. */
static void drop(struct journal *j, uint32_t slot, const struct device_group *g, uint32_t flags)
{
    if (g->shared && (flags & (JG_SUSPENDED | JG_TIMESLICE | JG_PREEMPT))) {
        atomic_fetch_or(&journal_shared(j)->incomplete, JOURNAL_GROUPS_MISSING);
        journal_store_shared(j);
    }
    journal_put_group(j, slot, 0, NULL);
}

/* Resumes all suspended groups of one process on one GPU in one call, which the hardware's control
 * can do. */
static void undo_suspend(struct journal *j, struct device_driver *d, uint32_t from,
                         bool (*want)(uint32_t slot, void *arg), void *arg)
{
    enum { BATCH = 64 };
    uint32_t from_flags;
    const struct device_group *first = journal_group(j, from, &from_flags);
    struct proc_id proc = first->proc;
    uint32_t slots[BATCH];
    const struct device_group *list[BATCH] = {0};
    size_t n = 0;
    for (uint32_t i = from; i < journal_groups_end(j) && n < BATCH; i++) {
        uint32_t flags;
        const struct device_group *g = journal_group(j, i, &flags);
        if (g && (flags & JG_SUSPENDED) && proc_same(g->proc, proc) && g->gpu == first->gpu &&
            (!want || want(i, arg))) {
            slots[n] = i;
            list[n++] = g;
        }
    }
    bool all = d->ops->set_running(d, list, n, true, NULL) == 0;
    for (size_t k = 0; k < n; k++) {
        /* One group that is gone must not keep the others suspended. */
        int r = all ? 0 : d->ops->set_running(d, &list[k], 1, true, NULL);
        undone(j, slots[k], r, JG_SUSPENDED);
    }
}

void journal_undo_stops(struct journal *j, bool (*want)(uint32_t slot, void *arg), void *arg)
{
    for (uint32_t i = 0; i < journal_groups_end(j); i++) {
        uint32_t flags;
        const struct device_group *g = journal_group(j, i, &flags);
        if (g && (flags & JG_STOPPED) && (!want || want(i, arg)))
            undone(j, i, proc_signal(g->proc, SIGCONT), JG_STOPPED);
    }
}

unsigned journal_undo(struct journal *j, struct device_driver *d,
                      bool (*want)(uint32_t slot, void *arg), void *arg)
{
    unsigned failed = 0;
    journal_undo_stops(j, want, arg);
    /* All groups are resumed before the first timeslice is set. */
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < journal_groups_end(j); i++) {
            uint32_t flags;
            const struct device_group *g = journal_group(j, i, &flags);
            if (!g || (want && !want(i, arg)))
                continue;
            if (!proc_alive(g->proc)) {
                drop(j, i, g, flags);
            } else if (pass == 0 && (flags & JG_SUSPENDED)) {
                undo_suspend(j, d, i, want, arg);
            } else if (pass == 1) {
                if (flags & JG_TIMESLICE) {
                    int r = d->ops->set_timeslice(d, g, g->timeslice_us, NULL);
                    undone(j, i, r, JG_TIMESLICE);
                }
                if (flags & JG_PREEMPT) /* with a driver without modes, the record is damaged */
                    undone(j, i, d->ops->set_preempt ? d->ops->set_preempt(d, g, false, NULL) : 0,
                           JG_PREEMPT);
                failed += journal_group(j, i, &flags) != NULL;
            }
        }
    }
    return failed;
}
