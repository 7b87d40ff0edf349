/* Which processes the jobs have, and which channel groups those have: discovery, scans, and the
 * tables of both. Decides nothing and changes nothing on a device. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "engine/manager_impl.h"

static uint32_t bucket(pid_t pid)
{
    return (uint32_t)pid * 2654435761U % BUCKETS;
}

uint32_t mgr_process_find(const struct manager *m, pid_t pid)
{
    uint32_t i = m->buckets[bucket(pid)];
    while (i != SLOT_NONE && m->processes[i].id.pid != pid)
        i = m->processes[i].hash_next;
    return i;
}

int mgr_watch(struct manager *m, struct proc_id id, enum watch whose, uint32_t slot)
{
    int fd = proc_pidfd(id);
    if (fd < 0)
        return fd;
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = (uint64_t)whose << 32 | slot};
    if (epoll_ctl(m->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0) {
        int r = -errno;
        close(fd);
        return r;
    }
    return fd;
}

void mgr_unwatch(struct manager *m, int pidfd)
{
    /* Closing is not enough while a child that was just forked still has a copy. */
    epoll_ctl(m->epoll_fd, EPOLL_CTL_DEL, pidfd, NULL);
    close(pidfd);
}

static uint32_t group_slot(struct manager *m, const struct device_group *dg, bool *claimed)
{
    uint32_t flags;
    *claimed = false;
    for (uint32_t i = 0; m->nunclaimed && i < journal_groups_end(m->journal); i++) {
        const struct device_group *old =
            m->unclaimed[i] ? journal_group(m->journal, i, &flags) : NULL;
        if (old && old->key == dg->key && old->gpu == dg->gpu && old->proc.pid == dg->proc.pid &&
            old->proc.start_ticks == dg->proc.start_ticks) {
            m->unclaimed[i] = false;
            m->nunclaimed--;
            *claimed = true;
            return i;
        }
    }
    for (uint32_t i = 0; i < JOURNAL_GROUPS; i++) {
        if (!m->groups[i].dg.proc.pid && !m->unclaimed[i])
            return i;
    }
    return SLOT_NONE;
}

static void group_add(struct manager *m, uint32_t process, const struct device_group *dg)
{
    struct mprocess *p = &m->processes[process];
    bool claimed;
    uint32_t slot = group_slot(m, dg, &claimed);
    if (slot == SLOT_NONE || dg->gpu >= m->ngpus) {
        struct error e;
        error_set(&e, -ENOSPC, "too many channel groups on this machine (%u): not scheduled",
                  JOURNAL_GROUPS);
        mgr_job_failed(m, p->job, -ENOSPC, &e);
        return;
    }
    struct mgroup *g = &m->groups[slot];
    *g = (struct mgroup){.dg = *dg,
                         .process = process,
                         .next = p->first_group,
                         .timeslice_us = dg->timeslice_us,
                         .timeslice_unknown =
                             dg->timeslice_now_us && dg->timeslice_now_us != dg->timeslice_us};
    if (claimed) {
        /* What it had before any of us came is in the journal, not in the device. */
        uint32_t flags;
        const struct device_group *old = journal_group(m->journal, slot, &flags);
        if (old) {
            g->dg.timeslice_us = old->timeslice_us;
            g->suspended = flags & JG_SUSPENDED;
            g->suspend_unsure = true; /* it was killed before it did what it wrote, or after */
            g->timeslice_unknown = m->gpus[dg->gpu].caps & GPU_CAP_TIMESLICE;
        }
    }
    p->first_group = slot;
    m->groups_end = slot >= m->groups_end ? slot + 1 : m->groups_end;
    m->jobs[p->job].groups++;
    mgr_sched(m, (struct sched_event){.type = EV_GROUP_ADD,
                                      .group = slot,
                                      .job = p->job,
                                      .device = dg->gpu,
                                      .computes = dg->kind == GROUP_COMPUTE});
    if (m->gpus[dg->gpu].caps & GPU_CAP_GATE)
        mgr_demand_of(m, p->job, dg->gpu);
    m->dirty[dg->gpu] = true;
}

/* Channels come and go in a living group. A new one of a suspended group runs: suspend it again.
 * And the program's own library may set the timeslice anew, over ours: that is what to restore from
 * now on, and ours is set again. */
