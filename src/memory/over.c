/* See over.h. */
#include "memory/over.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define MIB 1048576ULL

static bool is_limited(const struct job *j)
{
    return j->rec.memory_max_mib && j->ngroups;
}

/* Each job's memory on each GPU, DEVICE_GPUS_MAX for each slot; the caller's. Where the driver has
 * no report for this, it is as usage() last showed it. NULL: not known now. */
static uint64_t *memory_of_jobs(struct model *m)
{
    struct usage_list l = {.v = NULL};
    struct error err;
    uint64_t *has = calloc(m->jobs_end, DEVICE_GPUS_MAX * sizeof(*has));
    if (!has)
        return NULL;
    if (!m->driver->ops->memory_used) {
        m->memory_until = m->now + 2 * NSEC_PER_SEC; /* it is kept up to date until then */
        for (uint32_t i = 0; i < m->jobs_end * DEVICE_GPUS_MAX; i++)
            has[i] = m->jobs[i / DEVICE_GPUS_MAX].on[i % DEVICE_GPUS_MAX].memory_bytes;
        return has;
    }
    const int r = m->driver->ops->memory_used(m->driver, &l, &err);
    for (size_t k = 0; k < l.n && r == 0; k++) {
        const uint32_t p = model_process_find(m, l.v[k].pid);
        if (p != SLOT_NONE && l.v[k].gpu < m->ngpus)
            has[m->processes[p].job * DEVICE_GPUS_MAX + l.v[k].gpu] += l.v[k].memory_bytes;
    }
    usage_list_free(&l);
    if (r == 0)
        return has;
    free(has);
    return NULL;
}

/* Kills the job's processes on GPUs, all of them: a job that lost a part would hang. */
static void kill_job(const struct model *m, const struct job *j, char *what, size_t size)
{
    unsigned n = 0, others = 0;
    for_each_process_of (m, j, p) {
        if (m->processes[p].first_group == SLOT_NONE)
            continue;
        if (model_may_signal(m, &m->processes[p]))
            n += proc_signal(m->processes[p].id, SIGKILL) == 0;
        else
            others++;
    }
    const int at = snprintf(what, size, "%u of its processes killed", n);
    if (others)
        snprintf(what + at, size - (size_t)at, ", %u of other users left running", others);
}

static void over_act(struct model *m, struct job *j, enum memory_act act, unsigned gpu,
                     uint64_t bytes)
{
    char what[96] = "it goes on, as this only warns";
    struct error err;
    if (act == MEMORY_STOP) {
        model_job_pause(m, model_job_slot(m, j), true, j->rec.uid);
        snprintf(what, sizeof(what), "paused until `cede resume %%%llu`",
                 (unsigned long long)j->rec.number);
    } else if (act == MEMORY_END) {
        kill_job(m, j, what, sizeof(what));
    }
    error_set(&err, -ENOMEM, "it has %llu MiB on GPU %u, more than its memory-max of %u MiB: %s",
              (unsigned long long)(bytes / MIB), gpu, j->rec.memory_max_mib, what);
    model_job_failed(m, model_job_slot(m, j), -EDQUOT, &err); /* no verb has failed */
    log_user(j->rec.principal, LOG_WARNING, "job #%llu (%s) of uid %u: %s",
             (unsigned long long)j->rec.number, j->rec.name, j->rec.uid, err.text);
}

static void look_at_job(struct model *m, struct job *j, const uint64_t has[static DEVICE_GPUS_MAX])
{
    unsigned gpu = 0;
    for (unsigned d = 1; d < m->ngpus; d++)
        gpu = has[d] > has[gpu] ? d : gpu;
    const enum memory_act act =
        memory_limit_decide(&j->memory_watch, j->rec.memory_max_mib * MIB, j->rec.memory_over,
                            has[gpu], j->rec.paused, m->now);
    if (act != MEMORY_LEAVE)
        over_act(m, j, act, gpu, has[gpu]);
}

uint64_t over_due(struct over *o, struct model *m)
{
    bool any = false;
    for_each_job (m, j)
        any |= is_limited(j);
    if (!any)
        return TIME_NEVER;
    if (m->now < o->at)
        return o->at;
    o->at = m->now + MEMORY_LOOK_NS;
    uint64_t *has = memory_of_jobs(m);
    for_each_job (m, j) {
        if (has && is_limited(j))
            look_at_job(m, j, has + (size_t)model_job_slot(m, j) * DEVICE_GPUS_MAX);
    }
    free(has);
    return o->at;
}
