/* The tables of processes and their channel groups. See model.h. */
#include "core/model.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define BUCKETS    ARRAY_SIZE(((struct model *)0)->buckets)
#define ORPHANS_NS (2 * NSEC_PER_SEC) /* how long an orphan waits for its process */

/* Descriptors that are reserved for 256 clients, 256 pages of hints, and the daemon itself. */
#define DESCRIPTORS_ELSE 768U

int model_init(struct model *m)
{
    m->next_number = 1;
    m->jobs = calloc(JOURNAL_JOBS, sizeof(*m->jobs));
    m->accounts = calloc(MODEL_ACCOUNTS, sizeof(*m->accounts));
    m->processes = calloc(JOURNAL_MEMBERS, sizeof(*m->processes));
    m->groups = calloc(JOURNAL_GROUPS, sizeof(*m->groups));
    m->shared = calloc(JOURNAL_GROUPS, sizeof(*m->shared));
    for (size_t i = 0; i < BUCKETS; i++)
        m->buckets[i] = SLOT_NONE;
    model_unmanaged_init(m);
    struct rlimit l = {.rlim_cur = 1024};
    getrlimit(RLIMIT_NOFILE, &l);
    uint64_t n = min_u64(l.rlim_cur, UINT32_MAX);
    m->watched_max = (uint32_t)(n - min_u64(DESCRIPTORS_ELSE, n / 2));
    return m->jobs && m->accounts && m->processes && m->groups && m->shared ? 0 : -ENOMEM;
}

void model_root_close(struct job *j)
{
    if (j->root_pidfd < 0)
        return;
    watch_stop(j->root_watch);
    close(j->root_pidfd);
    j->root_pidfd = -1;
}

void model_free(struct model *m)
{
    for (uint32_t i = 0; i < m->processes_end; i++) {
        if (m->processes[i].id.pid) {
            m->driver->ops->forget(m->driver, m->processes[i].id.pid);
            watch_stop(m->processes[i].watch);
            close(m->processes[i].pidfd);
        }
    }
    for_each_job (m, j) {
        model_root_close(j);
        free(j->due);
    }
    free(m->jobs);
    free(m->accounts);
    free(m->processes);
    free(m->groups);
    free(m->shared);
    free(m->unmanaged);
}

/* ---- processes ---- */

static uint32_t process_bucket(pid_t pid)
{
    return (uint32_t)pid * 2654435761U % BUCKETS;
}

uint32_t model_process_find(const struct model *m, pid_t pid)
{
    uint32_t i = m->buckets[process_bucket(pid)];
    while (i != SLOT_NONE && m->processes[i].id.pid != pid)
        i = m->processes[i].hash_next;
    return i;
}

bool model_may_watch(const struct model *m, uid_t uid)
{
    uint32_t all = m->nprocesses, users = m->user_processes;
    for_each_job (m, j) {
        all += j->root_pidfd >= 0;
        users += j->root_pidfd >= 0 && j->rec.uid != 0;
    }
    return all < m->watched_max && (uid == 0 || users < USERS_PART(m->watched_max));
}

/* Reports for its job that a process or a group has no room. */
static int model_no_room(struct model *m, uint32_t job, const char *of, struct proc_id id)
{
    struct error e;
    error_set(&e, -ENOSPC,
              m->jobs[job].rec.uid ? "too many GPU programs of users for ceded's %s: process %d is "
                                     "not scheduled"
                                   : "too many GPU programs for ceded's %s: process %d is not "
                                     "scheduled",
              of, id.pid);
    model_job_failed(m, job, -ENOSPC, &e);
    return -ENOSPC;
}

/* Slots with journal records of other processes are skipped until the records are freed. */
int model_process_add(struct model *m, struct proc_id id, uint32_t job)
{
    while (m->processes_free < JOURNAL_MEMBERS && m->processes[m->processes_free].id.pid)
        m->processes_free++;
    uint32_t slot = m->processes_free;
    while (slot < JOURNAL_MEMBERS &&
           (m->processes[slot].id.pid || journal_member(m->journal, slot)))
        slot++;
    return model_process_enter(m, slot, id, job);
}