static bool group_update(struct manager *m, uint32_t slot, const struct device_group *found)
{
    struct mgroup *g = &m->groups[slot];
    bool changed = memcmp(g->dg.channels, found->channels, sizeof(found->channels)) != 0;
    uint64_t original = g->dg.timeslice_us;
    g->dg = *found;
    g->dg.timeslice_us = original;
    uint64_t now_us = found->timeslice_now_us;
    bool reset = now_us && now_us != g->timeslice_us && !g->timeslice_unknown;
    if (reset) {
        g->timeslice_us = now_us;
        if (now_us != g->want_us) /* else ours, by a control that seemed to fail */
            g->dg.timeslice_us = now_us;
        m->dirty[g->dg.gpu] = true;
    }
    if (changed && g->suspended) {
        journal_put_group(m->journal, slot, mgr_journal_flags(g), &g->dg);
        g->suspend_unsure = true;
        m->dirty[g->dg.gpu] = true;
    } else if (reset) {
        journal_put_group(m->journal, slot, mgr_journal_flags(g), &g->dg);
    }
    return changed || reset;
}

/* keep: the group lives on with what was changed in it, so its journal record stays. */
static void group_remove(struct manager *m, uint32_t slot, bool keep)
{
    struct mgroup *g = &m->groups[slot];
    struct mprocess *p = &m->processes[g->process];
    uint32_t *link = &p->first_group;
    while (*link != slot)
        link = &m->groups[*link].next;
    *link = g->next;
    if (keep && mgr_journal_flags(g)) {
        m->unclaimed[slot] = true;
        m->nunclaimed++;
        m->claim_until = m->now + CLAIM_NS;
    } else {
        journal_put_group(m->journal, slot, 0, NULL);
    }
    mgr_sched(m, (struct sched_event){.type = EV_GROUP_REMOVE, .group = slot});
    m->jobs[p->job].groups--;
    m->dirty[g->dg.gpu] = true;
    g->dg.proc.pid = 0;
}

int mgr_process_add(struct manager *m, struct proc_id id, uint32_t job)
{
    uint32_t slot = 0;
    while (slot < PROCESSES_MAX && m->processes[slot].id.pid)
        slot++;
    if (slot == PROCESSES_MAX) {
        struct error e;
        error_set(&e, -ENOSPC, "too many GPU processes (%u): process %d is not scheduled",
                  PROCESSES_MAX, id.pid);
        mgr_job_failed(m, job, -ENOSPC, &e);
        return -ENOSPC;
    }
    int fd = mgr_watch(m, id, WATCH_PROCESS, slot);
    if (fd < 0)
        return fd;
    uint32_t b = bucket(id.pid);
    m->processes[slot] = (struct mprocess){
        .id = id,
        .job = job,
        .hash_next = m->buckets[b],
        .job_next = m->jobs[job].first_process,
        .first_group = SLOT_NONE,
        .pidfd = fd,
        .scan_at = m->now,
        .scan_every = SCAN_FAST_NS,
    };
    m->buckets[b] = slot;
    m->jobs[job].first_process = slot;
    m->processes_end = slot >= m->processes_end ? slot + 1 : m->processes_end;
    m->jobs[job].processes++;
    return 0;
}

void mgr_process_remove(struct manager *m, uint32_t slot, bool keep)
{
    struct mprocess *p = &m->processes[slot];
    while (p->first_group != SLOT_NONE)
        group_remove(m, p->first_group, keep);
    if (!keep)
        mgr_swap_process_gone(m, p->id);
    m->driver->ops->forget(m->driver, p->id.pid);
    uint32_t *link = &m->buckets[bucket(p->id.pid)];
    while (*link != slot)
        link = &m->processes[*link].hash_next;
    *link = p->hash_next;
    link = &m->jobs[p->job].first_process;
    while (*link != slot)
        link = &m->processes[*link].job_next;
    *link = p->job_next;
    mgr_unwatch(m, p->pidfd);
    m->jobs[p->job].processes--;
    p->id.pid = 0;
}

