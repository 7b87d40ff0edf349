/* Views of the engine's state for callers. Changes nothing except how often usage() is asked. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine_impl.h"

uint32_t engine_job_of(const struct engine *e, pid_t pid)
{
    uint32_t job;
    (void)model_job_of(&e->model, pid, &job);
    return job;
}

bool engine_loses_in_space(const struct engine *e, uint32_t slot)
{
    return speeds_lose(&e->speeds, &e->model, slot);
}

int engine_job_status(const struct engine *e, uint32_t job, struct error *err)
{
    const struct model *m = &e->model;
    const struct job *j = &m->jobs[job];
    if (j->error_code && m->now < j->error_until)
        return error_set(err, j->error_code, "%s", j->error.text);
    for_each_process_of (m, j, p) {
        if (!j->ngroups && m->processes[p].searching)
            return error_set(err, -EAGAIN,
                             "its GPU contexts are still being looked for: it will be scheduled as "
                             "soon as they are found");
    }
    if (!j->ngroups && m->quiesced)
        return error_set(
            err, -EAGAIN,
            "the GPU's driver is being checked: it will be scheduled when that is done");
    if (!j->ngroups && j->swap.phase == SWAP_HERE)
        return error_set(err, -ENODEV,
                         strcmp(device_name(m->driver), "gate") == 0
                             ? "ceded has no GPU (`cede status`): only a program that holds back "
                               "its own work will be scheduled"
                             : "no GPU context yet: it will be scheduled as soon as it opens one");
    return 0;
}

static void view_groups(const struct engine *e, const struct job *j, struct job_view *out)
{
    const struct model *m = &e->model;
    uint32_t stopped = 0;
    for_each_process_of (m, j, p) {
        bool holds = false;
        out->processes += m->processes[p].first_group != SLOT_NONE;
        for_each_group_of (m, &m->processes[p], g) {
            const struct channel_group *x = &m->groups[g];
            holds |=
                x->dg.level != LEVEL_QUEUE; /* queued work goes on while a process is stopped */
            out->gpus |= 1U << x->dg.gpu;
            job_view_level(out, &x->dg);
            out->runnable_groups += !x->suspended.have && !j->out_of_turn;
            out->throttled |= x->suspended.have && sched_throttled(e->model.sched, x->dg.gpu);
            out->preempt_active |= x->block_ends.have && !x->block_ends.unsure;
        }
        stopped += holds && proc_stopped(m->processes[p].id);
    }
    out->stopped = stopped && stopped == out->processes && !j->out_of_turn;
}

static void view_due(const struct engine *e, uint32_t job, struct job_view *out)
{
    out->due = deadlines_open(&e->model, job, &out->due_in_ns, &out->due_needs_ns);
    for (unsigned d = 0; d < e->model.ngpus && out->due; d++) {
        bool promoted;
        out->due_first |=
            sched_member_boosted(e->model.sched, e->model.jobs[job].unit, d, &promoted);
        out->due_promoted |= promoted;
    }
}

static void view_unit(const struct model *m, uint32_t job, struct job_view *out)
{
    const struct job *j = &m->jobs[job];
    out->is_client = j->is_client;
    out->left_alone = j->left_alone;
    out->held = j->trial.held;
    out->unit = j->united ? m->jobs[j->unit].rec.number : 0;
    out->unit_class = model_class(m, j);
    out->speed_told = j->speed.told;
    out->speed_profiling = j->speed.profiling;
    out->speed_turns = j->speed.turns;
    out->speed = j->speed.value;
    out->speed_error = j->speed.error;
    for_each_process_of (m, j, p)
        out->signalled |= m->processes[p].stopped ||
                          (j->is_client && j->rec.paused && proc_stopped(m->processes[p].id));
}

