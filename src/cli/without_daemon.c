/* See without_daemon.h. */
#include "cli/without_daemon.h"

#include <errno.h>
#include <string.h>

#include "api/replies.h"
#include "base/json_text.h"
#include "base/paths.h"
#include "base/text.h"
#include "core/model.h"
#include "gpu/registry.h"
#include "journal/journal.h"
#include "who/procfs.h"
#include "who/schedulers.h"

/* The journal has only changed groups; others run by the driver's default. A job counts as paused
 * only if one of its groups is still suspended or stopped, since a restorer may have resumed them.
 */
static json_t *from_journal_job(const struct journal *j, const struct journal_job *rec)
{
    struct job_view v = {
        .number = rec->number, .job = *rec, .rootless = !proc_alive(rec->root), .busy = -1};
    for (uint32_t i = 0; i < journal_groups_end(j); i++) {
        uint32_t flags;
        const struct device_group *g = journal_group(j, i, &flags);
        if (!g || !proc_alive(g->proc) || !proc_in_tree(g->proc.pid, rec->root.pid))
            continue;
        v.groups++;
        v.gpus |= g->gpu < 32 ? 1U << g->gpu : 0;
        job_view_level(&v, g);
        v.runnable_groups += !(flags & (JG_SUSPENDED | JG_STOPPED));
    }
    v.job.paused = v.groups > v.runnable_groups;
    for (uint32_t i = 0; i < JOURNAL_SWAPS; i++) {
        const struct journal_swap *s = journal_swap(j, i);
        if (s && proc_alive(s->proc) && proc_in_tree(s->proc.pid, rec->root.pid))
            v.swap = s->arrived ? "swapped" : "swapping-in";
    }
    json_t *job = job_json(&v, JOB_WHOLE);
    if (job && !v.job.paused && !v.swap)
        json_object_set_new(job, "state", json_string("running"));
    return job;
}

/* Whether a group on record belongs to no job that a person has paused. */
static bool is_abandoned(uint32_t slot, void *arg)
{
    const struct journal *j = arg;
    uint32_t flags;
    const struct device_group *g = journal_group(j, slot, &flags);
    for (uint32_t i = 0; g && i < journal_jobs_end(j); i++) {
        const struct journal_job *job = journal_job(j, i);
        if (job && job->paused && proc_in_tree(g->proc.pid, job->root.pid))
            return false;
    }
    return g != NULL;
}

/* Whether a journal without a daemon records suspended processes that no person has paused: their
 * scheduler and its restorer were killed. */
static bool look_abandoned(const struct journal *j)
{
    for (uint32_t i = 0; i < journal_groups_end(j); i++) {
        uint32_t flags;
        const struct device_group *g = journal_group(j, i, &flags);
        if (g && (flags & (JG_SUSPENDED | JG_STOPPED)) && proc_alive(g->proc) &&
            is_abandoned(i, (void *)j))
            return true;
    }
    return false;
}

/* Undoes the changes to these processes, as the restorer would have. -EBUSY: another process holds
 * the journal after all; -EIO: some could not be resumed. */
static int look_repair(const char *dir, struct error *err)
{
    struct journal *j;
    struct device_driver *driver;
    int r = journal_open(dir, 0, &j, err);
    if (r < 0)
        return r;
    const struct journal_shared *s = journal_shared(j);
    r = device_open(s->driver[0] ? s->driver : "auto", s->where[0] ? s->where : NULL, &driver, err);
    if (r == 0) {
        unsigned failed = journal_undo(j, driver, is_abandoned, j);
        if (failed)
            r = error_set(err, -EIO, "%u channel groups could not be restored", failed);
        device_close(driver);
    }
    journal_close(j);
    return r;
}

