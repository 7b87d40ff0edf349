/* The engine's beginning and end, what commands do, and what changes of the model mean to the
 * scheduler. See engine.h. */
#include "engine/engine.h"

#include <errno.h>
#include <string.h>

#include "engine/engine_impl.h"
#include "engine/undo.h"

/* ---- the model's listener ---- */

static void on_event(void *arg, const struct sched_event *ev)
{
    struct engine *e = arg;
    const struct model *m = &e->model;
    /* Whether a job works changes something only where jobs take turns, or programs hold their own
     * work. */
    e->dirty |= ev->type != EV_DEMAND || (m->gpus[ev->device].caps & GPU_CAP_GATE) ||
                (m->jobs[ev->job].on[ev->device].idle == ev->on &&
                 (e->wake != TIME_NEVER || m->jobs[ev->job].due));
    sched_event(e->sched, ev);
}

static void on_group_changed(void *arg, uint32_t group)
{
    struct engine *e = arg;
    (void)group;
    e->dirty = true;
}

static int on_watch(void *arg, uint32_t slot, bool root)
{
    struct engine *e = arg;
    struct process *p = &e->model.processes[slot];
    struct job *j = &e->model.jobs[slot];
    return root ? watch_start(&e->watches, j->root_pidfd, &j->root_ended, &j->root_watch)
                : watch_start(&e->watches, p->pidfd, &p->ended, &p->watch);
}

static void on_unwatch(void *arg, uint32_t slot, bool root)
{
    struct engine *e = arg;
    watch_stop(root ? e->model.jobs[slot].root_watch : e->model.processes[slot].watch);
}

static void on_process_gone(void *arg, struct proc_id id)
{
    struct engine *e = arg;
    swap_process_gone(&e->swaps, &e->model, id);
}

static void on_job_gone(void *arg, uint32_t job)
{
    struct engine *e = arg;
    deadlines_free(&e->model.jobs[job]);
}

static void on_forget(void *arg, pid_t pid)
{
    struct engine *e = arg;
    e->driver->ops->forget(e->driver, pid);
}

/* ---- beginning and end ---- */

/* An error: what is on record cannot be taken over now; it stays on record. */
static int engine_take_back(struct engine *e)
{
    struct model *m = &e->model;
    uint32_t flags;
    if (journal_damaged(e->journal))
        journal_undo(e->journal, e->driver, NULL, NULL); /* what it says may be about others */
    for (uint32_t i = 0; i < journal_groups_end(e->journal); i++) {
        const struct device_group *dg = journal_group(e->journal, i, &flags);
        if (dg)
            model_orphan_add(m, i, dg, flags);
    }
    for (uint32_t i = 0; i < journal_jobs_end(e->journal); i++) {
        const struct journal_job *rec = journal_job(e->journal, i);
        /* A job whose root has ended may have descendants; they cannot be told from strangers. */
        int r = rec ? model_job_enter(m, i, rec) : 0;
        if (r < 0 && r != -ESRCH)
            return r;
        if (r == -ESRCH)
            journal_put_job(e->journal, i, NULL);
    }
    swap_take_back(&e->swaps, m);
    survey_begin(&e->survey, &e->watches, e->stays);
    return 0;
}

static int engine_set_up(struct engine *e, const struct engine_options *o)
{
    struct model *m = &e->model;
    const struct model_listener listener = {
        .arg = e,
        .event = on_event,
        .group_changed = on_group_changed,
        .watch = on_watch,
        .unwatch = on_unwatch,
        .process_gone = on_process_gone,
        .job_gone = on_job_gone,
        .forget = on_forget,
    };
    int r = model_init(m, &listener);
    m->now = monotonic_ns();
    m->ngpus = e->driver->ops->gpus(e->driver);
    m->ngpus = m->ngpus < DEVICE_GPUS_MAX ? m->ngpus : DEVICE_GPUS_MAX;
    m->next_number = max_u64(journal_shared(e->journal)->next_number, 1);
    struct sched_limits limits = {m->ngpus, JOURNAL_JOBS, JOURNAL_GROUPS};
    if (r == 0)
        r = sched_new(&limits, &o->params, &e->sched);
    if (r == 0 && o->policy)
        r = sched_set_policy(e->sched, o->policy);
    e->wake = TIME_NEVER;
    for (unsigned d = 0; r == 0 && d < m->ngpus; d++) {
        r = e->driver->ops->info(e->driver, d, &m->gpus[d]);
        model_emit(m, (struct sched_event){
                          .type = EV_DEVICE, .device = d, .on = m->gpus[d].caps & GPU_CAP_GATE});
    }
    e->apply = (struct apply){e->driver, e->journal};
    e->watches = (struct watches){.loop = o->loop};
    e->discovery = (struct discovery){.rule = o->rule, .rule_arg = o->rule_arg};
    e->demand = (struct demand){.driver = e->driver, .sched = e->sched};
    e->swaps = (struct swaps){.apply = e->apply, .watches = &e->watches, .mode = o->swap.mode};
    e->survey = (struct survey){.apply = e->apply, .floor_us = o->params.timeslice_floor_us};
    e->stays = o->stays;
    e->autoswap = (struct autoswap){.driver = e->driver, .options = o->swap};
    return r;
}