static void view_why(const struct engine *e, const struct job *j, struct job_view *out)
{
    const struct model *m = &e->model;
    for (unsigned d = 0; d < m->ngpus; d++) {
        struct sched_reason r = j->out_of_turn && model_job_computes(m, j) >> d & 1
                                    ? clients_explain(&e->clients, d)
                                    : sched_explain(m->sched, j->unit, d);
        out->why[d] =
            (struct job_why){.why = r.why,
                             .other = r.other < m->jobs_end ? m->jobs[r.other].rec.number : 0,
                             .gpu = r.device,
                             .ahead = r.ahead,
                             .for_ns = r.until_ns == TIME_NEVER ? TIME_NEVER
                                       : r.until_ns > m->now    ? r.until_ns - m->now
                                                                : 0,
                             .speed = sched_speed(m->sched, d),
                             .throttled = sched_throttled(m->sched, d),
                             .busy = j->on[d].busy};
    }
}

static void view_slices(const struct model *m, const struct job *j, struct job_view *out)
{
    for_each_process_of (m, j, p) {
        for_each_group_of (m, &m->processes[p], g) {
            const struct channel_group *x = &m->groups[g];
            uint32_t *us = &out->why[x->dg.gpu].slice_us;
            if (x->dg.kind == GROUP_COMPUTE)
                *us = (uint32_t)max_u64(*us, x->timeslice_us.have);
        }
    }
    out->timeslice_us = out->gpus ? out->why[__builtin_ctz(out->gpus)].slice_us : 0;
}

static void view_swap(const struct job *j, struct job_view *out)
{
    const struct job_swap *s = &j->swap;
    out->swap = swap_phase_name(s->phase);
    out->swap_by_user = s->by_user;
    out->swap_uid = s->uid;
    for (unsigned g = 0; g < DEVICE_GPUS_MAX && s->phase != SWAP_HERE; g++) {
        out->swapped_bytes += s->bytes[g];
        out->gpus |= s->bytes[g] ? 1U << g : 0;
    }
    if (s->code)
        snprintf(out->swap_error, sizeof(out->swap_error), "%.*s", (int)sizeof(out->swap_error) - 1,
                 s->error.text);
}

bool engine_view(const struct engine *e, uint32_t job, struct job_view *out)
{
    const struct job *j = &e->model.jobs[job];
    if (job >= e->model.jobs_end || !j->rec.root.pid)
        return false;
    *out = (struct job_view){
        .number = j->rec.number,
        .job = j->rec,
        .member = engine_member(e, job),
        .rootless = j->root_pidfd < 0,
        .pod = j->pod,
        .groups = j->ngroups,
        .busy = -1,
    };
    view_groups(e, j, out);
    bool unknown = false;
    for (unsigned d = 0; d < e->model.ngpus; d++) {
        out->memory_bytes += j->on[d].memory_bytes;
        out->count_age_ns[d] = e->demand.until_ns[d]
                                   ? e->model.now - min_u64(e->demand.until_ns[d], e->model.now)
                                   : TIME_NEVER;
        if (j->on[d].busy >= 0)
            out->busy = (out->busy < 0 ? 0 : out->busy) + j->on[d].busy;
        else
            unknown |= out->gpus >> d & 1 && e->model.gpus[d].caps & GPU_CAP_USAGE;
    }
    if (unknown)
        out->busy = -1;
    counts_now(&e->model, j, &out->counts);
    view_why(e, j, out);
    view_slices(&e->model, j, out);
    out->placed_why = j->placed_why;
    view_unit(&e->model, job, out);
    out->together =
        out->gpus && j->rec.class == CLASS_BATCH
            ? speeds_together(&e->speeds, &e->model, job, (unsigned)__builtin_ctz(out->gpus), false)
            : 0;
    view_due(e, job, out);
    view_swap(j, out);
    out->queued = model_job_waits(j);
    out->infeasible = out->queued && j->infeasible;
    out->position = j->position;
    if (j->rec.memory_bytes)
        out->memory_held = j->on[j->rec.memory_gpu].memory_bytes;
    if (j->error_code && e->model.now < j->error_until) {
        snprintf(out->error, sizeof(out->error), "%.*s", (int)sizeof(out->error) - 1,
                 j->error.text);
        out->memory_exceeded = j->error_code == -EDQUOT; /* memory/over.c */
    }
    return true;
}

