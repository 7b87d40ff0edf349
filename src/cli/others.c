/* See others.h. */
#include "cli/others.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "device/registry.h"
#include "model/model.h"

bool is_descendant(pid_t pid, pid_t root)
{
    return root > 1 && proc_is_descendant(pid, root);
}

static bool in_a_job(const json_t *jobs, pid_t pid)
{
    const json_t *job;
    size_t i;
    json_array_foreach(jobs, i, job)
    {
        if (is_descendant(pid, (pid_t)json_integer_value(json_object_get(job, "pid"))))
            return true;
    }
    return false;
}

static json_t *other(pid_t pid, const struct usage_list *usage)
{
    struct proc_stat st;
    uid_t uid;
    if (proc_stat_read(pid, &st) < 0 || proc_owner(pid, &uid) < 0)
        return NULL;
    /* Scheduling is no use of the GPU. */
    if (pid == getpid() || model_is_scheduler(&st, uid))
        return NULL;
    for (char *p = st.comm; *p; p++)
        *p = *p < ' ' || *p > '~' ? '?' : *p;
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

int others_add(json_t *all, struct error *err)
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
        if (!in_a_job(json_object_get(all, "jobs"), pids.v[i]))
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