int model_process_enter(struct model *m, uint32_t slot, struct proc_id id, uint32_t job)
{
    const bool user = m->jobs[job].rec.uid != 0;
    const uint32_t b = process_bucket(id.pid);
    if (slot == JOURNAL_MEMBERS || (user && m->user_processes >= USERS_PART(JOURNAL_MEMBERS)))
        return model_no_room(m, job, "tables", id);
    if (!model_may_watch(m, m->jobs[job].rec.uid))
        return model_no_room(m, job, "descriptors (LimitNOFILE)", id);
    int fd = proc_pidfd(id);
    if (fd < 0)
        return fd;
    struct process *p = &m->processes[slot];
    *p = (struct process){
        .id = id,
        .job = job,
        .hash_next = m->buckets[b],
        .job_next = m->jobs[job].first_process,
        .first_group = SLOT_NONE,
        .pidfd = fd,
        .record_changed = true,
        .scan_at = m->now,
        .unseen_since = max_u64(m->looked_ns, m->jobs[job].added_ns),
    };
    int r = watch_start(&m->watches, p->pidfd, &p->ended, &p->watch);
    if (r < 0) {
        close(fd);
        p->id.pid = 0;
        return r;
    }
    m->buckets[b] = slot;
    m->jobs[job].first_process = slot;
    m->processes_end = slot >= m->processes_end ? slot + 1 : m->processes_end;
    m->jobs[job].nprocesses++;
    m->records_changed = true;
    m->jobs[job].moved_ns = m->now;
    m->nprocesses++;
    m->user_processes += user;
    return 0;
}

void model_process_remove(struct model *m, uint32_t slot, bool keep)
{
    struct process *p = &m->processes[slot];
    struct job *j = &m->jobs[p->job];
    while (p->first_group != SLOT_NONE)
        model_group_remove(m, p->first_group, keep);
    if (!keep)
        m->process_gone(m, p->id);
    m->driver->ops->forget(m->driver, p->id.pid);
    uint32_t *link = &m->buckets[process_bucket(p->id.pid)];
    while (*link != slot)
        link = &m->processes[*link].hash_next;
    *link = p->hash_next;
    link = &j->first_process;
    while (*link != slot)
        link = &m->processes[*link].job_next;
    *link = p->job_next;
    watch_stop(p->watch);
    close(p->pidfd);
    j->nprocesses--;
    j->moved_ns = m->now;
    m->nprocesses--;
    m->user_processes -= j->rec.uid != 0;
    j->wants_changed |= p->wants != 0;
    p->id.pid = 0;
    m->processes_free = (uint32_t)min_u64(m->processes_free, slot);
    p->record_changed = m->records_changed = true;
}

void model_process_detach(struct model *m, uint32_t slot)
{
    struct process *p = &m->processes[slot];
    while (p->first_group != SLOT_NONE)
        model_group_remove(m, p->first_group, true);
    m->driver->ops->forget(m->driver, p->id.pid);
    p->scan_at = p->unseen_since = TIME_NEVER; /* groups that return were charged before */
    p->searching = p->slow = false;
}

/* ---- groups ---- */

uint32_t model_journal_flags(const struct channel_group *g)
{
    return (g->suspended.have ? JG_SUSPENDED : 0U) |
           (g->timeslice_us.unsure || g->timeslice_us.have != g->dg.timeslice_us ? JG_TIMESLICE
                                                                                 : 0U) |
           (g->stopped ? JG_STOPPED : 0U) |
           (g->block_ends.have || g->block_ends.unsure ? JG_PREEMPT : 0U);
}

static uint32_t group_slot(struct model *m, const struct device_group *dg)
{
    for (uint32_t i = 0; m->norphans && i < m->groups_end; i++) {
        if (m->groups[i].orphan && journal_same(&m->groups[i].dg, dg))
            return i;
    }
    while (m->groups_free < JOURNAL_GROUPS && m->groups[m->groups_free].dg.proc.pid)
        m->groups_free++;
    return m->groups_free < JOURNAL_GROUPS ? m->groups_free : SLOT_NONE;
}

