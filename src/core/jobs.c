/* Jobs: how they begin, change and end. See model.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/probe.h"
#include "core/model.h"

void model_job_root_ended(struct model *m, uint32_t job)
{
    model_root_close(&m->jobs[job]);
    model_job_group_look(m, job);
}

void model_job_group_look(struct model *m, uint32_t job)
{
    m->jobs[job].group_lives = cgroup_populated(m->jobs[job].rec.cgroup);
    model_job_drop_if_over(m, job);
}

const char *model_job_preempt_refused(const struct model *m, const struct job *j)
{
    if (j->is_client)
        return "it is a client of an MPS server, whose programs have one preemption mode together";
    return __builtin_popcount(model_job_computes(m, j)) > 1
               ? "it is on several GPUs, where blocks wait for each other"
               : NULL;
}

void model_job_pause(struct model *m, uint32_t job, bool paused, uid_t by)
{
    struct job *j = &m->jobs[job];
    j->rec.paused = paused;
    j->rec.paused_by = paused ? by : 0;
    if (!paused && j->error_code == -EDQUOT) /* memory/over.c has paused it; it goes on */
        j->error_code = 0;
    model_unit_changed(m, job);
    model_job_changed(m, j);
}

void model_job_remove(struct model *m, uint32_t job)
{
    struct job *j = &m->jobs[job];
    if (m->job_changed)
        m->job_changed(m, job, true);
    model_root_close(&m->jobs[job]);
    model_unit_leave(m, job);
    model_emit(m, (struct sched_event){.type = EV_JOB_REMOVE, .job = job});
    m->accounts[j->account].jobs--;
    free(j->due);
    j->due = NULL;
    j->rec.root.pid = 0;
    model_job_changed(m, j);
}

void model_job_drop_if_over(struct model *m, uint32_t job)
{
    const struct job *j = &m->jobs[job];
    if (j->rec.root.pid && j->root_pidfd < 0 && !j->nprocesses && !j->group_lives &&
        !j->swap.child.id.pid)
        model_job_remove(m, job);
}

int model_job_enter(struct model *m, uint32_t slot, const struct journal_job *rec)
{
    int fd = proc_pidfd(rec->root);
    const bool group_lives = fd == -ESRCH && cgroup_populated(rec->cgroup);
    const bool left = group_lives || (fd == -ESRCH && journal_job_lives(m->journal, rec));
    if (fd < 0 && !left)
        return fd;
    struct job *j = &m->jobs[slot];
    const struct unmanaged *before = model_unmanaged_find(m, rec->root);
    *j = (struct job){.rec = *rec,
                      .root_pidfd = left ? -1 : fd,
                      .first_process = SLOT_NONE,
                      .unit = slot,
                      .group_lives = group_lives,
                      .told = 1,
                      .was_free = !before || !before->detached,
                      .added_ns = m->now,
                      .counts.where_since = m->now};
    model_job_usage_clear(j);
    int r = left ? 0 : watch_start(&m->watches, fd, &j->root_ended, &j->root_watch);
    if (r < 0) {
        close(fd);
        j->rec.root.pid = 0;
        return r;
    }
    model_job_changed(m, j);
    m->preempts |= rec->preempt;
    m->jobs_end = slot >= m->jobs_end ? slot + 1 : m->jobs_end;
    j->account = model_account(m, rec->account, rec->principal);
    m->accounts[j->account].jobs++;
    struct sched_event add = model_terms_event(EV_JOB_ADD, slot, &rec->terms);
    add.account = j->account;
    model_emit(m, add);
    if (rec->paused)
        model_emit(m, (struct sched_event){.type = EV_JOB_PAUSE, .job = slot, .on = true});
    /* The root may use the GPU itself; if it does not, its scans grow rare. */
    if (!left)
        model_process_add(m, rec->root, slot);
    m->discover_now = true;
    PROBE(job, rec->number, rec->root.pid, rec->uid, rec->class);
    if (m->job_changed)
        m->job_changed(m, slot, false);
    return 0;
}

int model_job_change(struct model *m, uint32_t job, const struct job_terms *terms)
{
    struct job *j = &m->jobs[job];
    int r = model_emit(m, model_terms_event(EV_JOB_CHANGE, job, terms));
    if (r < 0)
        return r;
    j->rec.terms = *terms;
    m->preempts |= terms->preempt > 0;
    model_unit_changed(m, job);
    model_job_changed(m, j);
    return 0;
}

void model_job_rename(struct model *m, uint32_t job, const char *name)
{
    struct job *j = &m->jobs[job];
    snprintf(j->rec.name, sizeof(j->rec.name), "%s", name);
    model_job_changed(m, j);
}

/* Gives the job the control group that it has to itself, or the one that Slurm made for all steps
 * of a job. A job that had the group before has no other process left in it, so it loses it. */
