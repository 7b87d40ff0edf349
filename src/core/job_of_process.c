/* Which job a process belongs to: by the tables, its process group or session, its control group,
 * or what started it (docs/concepts.md has the order). See model.h. Changes nothing. */
#include <string.h>

#include "core/model.h"
#include "who/schedulers.h"

uint32_t model_job_by_root(const struct model *m, pid_t pid)
{
    for_each_job (m, j) {
        if (j->rec.root.pid == pid && j->root_pidfd >= 0)
            return model_job_slot(m, j);
    }
    return SLOT_NONE;
}

uint32_t model_job_with(const struct model *m, pid_t pid)
{
    uint32_t p = model_process_find(m, pid);
    if (p != SLOT_NONE && pidfd_alive(m->processes[p].pidfd))
        return m->processes[p].job;
    uint32_t job = model_job_by_root(m, pid);
    return job != SLOT_NONE && pidfd_alive(m->jobs[job].root_pidfd) ? job : SLOT_NONE;
}

/* Keeps the reason why the job of a process cannot be determined. */
static void job_unsure(int *unsure, int r)
{
    if (proc_unsure(r))
        *unsure = r;
}

/* A job takes another user's program only as a descendant of its root, because the right to signal
 * a job is no right to signal other users' programs. */
static bool job_may_take(const struct job *j, const struct proc_stat *st, int *unsure)
{
    uid_t owner;
    if (st->id.start_ticks < j->rec.root.start_ticks)
        return false;
    int r = proc_owner(st->id.pid, &owner);
    job_unsure(unsure, r);
    return r == 0 && owner == j->rec.owner;
}

uint32_t model_job_of_group(const struct model *m, struct cgroup group, const struct proc_stat *st,
                            int *unsure)
{
    for_each_job (m, j) {
        if (cgroup_same(j->rec.cgroup, group) && (!st || job_may_take(j, st, unsure)))
            return model_job_slot(m, j);
    }
    return SLOT_NONE;
}

/* The innermost group counts. A user who writes to a group's cgroup.procs can add only processes of
 * the job's owner (job_may_take()). */
static uint32_t job_by_cgroup(const struct model *m, const struct proc_stat *st, int *unsure)
{
    uint64_t ids[CGROUP_LEVELS_MAX];
    uint32_t wanted = 0; /* hierarchies, a bit mask */
    for_each_job (m, j)
        wanted |= 1U << j->rec.cgroup.hierarchy;
    for (uint32_t h = 1; h <= CGROUP_HIERARCHIES; h++) {
        int n = wanted & 1U << h ? cgroup_levels(st->id.pid, h, ids) : 0;
        job_unsure(unsure, n);
        for (int i = 0; i < n; i++) {
            uint32_t job = model_job_of_group(m, (struct cgroup){h, ids[i]}, st, unsure);
            if (job != SLOT_NONE)
                return job;
        }
    }
    return SLOT_NONE;
}

/* A process group or session has its leader's number, which is given to no other process while it
 * has members. A daemon's child keeps both when its parents have gone. */
static uint32_t job_by_leader(const struct model *m, const struct proc_stat *st, int *unsure)
{
    uint32_t found = SLOT_NONE;
    for_each_job (m, j) {
        const struct proc_id root = j->rec.root;
        if (st->group != root.pid && st->session != root.pid)
            continue;
        struct proc_stat now; /* the number may have passed on */
        int r = proc_stat_read(root.pid, &now);
        job_unsure(unsure, r);
        if (r == 0 && !proc_same(now.id, root))
            continue;
        if (job_may_take(j, st, unsure) && (found == SLOT_NONE || st->group == root.pid))
            found = model_job_slot(m, j);
    }
    return found;
}

int model_job_near(const struct model *m, const struct proc_stat *st, uint32_t near, uint32_t *job)
{
    int unsure = 0;
    near = near != SLOT_NONE ? near : job_by_leader(m, st, &unsure);
    uint32_t group = job_by_cgroup(m, st, &unsure);
    *job = SLOT_NONE;
    if (unsure < 0)
        return unsure;
    /* If two jobs claim the process, the younger one began within the other and is nearer. */
    const bool younger = near != SLOT_NONE && group != SLOT_NONE &&
                         m->jobs[group].rec.root.start_ticks > m->jobs[near].rec.root.start_ticks;
    *job = near == SLOT_NONE || younger ? group : near;
    return 0;
}

int model_job_of_launch(const struct model *m, uint64_t launch, struct proc_id proc, uint32_t *job)
{
    uid_t owner;
    *job = SLOT_NONE;
    int r = launch ? proc_owner(proc.pid, &owner) : 0;
    if (!launch || r < 0)
        return r;
    for_each_job (m, j) {
        if (j->rec.launch == launch && j->rec.owner == owner)
            *job = model_job_slot(m, j);
    }
    return 0;
}

uint32_t model_job_of_slurm(const struct model *m, const struct job_spec *spec)
{
    for_each_job (m, j) {
        if (j->rec.source == JOB_SLURM && j->rec.uid == spec->uid &&
            strcmp(j->rec.name, spec->name) == 0)
            return model_job_slot(m, j);
    }
    return SLOT_NONE;
}