bool mgr_process_let_go(struct manager *m, uint32_t slot)
{
    struct mprocess *p = &m->processes[slot];
    bool runs = true;
    for (uint32_t i = p->first_group; i != SLOT_NONE; i = m->groups[i].next) {
        struct mgroup *g = &m->groups[i];
        g->want_runnable = true;
        g->want_us = g->dg.timeslice_us;
        g->retry_at = 0;
        if (g->suspended)
            mgr_apply_runnable(m, i);
        mgr_apply_timeslice(m, i);
        runs &= !g->suspended;
    }
    while (p->first_group != SLOT_NONE)
        group_remove(m, p->first_group, true); /* what could not be undone is tried again */
    m->driver->ops->forget(m->driver, p->id.pid);
    p->scan_at = TIME_NEVER;
    p->searching = p->slow = false;
    return runs;
}

void mgr_job_scan(struct manager *m, uint32_t job)
{
    for (uint32_t i = m->jobs[job].first_process; i != SLOT_NONE; i = m->processes[i].job_next) {
        struct mprocess *p = &m->processes[i];
        m->driver->ops->forget(m->driver, p->id.pid);
        p->scan_at = m->now;
        p->scan_every = SCAN_FAST_NS;
    }
}

static uint32_t slow_ones(const struct manager *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->processes_end; i++)
        n += m->processes[i].id.pid && m->processes[i].slow;
    return n;
}

bool manager_searching(const struct manager *m)
{
    for (uint32_t i = 0; i < m->processes_end; i++) {
        if (m->processes[i].id.pid && m->processes[i].searching)
            return true;
    }
    return false;
}

void mgr_process_scan(struct manager *m, uint32_t slot)
{
    struct mprocess *p = &m->processes[slot];
    uint64_t started = monotonic_ns();
    struct group_list found = {0};
    struct error err = {""};
    int r = m->driver->ops->scan(m->driver, p->id, &found, &err);
    bool changed = false;
    if (r != -ESRCH) {
        for (uint32_t g = p->first_group, next; g != SLOT_NONE; g = next) {
            next = m->groups[g].next;
            size_t k = 0;
            while (k < found.n &&
                   (found.v[k].key != m->groups[g].dg.key || found.v[k].gpu != m->groups[g].dg.gpu))
                k++;
            if (k == found.n && r == 0) {
                group_remove(m, g, false);
                changed = true;
            } else if (k < found.n) {
                changed |= group_update(m, g, &found.v[k]);
                found.v[k].key = 0;
            }
        }
        for (size_t k = 0; k < found.n; k++) {
            if (found.v[k].key) {
                group_add(m, slot, &found.v[k]);
                changed = true;
            }
        }
    }
    p->searching = r == -EAGAIN;
    if (r < 0 && r != -ESRCH && r != -EAGAIN)
        mgr_job_failed(m, p->job, r, &err);
    group_list_free(&found);
    uint64_t took = monotonic_ns() - started, all = took * m->processes_end;
    uint64_t slow = clamp_u64(all * SCAN_PART, SCAN_SLOW_NS, SCAN_RARE_NS);
    uint64_t fast = clamp_u64(all * FAST_PART, SCAN_FAST_NS, slow);
    p->scan_every = changed || p->searching ? fast : min_u64(p->scan_every * 3 / 2, slow);
    p->scan_at = m->now + p->scan_every;
    p->slow = p->searching || took > SCAN_BUDGET_NS;
    /* How long they take is the programs' to say: the more, the more rarely each. A search is in
     * short scans, and a latency job may be what is searched for. */
    if (p->searching)
        p->scan_at = m->now + took * SEARCH_PART * slow_ones(m);
    else if (p->slow)
        p->scan_at = max_u64(p->scan_at, m->now + took * SLOW_PART * slow_ones(m));
    if (r == -ESRCH && !proc_alive(p->id))
        mgr_process_remove(m, slot, false);
}

static struct outsider *outsider_find(struct manager *m, struct proc_id id)
{
    for (size_t i = 0; i < m->noutsiders; i++) {
        if (m->outsiders[i].id.pid == id.pid && m->outsiders[i].id.start_ticks == id.start_ticks)
            return &m->outsiders[i];
    }
    return NULL;
}

void mgr_outsiders_forget(struct manager *m)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->noutsiders; i++) {
        if (m->outsiders[i].let_go)
            m->outsiders[kept++] = m->outsiders[i];
    }
    m->noutsiders = kept;
}