struct room_wanted engine_room_wanted(const struct engine *e)
{
    const struct model *m = &e->model;
    struct room_wanted out;
    memset(out.class, CLASS_COUNT, sizeof(out.class));
    for_each (j, m->jobs, m->jobs_end) {
        if (j->rec.root.pid && model_job_waits(j) && !j->infeasible &&
            j->rec.memory_gpu < m->ngpus && j->rec.class < out.class[j->rec.memory_gpu])
            out.class[j->rec.memory_gpu] = (uint8_t)j->rec.class;
    }
    return out;
}

bool engine_job_wanted(const struct engine *e, uint32_t job, const struct room_wanted *w)
{
    const struct model *m = &e->model;
    const struct job *j = &m->jobs[job];
    if (job >= m->jobs_end || !j->rec.root.pid)
        return false;
    for (unsigned d = 0; d < m->ngpus; d++) {
        if (sched_member_outranked(m->sched, j->unit, d) ||
            (w->class[d] < model_class(m, j) && j->on[d].memory_bytes))
            return true;
    }
    return false;
}

struct proc_id engine_member(const struct engine *e, uint32_t job)
{
    const struct job *j = &e->model.jobs[job];
    if (j->root_pidfd < 0 && j->nprocesses)
        return e->model.processes[j->first_process].id;
    return j->rec.root;
}

const struct journal_job *engine_next_record(const struct engine *e, uint32_t *cursor)
{
    const struct model *m = &e->model;
    while (*cursor < m->jobs_end && !m->jobs[*cursor].rec.root.pid)
        ++*cursor;
    return *cursor < m->jobs_end ? &m->jobs[(*cursor)++].rec : NULL;
}

bool engine_next_job(const struct engine *e, uint32_t *cursor, struct job_view *out)
{
    return engine_next_record(e, cursor) && engine_view(e, *cursor - 1, out);
}

void engine_last_look(struct engine *e, uint64_t now_ns)
{
    e->model.now = max_u64(e->model.now, now_ns);
}

void engine_watch(struct engine *e)
{
    demand_watch(&e->demand, &e->model);
}

int engine_counters(struct engine *e, unsigned gpu, struct gpu_counters *out)
{
    const struct device_driver *d = e->model.driver;
    if (gpu >= e->model.ngpus || !(e->model.gpus[gpu].caps & GPU_CAP_COUNTERS))
        return -ENOTSUP;
    return e->speeds.gpu[gpu].n ? -EBUSY : d->ops->counters(e->model.driver, gpu, out, NULL);
}

int engine_switches(struct engine *e, struct switch_list *out)
{
    return switches_take(&e->switches, &e->model, out);
}

void engine_switches_end(struct engine *e)
{
    switches_untaken(&e->switches);
}

void engine_totals(const struct engine *e, uint64_t out[3])
{
    out[0] = e->model.decisions;
    out[1] = e->model.controls;
    out[2] = e->model.controls_failed;
}

bool engine_gpu_idle(const struct engine *e, unsigned gpu, uint64_t *ns)
{
    *ns = gpu < e->model.ngpus ? e->counts.on[gpu].idle_ns : 0;
    return gpu < e->model.ngpus && e->counts.on[gpu].known;
}

const struct sched_params *engine_params(const struct engine *e)
{
    return sched_current_params(e->model.sched);
}

const char *engine_policy(const struct engine *e)
{
    return sched_policy(e->model.sched);
}

struct device_driver *engine_driver(const struct engine *e)
{
    return e->model.driver;
}

bool engine_next_unmanaged(const struct engine *e, uint32_t *cursor, struct unmanaged *out)
{
    const struct model *m = &e->model;
    while (*cursor < m->nunmanaged &&
           (m->unmanaged[*cursor].scheduler || !m->unmanaged[*cursor].seen))
        ++*cursor;
    if (*cursor >= m->nunmanaged)
        return false;
    *out = m->unmanaged[(*cursor)++];
    return true;
}
