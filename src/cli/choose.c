/* See choose.h. */
#include "cli/choose.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "cli/cli.h"
#include "cli/targets.h"
#include "who/procfs.h"

int choose_job_of(pid_t pid, uint64_t *number, struct error *err)
{
    _cleanup_json_ json_t *reply = NULL;
    const struct request ask = {.op = OP_PS, .pid = pid, .number = INT64_MAX};
    const int r = client_ask(&ask, &reply, err);
    const json_int_t of = json_get_int(reply, "job_of");
    *number = of > 0 ? (uint64_t)of : UINT64_MAX;
    return r;
}

static bool wanted(const json_t *job, const struct request *t)
{
    const char *name = json_get_text(job, "name");
    if (t->number)
        return (uint64_t)json_get_int(job, "number") == t->number;
    if (t->pid)
        return proc_in_tree(t->pid, (pid_t)json_get_int(job, "pid"));
    return name && strcmp(name, t->name) == 0 &&
           (!t->has_owner || json_get_int(job, "uid") == (json_int_t)t->owner);
}

int choose_jobs(const char *verb, json_t *all, char *const *targets, int n)
{
    json_t *jobs = json_object_get(all, "jobs"), *chosen = json_array();
    int status = CLI_OK;
    bool *keep = calloc(json_array_size(jobs) + 1, sizeof(*keep));
    for (int i = 0; i < n && keep; i++) {
        struct request t = {.op = OP_PS};
        bool any = false;
        struct error err = {""};
        status = target_parse(verb, targets[i], &t) == CLI_OK ? status : CLI_USAGE;
        if (t.pid && json_get_true(all, "daemon") && choose_job_of(t.pid, &t.number, &err) < 0) {
            status = cli_error("%s: %s", targets[i], err.text);
            continue;
        }
        for_each_json (job, jobs) {
            bool w = wanted(job, &t);
            any |= w;
            keep[job_i] |= w;
        }
        if (!any && status != CLI_USAGE)
            status = cli_error("%s: no such job; `cede ps` lists the jobs", targets[i]);
    }
    for_each_json (job, jobs) {
        if (keep && keep[job_i])
            json_array_append(chosen, job);
    }
    free(keep);
    json_object_set_new(all, "jobs", chosen);
    return status;
}