void mgr_outsider_add(struct manager *m, struct proc_id id, bool let_go)
{
    struct outsider *known = outsider_find(m, id);
    if (known) {
        known->let_go |= let_go;
        return;
    }
    if (m->noutsiders == m->outsiders_cap) {
        size_t cap = m->outsiders_cap ? m->outsiders_cap * 2 : 64;
        struct outsider *v = reallocarray(m->outsiders, cap, sizeof(*v));
        if (!v)
            return; /* looked at again next time */
        m->outsiders = v;
        m->outsiders_cap = cap;
    }
    m->outsiders[m->noutsiders++] = (struct outsider){.id = id, .seen = true, .let_go = let_go};
}

/* The driver lists a process once it has a context: time to look closely, however rare its scans
 * have become. */
static void listed(struct manager *m, uint32_t slot)
{
    struct mprocess *p = &m->processes[slot];
    if (p->first_group == SLOT_NONE && !p->listed && p->scan_at != TIME_NEVER) {
        p->scan_at = m->now;
        p->scan_every = SCAN_FAST_NS;
    }
    p->listed = true;
}

static bool has_too_many(const struct manager *m, uid_t uid)
{
    uint32_t n = 0, users = 0;
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        n += m->jobs[i].j.root.pid && m->jobs[i].j.uid == uid;
        users += m->jobs[i].j.root.pid && m->jobs[i].j.uid != 0;
    }
    return uid != 0 && (n >= USER_JOBS_MAX || users >= USERS_JOBS_MAX);
}

void mgr_discover(struct manager *m)
{
    bool young = false;
    for (uint32_t i = 0; i < m->jobs_end; i++)
        young |= m->jobs[i].j.root.pid && !m->jobs[i].groups &&
                 m->now - m->jobs[i].added_ns < DISCOVER_YOUNG_NS;

    struct pid_list pids = {0};
    struct error gone = {""};
    int r = m->driver->ops->processes(m->driver, &pids, &gone);
    if ((r < 0) != m->device_lost)
        fprintf(stderr, "cede: %s\n", r < 0 ? gone.text : "the GPU is there again");
    m->device_lost = r < 0;
    for (size_t i = 0; i < m->noutsiders; i++)
        m->outsiders[i].seen = false;
    for (size_t i = 0; i < pids.n; i++) {
        struct proc_stat st;
        uint32_t known = mgr_process_find(m, pids.v[i]);
        if (known != SLOT_NONE) {
            listed(m, known);
            continue;
        }
        if (proc_stat_read(pids.v[i], &st) < 0)
            continue;
        struct outsider *o = outsider_find(m, st.id);
        if (o)
            o->seen = true;
        if (o && !o->let_go)
            continue;
        uint32_t job = manager_job_of(m, pids.v[i]);
        struct job_spec spec = {.weight = WEIGHT_DEFAULT};
        if (job != SLOT_NONE) {
            mgr_process_add(m, st.id, job);
        } else if (!o && m->options.rule &&
                   m->options.rule(m->options.rule_arg, pids.v[i], &spec) &&
                   !has_too_many(m, spec.uid)) {
            struct error err;
            if (manager_add(m, st.id, &spec, &job, &err) < 0)
                fprintf(stderr, "cede: %s\n", err.text);
        } else {
            mgr_outsider_add(m, st.id, false);
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < m->noutsiders; i++) {
        if (m->outsiders[i].seen || r < 0)
            m->outsiders[kept++] = m->outsiders[i];
    }
    m->noutsiders = kept;
    pid_list_free(&pids);
    m->discover_at = m->now + (young ? DISCOVER_FAST_NS : DISCOVER_SLOW_NS);
}

uint64_t mgr_scan_due(struct manager *m)
{
    uint64_t next = TIME_NEVER, started = monotonic_ns();
    uint32_t n = m->processes_end, first = m->scan_from;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = (first + k) % n;
        if (!m->processes[i].id.pid)
            continue;
        /* What does not fit in this turn comes first in the next, whatever is due again by then. */
        if (m->processes[i].scan_at <= m->now && monotonic_ns() - started < SCAN_BUDGET_NS) {
            uint32_t job = m->processes[i].job;
            m->scan_from = i + 1;
            mgr_process_scan(m, i);
            mgr_job_drop_if_over(m, job);
        }
        if (m->processes[i].id.pid)
            next = min_u64(next, m->processes[i].scan_at);
    }
    return next;
}
