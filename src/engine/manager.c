/* See manager.h. A turn (manager_tick) does what is due, in this order: processes that ended,
 * discovery of processes, scans of known processes, who works, decisions. */
#include "engine/manager.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "engine/manager_impl.h"

void mgr_all_dirty(struct manager *m)
{
    for (unsigned d = 0; d < m->ngpus; d++)
        m->dirty[d] = true;
}

void mgr_job_failed(struct manager *m, uint32_t job, int code, const struct error *err)
{
    m->jobs[job].error_code = code;
    m->jobs[job].error_until = m->now + ERROR_SHOWN_NS;
    m->jobs[job].error = *err;
}

void mgr_sched(struct manager *m, struct sched_event ev)
{
    sched_event(m->sched, &ev);
}

static uint32_t job_by_root(const struct manager *m, pid_t pid)
{
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        if (m->jobs[i].j.root.pid == pid && m->jobs[i].root_pidfd >= 0)
            return i;
    }
    return SLOT_NONE;
}

static void job_save(struct manager *m, uint32_t job)
{
    journal_put_job(m->journal, job, &m->jobs[job].j);
}

static void job_drop(struct manager *m, uint32_t job)
{
    struct mjob *j = &m->jobs[job];
    if (j->root_pidfd >= 0)
        mgr_unwatch(m, j->root_pidfd);
    mgr_sched(m, (struct sched_event){.type = EV_JOB_REMOVE, .job = job});
    journal_put_job(m->journal, job, NULL);
    mgr_deadline_free(j);
    j->j.root.pid = 0;
}

void mgr_job_drop_if_over(struct manager *m, uint32_t job)
{
    const struct mjob *j = &m->jobs[job];
    if (j->j.root.pid && j->root_pidfd < 0 && !j->processes && !j->swap.child.pid)
        job_drop(m, job);
}

static int job_enter(struct manager *m, uint32_t slot, const struct journal_job *rec)
{
    int fd = mgr_watch(m, rec->root, WATCH_ROOT, slot);
    if (fd < 0)
        return fd;
    m->jobs[slot] = (struct mjob){
        .j = *rec, .root_pidfd = fd, .first_process = SLOT_NONE, .added_ns = m->now, .busy = -1};
    for (unsigned d = 0; d < DEVICE_GPUS_MAX; d++)
        m->jobs[slot].on[d].busy = -1;
    m->jobs_end = slot >= m->jobs_end ? slot + 1 : m->jobs_end;
    mgr_sched(m, (struct sched_event){.type = EV_JOB_ADD,
                                      .job = slot,
                                      .class = (enum job_class)rec->class,
                                      .weight = rec->weight,
                                      .budget_us = rec->budget_us});
    if (rec->paused)
        mgr_sched(m, (struct sched_event){.type = EV_JOB_PAUSE, .job = slot, .on = true});
    /* The root may use the GPU itself; if it does not, its scans grow rare. */
    mgr_process_add(m, rec->root, slot);
    mgr_outsiders_forget(m);
    m->discover_at = m->now;
    return 0;
}

uint32_t manager_job_with(const struct manager *m, pid_t pid)
{
    uint32_t p = mgr_process_find(m, pid);
    if (p != SLOT_NONE && pidfd_alive(m->processes[p].pidfd))
        return m->processes[p].job;
    uint32_t job = job_by_root(m, pid);
    return job != SLOT_NONE && pidfd_alive(m->jobs[job].root_pidfd) ? job : SLOT_NONE;
}

uint32_t manager_job_of(const struct manager *m, pid_t pid)
{
    for (int depth = 0; pid > 1 && depth < 128; depth++) {
        uint32_t job = manager_job_with(m, pid);
        if (job != SLOT_NONE)
            return job;
        struct proc_stat st;
        if (proc_stat_read(pid, &st) < 0)
            break;
        pid = st.ppid;
    }
    return SLOT_NONE;
}

uint32_t manager_job_by_number(const struct manager *m, uint64_t number)
{
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        if (m->jobs[i].j.root.pid && m->jobs[i].j.number == number)
            return i;
    }
    return SLOT_NONE;
}