static void look_left(enum look_left left, const char *dir, struct error *said)
{
    struct error err = {""};
    int r = left == LOOK_REPAIR ? look_repair(dir, &err) : -ECANCELED;
    if (r == 0)
        error_set(said, 0, "programs that a killed scheduler had left suspended run again now");
    else if (r == -ECANCELED)
        error_set(said, r,
                  "a killed scheduler has left programs suspended: start ceded, or type "
                  "`cede ps`");
    else if (r != -EBUSY) /* with -EBUSY another process undoes them */
        error_set(said, r,
                  "programs that a killed scheduler had left suspended stay so: %s; start ceded, "
                  "or `cede resume` them",
                  err.text);
}

int look_records(enum look_left left, json_t **out, struct error *said, struct error *err)
{
    json_t *jobs = json_array();
    char dir[512];
    for (unsigned i = 0; cede_socket_at(i, dir, sizeof(dir)); i++) {
        char *slash = strrchr(dir, '/');
        if (slash)
            *slash = '\0';
        struct journal *j;
        int r = journal_open_readonly(dir, &j, err);
        if (r == 0 && look_abandoned(j)) {
            journal_close(j);
            look_left(left, dir, said);
            r = journal_open_readonly(dir, &j, err);
        }
        if (r == -ENOENT)
            continue;
        if (r < 0) {
            json_decref(jobs);
            return r;
        }
        for (uint32_t k = 0; k < journal_jobs_end(j); k++) {
            const struct journal_job *rec = journal_job(j, k);
            if (rec && journal_job_lives(j, rec))
                json_array_append_new(jobs, from_journal_job(j, rec));
        }
        journal_close(j);
    }
    *out = json_pack("{s:o, s:b}", "jobs", jobs, "daemon", 0);
    return *out ? 0 : error_set(err, -ENOMEM, "out of memory");
}

/* Whether a process is in a job, by the daemon's complete list of others, else by its ancestors. */
static bool in_a_job(const json_t *all, pid_t pid)
{
    const json_t *unmanaged = json_object_get(all, "unmanaged");
    const bool says = unmanaged && !json_object_get(all, "unmanaged_more");
    for_each_json (o, says ? unmanaged : json_object_get(all, "jobs")) {
        const pid_t known = (pid_t)json_get_int(o, "pid");
        if (says ? pid == known : proc_in_tree(pid, known))
            return !says;
    }
    return says;
}

static json_t *other(pid_t pid, const struct usage_list *usage)
{
    struct proc_stat st;
    uid_t uid;
    if (proc_stat_read(pid, &st) < 0 || proc_owner(pid, &uid) < 0)
        return NULL;
    /* Schedulers open the GPU, but do not work on it. */
    if (pid == getpid() || proc_is_scheduler(&st, uid))
        return NULL;
    text_printable(st.comm);
    json_t *gpus = json_array();
    uint64_t memory = 0;
    for (size_t i = 0; i < usage->n; i++) {
        if (usage->v[i].pid != pid)
            continue;
        json_array_append_new(gpus, json_integer(usage->v[i].gpu));
        memory += usage->v[i].memory_bytes;
    }
    return json_pack("{s:i, s:s, s:I, s:o, s:I}", "pid", (int)pid, "name", st.comm, "uid",
                     (json_int_t)uid, "gpus", gpus, "memory_bytes", (json_int_t)memory);
}

int look_others(json_t *all, struct error *err)
{
    struct device_driver *d;
    int r = device_open("auto", NULL, &d, err);
    if (r < 0)
        return r;
    _cleanup_(pid_list_free) struct pid_list pids = {0};
    _cleanup_(usage_list_free) struct usage_list usage = {0};
    json_t *others = json_array();
    r = d->ops->processes(d, &pids, err);
    if (r == 0 && d->ops->usage)
        d->ops->usage(d, &usage, NULL);
    for (size_t i = 0; r == 0 && i < pids.n; i++) {
        json_t *o = NULL;
        if (!in_a_job(all, pids.v[i]))
            o = other(pids.v[i], &usage);
        if (o)
            json_array_append_new(others, o);
    }
    json_object_set_new(all, "others", others);
    device_close(d);
    return r;
}
