/* See fake_manager.h. */
#include "fake_manager.h"

#include <errno.h>
#include <string.h>

static unsigned fake_gpus(struct device_driver *d)
{
    return 2;
}

static int fake_info(struct device_driver *d, unsigned gpu, struct gpu_info *out)
{
    memset(out, 0, sizeof(*out));
    snprintf(out->name, sizeof(out->name), "Made-up \"%u\"", gpu);
    snprintf(out->uuid, sizeof(out->uuid), "GPU-%u", gpu);
    return 0;
}

static const struct device_ops fake_ops = {.name = "fake", .gpus = fake_gpus, .info = fake_info};
static struct device_driver fake_driver = {&fake_ops};

struct manager *fake_manager_new(void)
{
    struct manager *m = calloc(1, sizeof(*m));
    if (m) {
        m->next_number = 1;
        snprintf(m->policy, sizeof(m->policy), "priority");
        params_default(&m->params);
    }
    return m;
}

uint32_t fake_manager_put(struct manager *m, pid_t pid, uid_t uid, enum job_class class,
                          uint32_t weight, const char *name)
{
    uint32_t slot = 0;
    while (slot < FAKE_JOBS && m->jobs[slot].number)
        slot++;
    if (slot == FAKE_JOBS)
        return SLOT_NONE;
    struct job_view *v = &m->jobs[slot];
    *v = (struct job_view){.number = m->next_number++, .busy = -1};
    v->job = (struct journal_job){
        .root = {.pid = pid}, .class = class, .weight = weight, .uid = uid, .number = v->number};
    snprintf(v->job.name, sizeof(v->job.name), "%s", name);
    m->end = slot >= m->end ? slot + 1 : m->end;
    return slot;
}

void fake_manager_apply(void *arg)
{
    struct manager *m = arg;
    m->applied++;
    m->applied_paused = 0;
    for (uint32_t i = 0; i < m->end; i++) {
        if (m->ends_when_applied)
            m->jobs[i].number = 0;
        m->applied_paused += m->jobs[i].number && m->jobs[i].job.paused;
    }
}

uint32_t manager_job_with(const struct manager *m, pid_t pid)
{
    for (uint32_t i = 0; i < m->end; i++) {
        if (m->jobs[i].number && m->jobs[i].job.root.pid == pid)
            return i;
    }
    return SLOT_NONE;
}

uint32_t manager_job_of(const struct manager *m, pid_t pid)
{
    return manager_job_with(m, pid);
}

uint32_t manager_job_by_number(const struct manager *m, uint64_t number)
{
    for (uint32_t i = 0; i < m->end; i++) {
        if (m->jobs[i].number == number)
            return i;
    }
    return SLOT_NONE;
}

int manager_add(struct manager *m, struct proc_id root, const struct job_spec *spec, uint32_t *job,
                struct error *err)
{
    *job = manager_job_of(m, root.pid);
    if (*job != SLOT_NONE)
        return error_set(err, -EEXIST, "process %d is already a job", root.pid);
    *job = fake_manager_put(m, root.pid, spec->uid, spec->class, spec->weight, spec->name);
    if (*job == SLOT_NONE)
        return error_set(err, -ENOSPC, "too many jobs");
    m->jobs[*job].job.root = root;
    m->jobs[*job].job.source = spec->source;
    m->jobs[*job].job.deadline_us = spec->deadline_us;
    m->jobs[*job].job.laxity_us = spec->laxity_us;
    m->jobs[*job].job.may_rise = spec->may_rise;
    return 0;
}

int manager_change(struct manager *m, uint32_t job, enum job_class class, uint32_t weight,
                   uint32_t budget_us)
{
    m->jobs[job].job.budget_us = budget_us;
    m->jobs[job].job.class = class;
    m->jobs[job].job.weight = weight;
    return 0;
}

int manager_set_deadline(struct manager *m, uint32_t job, uint32_t deadline_us, uint32_t laxity_us,
                         bool may_rise)
{
    m->jobs[job].job.deadline_us = deadline_us;
    m->jobs[job].job.laxity_us = laxity_us;
    m->jobs[job].job.may_rise = may_rise;
    return 0;
}

void manager_told(struct manager *m, uint32_t job, const struct told *t)
{
    m->told[job] = *t;
}

int manager_pause(struct manager *m, uint32_t job, bool paused, uid_t by)
{
    m->jobs[job].job.paused = paused;
    m->jobs[job].job.paused_by = paused ? by : 0;
    return 0;
}

int manager_swap_out(struct manager *m, uint32_t job, uid_t by, struct error *err)
{
    if (m->status)
        return error_set(err, m->status, "made-up trouble");
    m->jobs[job].swap = "swapping-out";
    m->jobs[job].swap_by_user = true;
    m->jobs[job].swap_uid = by;
    return 0;
}

int manager_need(struct manager *m, uint32_t job, uint64_t bytes, uint32_t gpu, struct error *err)
{
    if (gpu > 1)
        return error_set(err, -EINVAL, "there is no GPU %u", gpu);
    m->jobs[job].needs = bytes > 0;
    return 0;
}

int manager_swap_in(struct manager *m, uint32_t job)
{
    m->jobs[job].swap = "swapping-in";
    return 0;
}

void manager_release(struct manager *m, uint32_t job)
{
    m->jobs[job].number = 0;
}

int manager_job_status(const struct manager *m, uint32_t job, struct error *err)
{
    return m->status ? error_set(err, m->status, "made-up trouble") : 0;
}

void manager_watch(struct manager *m)
{
}

bool manager_next_job(const struct manager *m, uint32_t *cursor, struct job_view *out)
{
    while (*cursor < m->end && !m->jobs[*cursor].number)
        ++*cursor;
    if (*cursor >= m->end)
        return false;
    *out = m->jobs[(*cursor)++];
    return true;
}

int manager_set_policy(struct manager *m, const char *name)
{
    if (strcmp(name, "priority") != 0 && strcmp(name, "shares") != 0)
        return -EINVAL;
    snprintf(m->policy, sizeof(m->policy), "%s", name);
    return 0;
}

int manager_set_params(struct manager *m, const struct sched_params *params)
{
    m->params = *params;
    return 0;
}

const struct sched_params *manager_params(const struct manager *m)
{
    return &m->params;
}

const char *manager_policy(const struct manager *m)
{
    return m->policy;
}

struct device_driver *manager_driver(const struct manager *m)
{
    return &fake_driver;
}