int manager_add(struct manager *m, struct proc_id root, const struct job_spec *spec, uint32_t *job,
                struct error *err)
{
    uint32_t known = job_by_root(m, root.pid);
    if (known != SLOT_NONE && m->jobs[known].j.root.start_ticks == root.start_ticks) {
        *job = known;
        return error_set(err, -EEXIST, "process %d is already job #%llu", root.pid,
                         (unsigned long long)m->jobs[known].j.number);
    }
    uint32_t slot = 0;
    while (slot < JOURNAL_JOBS && m->jobs[slot].j.root.pid)
        slot++;
    if (slot == JOURNAL_JOBS)
        return error_set(err, -ENOSPC, "too many jobs (%u)", JOURNAL_JOBS);
    struct journal_job rec = {
        .root = root,
        .class = spec->class,
        .weight = spec->weight,
        .budget_us = spec->budget_us,
        .deadline_us = spec->deadline_us,
        .laxity_us = spec->laxity_us,
        .may_rise = spec->may_rise,
        .uid = spec->uid,
        .source = spec->source,
        .number = atomic_fetch_add(&journal_shared(m->journal)->next_number, 1),
    };
    snprintf(rec.name, sizeof(rec.name), "%s", spec->name);
    /* A process that is known as part of another job becomes the root of its own. */
    uint32_t p = mgr_process_find(m, root.pid);
    if (p != SLOT_NONE) {
        uint32_t old = m->processes[p].job;
        if (m->jobs[old].swap.state != JOB_ON_GPU)
            return error_set(err, -EBUSY, "job #%llu, which it is part of, is swapped out",
                             (unsigned long long)m->jobs[old].j.number);
        mgr_process_remove(m, p, true);
        mgr_job_drop_if_over(m, old);
    }
    int r = job_enter(m, slot, &rec);
    if (r < 0)
        return error_set(err, r, "%d: %s", root.pid,
                         r == -ESRCH                    ? "no such process"
                         : r == -ENOENT || r == -EINVAL ? "a thread: give the pid of its process"
                                                        : strerror(-r));
    job_save(m, slot);
    *job = slot;
    return 0;
}

int manager_change(struct manager *m, uint32_t job, enum job_class class, uint32_t weight,
                   uint32_t budget_us)
{
    struct sched_event ev = {.type = EV_JOB_CHANGE,
                             .job = job,
                             .class = class,
                             .weight = weight,
                             .budget_us = budget_us};
    int r = sched_event(m->sched, &ev);
    if (r < 0)
        return r;
    m->jobs[job].j.class = class;
    m->jobs[job].j.weight = weight;
    m->jobs[job].j.budget_us = budget_us;
    job_save(m, job);
    mgr_all_dirty(m);
    return 0;
}

int manager_pause(struct manager *m, uint32_t job, bool paused, uid_t by)
{
    struct sched_event ev = {.type = EV_JOB_PAUSE, .job = job, .on = paused};
    int r = sched_event(m->sched, &ev);
    if (r < 0)
        return r;
    m->jobs[job].j.paused = paused;
    m->jobs[job].j.paused_by = paused ? by : 0;
    if (!paused)
        mgr_demand_resumed(m, job);
    job_save(m, job);
    mgr_all_dirty(m);
    return 0;
}

int manager_job_status(const struct manager *m, uint32_t job, struct error *err)
{
    const struct mjob *j = &m->jobs[job];
    if (j->error_code && m->now < j->error_until)
        return error_set(err, j->error_code, "%s", j->error.text);
    for (uint32_t p = j->first_process; p != SLOT_NONE && !j->groups;
         p = m->processes[p].job_next) {
        if (m->processes[p].searching)
            return error_set(err, -EAGAIN,
                             "its GPU contexts are still being looked for: it will be scheduled as "
                             "soon as they are found");
    }
    if (!j->groups && j->swap.state == JOB_ON_GPU)
        return error_set(err, -ENODEV,
                         "no GPU context yet: it will be scheduled as soon as it opens one");
    return 0;
}

void manager_release(struct manager *m, uint32_t job)
{
    for (uint32_t p = m->jobs[job].first_process, next; p != SLOT_NONE; p = next) {
        next = m->processes[p].job_next;
        mgr_outsider_add(m, m->processes[p].id, true);
        mgr_process_let_go(m, p);
        mgr_process_remove(m, p, true); /* what could not be undone is tried again */
    }
    job_drop(m, job);
    mgr_all_dirty(m);
}

/* Processes that ended, and what the driver has to say. */
static void reap(struct manager *m)
{
    struct epoll_event ev[64];
    bool driver = false;
    int n;
    while ((n = epoll_wait(m->epoll_fd, ev, 64, 0)) > 0) {
        for (int i = 0; i < n; i++) {
            uint32_t slot = (uint32_t)ev[i].data.u64;
            enum watch whose = (enum watch)(ev[i].data.u64 >> 32);
            if (whose == WATCH_DRIVER) {
                m->driver->ops->ready(m->driver, (int)slot);
                driver = true;
            } else if (whose == WATCH_SWAPPER) {
                mgr_swapper_ended(m, slot);
            } else if (whose == WATCH_ROOT) {
                mgr_unwatch(m, m->jobs[slot].root_pidfd);
                m->jobs[slot].root_pidfd = -1;
                mgr_job_drop_if_over(m, slot);
            } else {
                uint32_t job = m->processes[slot].job;
                mgr_process_remove(m, slot, false);
                mgr_job_drop_if_over(m, job);
            }
        }
    }
    if (driver)
        mgr_demand_told(m);
}