int engine_new(struct device_driver *driver, struct journal *journal,
               const struct engine_options *options, struct engine **out, struct error *err)
{
    struct engine *e = calloc(1, sizeof(*e));
    if (!e)
        return error_set(err, -ENOMEM, "out of memory");
    e->driver = driver;
    e->journal = journal;
    e->restored_seen = journal_shared(journal)->restored;
    int r = engine_set_up(e, options);
    if (r < 0) {
        engine_free(e, false);
        return error_set(err, r, "cannot set up the scheduler: %s", strerror(-r));
    }
    watch_driver(&e->watches, driver);
    r = engine_take_back(e);
    if (r < 0) {
        engine_free(e, false);
        return error_set(err, r, "cannot take back the jobs of the journal: %s", strerror(-r));
    }
    *out = e;
    return 0;
}

unsigned engine_free(struct engine *e, bool restore)
{
    unsigned failed = 0;
    for (struct command *c = e->first, *next; c; c = next) {
        next = c->next;
        c->answer(c, e, -ESHUTDOWN);
    }
    /* What is in the journal is what was changed. The jobs stay there, for the next holder. */
    if (restore)
        failed = journal_undo(e->journal, e->driver, NULL, NULL);
    survey_end(&e->survey, &e->model, restore);
    swap_leave(&e->swaps, &e->model, restore);
    unwatch_driver(&e->watches);
    model_free(&e->model);
    sched_free(e->sched);
    free(e);
    return failed;
}

/* ---- what commands do ---- */

int engine_add(struct engine *e, struct proc_id root, const struct job_spec *spec, uint32_t *job,
               struct error *err)
{
    return model_job_add(&e->model, root, spec, job, err);
}

int engine_change(struct engine *e, uint32_t job, enum job_class class, uint32_t weight,
                  uint32_t budget_us)
{
    struct job *j = &e->model.jobs[job];
    int r = sched_event(e->sched, &(struct sched_event){.type = EV_JOB_CHANGE,
                                                        .job = job,
                                                        .class = class,
                                                        .weight = weight,
                                                        .budget_us = budget_us});
    if (r < 0)
        return r;
    j->rec.class = class;
    j->rec.weight = weight;
    j->rec.budget_us = budget_us;
    model_job_changed(&e->model, j);
    e->dirty = true;
    return 0;
}

int engine_set_deadline(struct engine *e, uint32_t job, uint32_t deadline_us, uint32_t laxity_us,
                        bool may_promote)
{
    return deadlines_set(&e->model, job, deadline_us, laxity_us, may_promote);
}

void engine_report(struct engine *e, uint32_t job, const struct report *r)
{
    deadlines_report(&e->model, job, r);
}

int engine_pause(struct engine *e, uint32_t job, bool paused, uid_t by)
{
    struct job *j = &e->model.jobs[job];
    int r = sched_event(e->sched,
                        &(struct sched_event){.type = EV_JOB_PAUSE, .job = job, .on = paused});
    if (r < 0)
        return r;
    j->rec.paused = paused;
    j->rec.paused_by = paused ? by : 0;
    model_job_changed(&e->model, j);
    if (!paused) {
        demand_resumed(&e->model, job);
        survey_distrust(&e->model, job);
    }
    e->dirty = true;
    return 0;
}

int engine_swap_out(struct engine *e, uint32_t job, uid_t by, struct error *err)
{
    /* What it has now: processes that are not known would be left behind. */
    discovery_run(&e->discovery, &e->model, e->driver);
    scans_job(&e->model, e->driver, job);
    return swap_out(&e->swaps, &e->model, job, true, by, err);
}

int engine_swap_in(struct engine *e, uint32_t job)
{
    return swap_in(&e->model, job);
}

int engine_swap_in_process(struct engine *e, struct proc_id proc, uint32_t *job, struct error *err)
{
    return swap_adopt(&e->swaps, &e->model, proc, false, job, err);
}

int engine_resume_unmanaged(struct engine *e, struct proc_id proc, struct error *err)
{
    return survey_free(&e->survey, &e->model, proc, err);
}

void engine_distrust(struct engine *e, struct proc_id proc)
{
    survey_add(&e->survey, proc);
}

int engine_need(struct engine *e, uint32_t job, uint64_t bytes, uint32_t gpu, struct error *err)
{
    e->demand.usage_at = 0; /* first which job has how much, then which have to leave */
    return autoswap_need(&e->autoswap, &e->model, job, bytes, gpu, err);
}

void engine_release(struct engine *e, uint32_t job)
{
    struct model *m = &e->model;
    for (uint32_t p = m->jobs[job].first_process, next; p != SLOT_NONE; p = next) {
        next = m->processes[p].job_next;
        model_unmanaged_add(m, m->processes[p].id, true);
        apply_detach(&e->apply, m, p);
        model_process_remove(m, p, true); /* what could not be undone is tried again */
    }
    model_job_remove(m, job);
    e->dirty = true;
}

int engine_set_policy(struct engine *e, const char *name)
{
    e->dirty = true;
    return sched_set_policy(e->sched, name);
}

int engine_set_params(struct engine *e, const struct sched_params *params)
{
    model_unmanaged_forget(&e->model); /* the rules may have changed too */
    e->dirty = true;
    return sched_set_params(e->sched, params);
}

void engine_set_swap(struct engine *e, const struct swap_options *o)
{
    e->swaps.mode = o->mode;
    e->autoswap.options = *o;
    e->autoswap.at = 0;
}

void engine_undo_orphans(struct engine *e)
{
    if (e->model.norphans)
        undo_orphans(&e->apply, &e->model);
}