int model_group_add(struct model *m, uint32_t process, const struct device_group *dg)
{
    struct process *p = &m->processes[process];
    uint32_t slot = group_slot(m, dg);
    const bool user = m->jobs[p->job].rec.uid != 0;
    if (slot == SLOT_NONE || dg->gpu >= m->ngpus ||
        (user && m->user_groups >= USERS_PART(JOURNAL_GROUPS)))
        return model_no_room(m, p->job, "tables", p->id);
    const struct channel_group old = m->groups[slot];
    /* An earlier cede may have suspended the group. Where its records are lost the group counts as
     * suspended, so that it is resumed even if it never has to be suspended. */
    const bool lost = journal_incomplete(m->journal) & JOURNAL_GROUPS_MISSING;
    struct channel_group *g = &m->groups[slot];
    *g = (struct channel_group){.dg = *dg,
                                .process = process,
                                .next = p->first_group,
                                .twin = slot,
                                .sched_job = SLOT_NONE,
                                .suspended = {.have = lost, .unsure = true},
                                .record_changed = old.record_changed,
                                .timeslice_us.have = dg->timeslice_us,
                                .timeslice_us.unsure = dg->timeslice_now_us &&
                                                       dg->timeslice_now_us != dg->timeslice_us};
    if (old.orphan) {
        /* The journal has the group's first settings, the device may have later ones. The writer of
         * the record may have been killed before or after it made the change, so all is unsure. */
        m->norphans--;
        g->dg.timeslice_us = old.dg.timeslice_us;
        g->suspended.have |= old.suspended.have;
        g->timeslice_us.unsure = m->gpus[dg->gpu].caps & GPU_CAP_TIMESLICE;
        p->stopped |= g->stopped = old.stopped;
        g->block_ends.unsure = old.block_ends.have || old.block_ends.unsure;
        g->block_ends.have = g->block_ends.unsure;
        m->preempts |= g->block_ends.unsure;
    }
    if (lost || (p->stopped && !g->stopped)) { /* it may become the last record of the process */
        g->stopped |= p->stopped;
        model_group_changed(m, g);
    }
    if (dg->kind == GROUP_COMPUTE && !old.orphan && !(p->charged & 1U << dg->gpu)) {
        g->unseen_ns = m->now - min_u64(p->unseen_since, m->now);
        p->charged |= 1U << dg->gpu;
    }
    p->first_group = slot;
    if (!(p->opened & 1U << dg->gpu) && /* a process back from host memory is not starting */
        starting_opens(&m->accounts[m->jobs[p->job].account].spell[dg->gpu], m->now))
        m->jobs[p->job].on[dg->gpu].start.opened_ns = m->now;
    p->opened |= 1U << dg->gpu;
    m->groups_end = slot >= m->groups_end ? slot + 1 : m->groups_end;
    m->jobs[p->job].ngroups++;
    m->user_groups += user;
    m->jobs[p->job].wants_changed |= m->gpus[dg->gpu].caps & GPU_CAP_GATE;
    if (dg->shared)
        model_group_inherit(m, slot);
    else if (!m->jobs[p->job].left_alone)
        model_group_show(m, slot, m->jobs[p->job].unit);
    return 0;
}

/* A new channel of a suspended group runs, so the group has to be suspended again. A timeslice that
 * the program's own library has set is restored at the end, and cede's is set again. */
bool model_group_update(struct model *m, uint32_t slot, const struct device_group *found)
{
    struct channel_group *g = &m->groups[slot];
    bool changed = memcmp(g->dg.channels, found->channels, sizeof(found->channels)) != 0;
    uint64_t original = g->dg.timeslice_us;
    const uint32_t shared = g->dg.shared;
    if (g->dg.kind != found->kind &&
        g->sched_job != SLOT_NONE) /* the first scan saw a half-built context */
        model_emit(m, (struct sched_event){.type = EV_GROUP_CHANGE,
                                           .group = slot,
                                           .computes = found->kind == GROUP_COMPUTE});
    g->dg = *found;
    g->dg.timeslice_us = original;
    uint64_t now_us = found->timeslice_now_us;
    bool reset = now_us && now_us != g->timeslice_us.have && !g->timeslice_us.unsure;
    if (reset) {
        g->timeslice_us.have = now_us;
        if (now_us != g->timeslice_us.wanted) /* else cede's control, reported as failed, worked */
            g->dg.timeslice_us = now_us;
    }
    if (found->shared != shared) {
        model_group_part(m, slot);
        model_group_inherit(m, slot);
    }
    g->suspended.unsure |= changed && g->suspended.have;
    if (reset || (changed && g->suspended.have)) {
        model_group_changed(m, g);
        m->dirty = true;
    }
    return changed || reset;
}

void model_group_remove(struct model *m, uint32_t slot, bool keep)
{
    struct channel_group *g = &m->groups[slot];
    struct process *p = &m->processes[g->process];
    uint32_t *link = &p->first_group;
    while (*link != slot)
        link = &m->groups[*link].next;
    *link = g->next;
    model_group_show(m, slot, SLOT_NONE);
    model_group_part(m, slot);
    m->units_dirty |= g->dg.shared > 0;
    m->jobs[p->job].ngroups--;
    m->user_groups -= m->jobs[p->job].rec.uid != 0;
    g->orphan = keep && model_journal_flags(g);
    if (g->orphan) {
        m->norphans++;
        m->orphans_until = m->now + ORPHANS_NS;
    } else {
        g->dg.proc.pid = 0;
        m->groups_free = (uint32_t)min_u64(m->groups_free, slot);
        model_group_changed(m, g);
    }
}

void model_orphan_add(struct model *m, uint32_t slot, const struct device_group *dg, uint32_t flags)
{
    m->groups[slot] = (struct channel_group){.dg = *dg,
                                             .orphan = true,
                                             .suspended.have = !!(flags & JG_SUSPENDED),
                                             .stopped = flags & JG_STOPPED,
                                             .block_ends.have = !!(flags & JG_PREEMPT)};
    m->groups_end = slot >= m->groups_end ? slot + 1 : m->groups_end;
    m->norphans++;
    m->orphans_until = m->now + ORPHANS_NS;
}

void model_orphan_remove(struct model *m, uint32_t slot)
{
    m->groups[slot] = (struct channel_group){.orphan = false};
    m->groups_free = (uint32_t)min_u64(m->groups_free, slot);
    m->norphans--;
}