/* The driver's descriptors, by their numbers. One that cannot be watched is looked at by
 * processes(), once a second. */
static void driver_fd_add(void *arg, int fd)
{
    struct manager *m = arg;
    struct epoll_event e = {.events = EPOLLIN,
                            .data.u64 = (uint64_t)WATCH_DRIVER << 32 | (uint32_t)fd};
    epoll_ctl(m->epoll_fd, EPOLL_CTL_ADD, fd, &e);
}

static void driver_fd_remove(void *arg, int fd)
{
    struct manager *m = arg;
    epoll_ctl(m->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

static uint64_t decide_due(struct manager *m)
{
    uint64_t next = TIME_NEVER;
    for (unsigned d = 0; d < m->ngpus; d++) {
        if (m->dirty[d] || m->now >= m->wake[d])
            mgr_decide(m, d);
        next = min_u64(next, m->wake[d]);
    }
    return next;
}

uint64_t manager_tick(struct manager *m, uint64_t now_ns)
{
    m->now = now_ns;
    uint64_t restored = journal_shared(m->journal)->restored;
    if (restored != m->restored_seen) {
        m->restored_seen = restored;
        mgr_restored_by_others(m);
    }
    reap(m);
    uint64_t swaps = mgr_swap_due(m);
    decide_due(m); /* what a person asked for comes before looking around */
    if (now_ns >= m->discover_at)
        mgr_discover(m);
    uint64_t next = min_u64(min_u64(swaps, m->discover_at), mgr_scan_due(m));
    if (m->nunclaimed && now_ns >= m->claim_until)
        mgr_undo_unclaimed(m);
    next = min_u64(next, mgr_demand_due(m));
    if (m->driver->ops->due_ns)
        next = min_u64(next, m->driver->ops->due_ns(m->driver));
    next = min_u64(next, mgr_deadline_due(m));
    next = min_u64(next, mgr_autoswap_due(m));
    next = min_u64(next, decide_due(m));
    return m->nunclaimed ? min_u64(next, m->claim_until) : next;
}

void manager_undo_leftovers(struct manager *m)
{
    if (m->nunclaimed)
        mgr_undo_unclaimed(m);
}

void manager_watch(struct manager *m)
{
    m->watched_until = m->now + USAGE_WATCHED_NS;
}

bool manager_next_job(const struct manager *m, uint32_t *cursor, struct job_view *out)
{
    while (*cursor < m->jobs_end && !m->jobs[*cursor].j.root.pid)
        ++*cursor;
    if (*cursor >= m->jobs_end)
        return false;
    const struct mjob *j = &m->jobs[*cursor];
    *out = (struct job_view){
        .number = j->j.number,
        .job = j->j,
        .groups = j->groups,
        .busy = j->busy,
        .memory_bytes = j->memory_bytes,
    };
    for (uint32_t p = j->first_process; p != SLOT_NONE; p = m->processes[p].job_next) {
        out->processes += m->processes[p].first_group != SLOT_NONE;
        for (uint32_t g = m->processes[p].first_group; g != SLOT_NONE; g = m->groups[g].next) {
            const struct mgroup *x = &m->groups[g];
            out->gpus |= 1U << x->dg.gpu;
            job_view_level(out, &x->dg);
            out->runnable_groups += !x->suspended;
            out->rests |= x->suspended && sched_rests(m->sched, x->dg.gpu);
            if (x->dg.kind == GROUP_COMPUTE)
                out->timeslice_us = (uint32_t)x->timeslice_us;
        }
    }
    if (j->error_code && m->now < j->error_until)
        snprintf(out->error, sizeof(out->error), "%.*s", (int)sizeof(out->error) - 1,
                 j->error.text);
    mgr_deadline_view(m, *cursor, out);
    mgr_swap_view(m, *cursor, out);
    ++*cursor;
    return true;
}

int manager_set_policy(struct manager *m, const char *name)
{
    mgr_all_dirty(m);
    return sched_set_policy(m->sched, name);
}

int manager_set_params(struct manager *m, const struct sched_params *params)
{
    mgr_outsiders_forget(m); /* the rules may have changed too */
    mgr_all_dirty(m);
    return sched_set_params(m->sched, params);
}

const struct sched_params *manager_params(const struct manager *m)
{
    return sched_current_params(m->sched);
}

const char *manager_policy(const struct manager *m)
{
    return sched_policy(m->sched);
}

struct device_driver *manager_driver(const struct manager *m)
{
    return m->driver;
}

int manager_fd(const struct manager *m)
{
    return m->epoll_fd;
}

static void take_back(struct manager *m)
{
    uint32_t flags;
    if (journal_damaged(m->journal))
        mgr_undo_all(m);
    for (uint32_t i = 0; i < journal_groups_end(m->journal); i++) {
        m->unclaimed[i] = journal_group(m->journal, i, &flags) != NULL;
        m->nunclaimed += m->unclaimed[i];
    }
    for (uint32_t i = 0; i < journal_jobs_end(m->journal); i++) {
        const struct journal_job *rec = journal_job(m->journal, i);
        /* A job whose root has ended may have descendants; they cannot be told from strangers. */
        if (rec && job_enter(m, i, rec) < 0)
            journal_put_job(m->journal, i, NULL);
    }
    m->claim_until = m->now + CLAIM_NS;
    mgr_swap_take_back(m);
}

int manager_new(struct device_driver *driver, struct journal *journal,
                const struct manager_options *options, struct manager **out, struct error *err)
{
    struct manager *m = calloc(1, sizeof(*m));
    if (!m)
        return error_set(err, -ENOMEM, "out of memory");
    m->driver = driver;
    m->journal = journal;
    m->options = *options;
    m->now = monotonic_ns();
    m->restored_seen = journal_shared(journal)->restored;
    m->jobs = calloc(JOURNAL_JOBS, sizeof(*m->jobs));
    m->processes = calloc(PROCESSES_MAX, sizeof(*m->processes));
    m->groups = calloc(JOURNAL_GROUPS, sizeof(*m->groups));
    m->unclaimed = calloc(JOURNAL_GROUPS, sizeof(*m->unclaimed));
    m->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (uint32_t i = 0; i < BUCKETS; i++)
        m->buckets[i] = SLOT_NONE;
    m->ngpus = driver->ops->gpus(driver);
    m->ngpus = m->ngpus < DEVICE_GPUS_MAX ? m->ngpus : DEVICE_GPUS_MAX;

    struct sched_limits limits = {m->ngpus, JOURNAL_JOBS, JOURNAL_GROUPS};
    int r = -ENOMEM;
    if (m->jobs && m->processes && m->groups && m->unclaimed && m->epoll_fd >= 0)
        r = sched_new(&limits, &options->params, &m->sched);
    if (r == 0)
        r = sched_set_policy(m->sched, options->policy ? options->policy : "laxity");
    for (unsigned d = 0; r == 0 && d < m->ngpus; d++) {
        m->wake[d] = TIME_NEVER;
        r = driver->ops->info(driver, d, &m->gpus[d]);
        mgr_sched(m, (struct sched_event){
                         .type = EV_DEVICE, .device = d, .on = m->gpus[d].caps & GPU_CAP_GATE});
    }
    if (r == 0 && driver->ops->watch)
        driver->ops->watch(driver, &(struct device_watcher){driver_fd_add, driver_fd_remove, m});
    if (r < 0) {
        m->jobs_end = m->processes_end = 0;
        manager_free(m, false);
        return error_set(err, r, "cannot set up the scheduler: %s", strerror(-r));
    }
    take_back(m);
    *out = m;
    return 0;
}

unsigned manager_free(struct manager *m, bool restore)
{
    unsigned failed = 0;
    /* What is in the journal is what was changed. The jobs stay there, for whoever comes next. */
    if (restore)
        failed = journal_undo(m->journal, m->driver, NULL, NULL);
    mgr_swap_leave(m, restore);
    for (uint32_t i = 0; i < m->processes_end; i++) {
        if (m->processes[i].id.pid) {
            m->driver->ops->forget(m->driver, m->processes[i].id.pid);
            close(m->processes[i].pidfd);
        }
    }
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        if (m->jobs[i].j.root.pid && m->jobs[i].root_pidfd >= 0)
            close(m->jobs[i].root_pidfd);
        mgr_deadline_free(&m->jobs[i]);
    }
    if (m->driver->ops->watch)
        m->driver->ops->watch(m->driver, NULL);
    if (m->epoll_fd >= 0)
        close(m->epoll_fd);
    sched_free(m->sched);
    free(m->jobs);
    free(m->processes);
    free(m->groups);
    free(m->unclaimed);
    free(m->outsiders);
    free(m);
    return failed;
}