static void job_take_group(struct model *m, uint32_t job, uint64_t slurm_job)
{
    const pid_t root = m->jobs[job].rec.root.pid;
    struct cgroup group;
    char name[32];
    snprintf(name, sizeof(name), "job_%llu", (unsigned long long)slurm_job);
    if (!(slurm_job && cgroup_above(root, name, &group)) && !cgroup_own(root, &group))
        return;
    uint32_t old = model_job_of_group(m, group, NULL, NULL);
    if (old != SLOT_NONE) {
        m->jobs[old].rec.cgroup = (struct cgroup){0};
        model_job_changed(m, &m->jobs[old]);
        model_job_group_look(m, old);
    }
    m->jobs[job].rec.cgroup = group;
    model_job_changed(m, &m->jobs[job]);
}

/* Takes a process out of the job that it is part of, if any. */
static int job_part(struct model *m, pid_t pid, struct error *err)
{
    const uint32_t p = model_process_find(m, pid);
    if (p == SLOT_NONE)
        return 0;
    const uint32_t old = m->processes[p].job;
    if (m->jobs[old].swap.phase != SWAP_HERE)
        return error_set(err, -EBUSY, "job #%llu, which it is part of, is swapped out",
                         (unsigned long long)m->jobs[old].rec.number);
    model_process_remove(m, p, true);
    model_job_drop_if_over(m, old);
    return 0;
}

int model_job_join(struct model *m, uint32_t job, struct proc_id proc, struct error *err)
{
    if (model_job_with(m, proc.pid) == job)
        return 0;
    int r = job_part(m, proc.pid, err);
    if (r == 0 && (r = model_process_add(m, proc, job)) < 0)
        error_set(err, r, "process %d cannot join job #%llu: %s", (int)proc.pid,
                  (unsigned long long)m->jobs[job].rec.number, strerror(-r));
    m->discover_now = true;
    return r;
}

int model_job_add(struct model *m, struct proc_id root, const struct job_spec *spec, uint32_t *job,
                  struct error *err)
{
    uint32_t known = model_job_by_root(m, root.pid);
    if (known != SLOT_NONE && m->jobs[known].rec.root.start_ticks == root.start_ticks) {
        *job = known;
        return error_set(err, -EEXIST, "process %d is already job #%llu", root.pid,
                         (unsigned long long)m->jobs[known].rec.number);
    }
    uint32_t slot = 0;
    while (slot < JOURNAL_JOBS && m->jobs[slot].rec.root.pid)
        slot++;
    if (slot == JOURNAL_JOBS)
        return error_set(err, -ENOSPC, "too many jobs (%u)", JOURNAL_JOBS);
    if (!model_may_watch(m, spec->uid))
        return error_set(err, -ENOSPC,
                         "too many jobs and processes for ceded's descriptors (LimitNOFILE)");
    struct journal_job rec = {
        .root = root,
        .terms = spec->terms,
        .uid = spec->uid,
        .source = spec->source,
        .number = m->next_number++,
        .launch = spec->launch,
    };
    snprintf(rec.name, sizeof(rec.name), "%s", spec->name);
    snprintf(rec.account, sizeof(rec.account), "%s", spec->account);
    rec.principal = spec->principal;
    uid_t owner = spec->uid;
    (void)proc_owner(root.pid, &owner);
    rec.owner = owner;
    int r = job_part(m, root.pid, err);
    if (r < 0)
        return r;
    r = model_job_enter(m, slot, &rec);
    if (r < 0)
        return error_set(err, r, "%d: %s", root.pid,
                         r == -ESRCH                    ? "no such process"
                         : r == -ENOENT || r == -EINVAL ? "a thread: give the pid of its process"
                                                        : strerror(-r));
    m->jobs[slot].program = spec->program;
    m->jobs[slot].facts = spec->facts;
    m->jobs[slot].rule_bytes = spec->memory_bytes;
    job_take_group(m, slot, spec->slurm_job);
    *job = slot;
    return 0;
}

bool model_may_signal(const struct model *m, const struct process *p)
{
    const uid_t uid = m->jobs[p->job].rec.uid;
    uid_t owner;
    return uid == 0 || (proc_owner(p->id.pid, &owner) == 0 && owner == uid);
}

void model_job_rescan(struct model *m, uint32_t job)
{
    for_each_process_of (m, &m->jobs[job], i) {
        struct process *p = &m->processes[i];
        m->driver->ops->forget(m->driver, p->id.pid);
        p->scan_at = m->now;
        p->scan_every = 0;
    }
}

uint32_t model_job_by_number(const struct model *m, uint64_t number)
{
    for_each_job (m, j) {
        if (j->rec.number == number)
            return model_job_slot(m, j);
    }
    return SLOT_NONE;
}

unsigned model_jobs(const struct model *m)
{
    unsigned n = 0;
    for_each_job (m, j)
        n++;
    return n;
}

bool model_user_full(const struct model *m, uid_t principal)
{
    uint32_t own = 0, users = 0;
    for_each_job (m, j) {
        own += j->rec.principal == principal;
        users += principal == 0 || j->rec.uid != 0;
    }
    return own >= USER_JOBS_MAX || users >= USERS_JOBS_MAX;
}

bool model_user_waits_full(const struct model *m, uid_t principal)
{
    uint32_t own = 0, users = 0;
    for_each_job (m, j) {
        own += model_job_waits(j) && j->rec.principal == principal;
        users += model_job_waits(j) && (principal == 0 || j->rec.uid != 0);
    }
    return own >= USER_WAITS_MAX || users >= USERS_WAITS_MAX;
}
