/* See look.h. */
#include "cli/look.h"

#include <errno.h>
#include <string.h>

#include "cli/direct.h"
#include "control/replies.h"
#include "device/registry.h"
#include "lib/json_text.h"
#include "lib/paths.h"
#include "lib/procfs.h"
#include "lib/schedulers.h"
#include "lib/text.h"
#include "model/model.h"
#include "recovery/journal.h"

/* The journal holds only what was changed, so a group that it does not show runs as it always did.
 * A job counts as paused if something of it is still suspended or stopped: a restorer may have been
 * there. */
static json_t *from_journal_job(const struct journal *j, const struct journal_job *rec)
{
    struct job_view v = {.number = rec->number, .job = *rec, .busy = -1};
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
    json_t *job = job_json(&v, false);
    if (job && !v.job.paused && !v.swap)
        json_object_set_new(job, "state", json_string("running"));
    return job;
}

static void look_left(enum look_left left, const char *dir, struct error *said)
{
    struct error err = {""};
    int r = left == LOOK_REPAIR ? direct_repair(dir, &err) : -ECANCELED;
    if (r == 0)
        error_set(said, 0, "programs that a killed scheduler had left suspended run again now");
    else if (r == -ECANCELED)
        error_set(said, r,
                  "a killed scheduler has left programs suspended: start ceded, or type "
                  "`cede ps`");
    else if (r != -EBUSY) /* else another process does it */
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
        if (r == 0 && direct_abandoned(j)) {
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

/* A daemon knows which processes are in no job, and names them unless there are very many. */
static bool in_a_job(const json_t *all, pid_t pid)
{
    const json_t *unmanaged = json_object_get(all, "unmanaged"), *o;
    const bool says = unmanaged && !json_object_get(all, "unmanaged_more");
    size_t i;
    json_array_foreach(says ? unmanaged : json_object_get(all, "jobs"), i, o)
    {
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
    /* Scheduling is no use of the GPU. */
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
    struct pid_list pids = {0};
    struct usage_list usage = {0};
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
    pid_list_free(&pids);
    usage_list_free(&usage);
    device_close(d);
    return r;
}
