/* Start and end of the engine, and the functions that commands call. See engine.h. */
#include "engine/engine.h"

#include <errno.h>
#include <string.h>

#include "core/trial.h"
#include "engine/engine_impl.h"

/* ---- beginning and end ---- */

/* Each process keeps its slot in the journal, so that a kill here loses none. The record of one
 * that has ended, or has been taken into a job already, is cleared. */
static int members_take_back(struct model *m)
{
    for (uint32_t i = 0; i < JOURNAL_MEMBERS; i++) {
        const struct journal_member *r = journal_member(m->journal, i);
        const uint32_t job = r ? model_job_by_number(m, r->job) : SLOT_NONE;
        int code = !r ? 0 : -ESRCH;
        if (job != SLOT_NONE && model_process_find(m, r->proc.pid) == SLOT_NONE)
            code = model_process_enter(m, i, r->proc, job);
        if (proc_unsure(code) && code != -ENOSPC)
            return code;
        if (code < 0)
            journal_put_member(m->journal, i, NULL);
    }
    return 0;
}

/* Takes jobs, processes and groups over from the journal. After an error they stay on record. */
static int engine_take_back(struct engine *e, bool stays)
{
    struct model *m = &e->model;
    uint32_t flags;
    if (journal_damaged(m->journal))
        journal_undo(m->journal, m->driver, NULL, NULL); /* its records may name wrong groups */
    for (uint32_t i = 0; i < journal_groups_end(m->journal); i++) {
        const struct device_group *dg = journal_group(m->journal, i, &flags);
        if (dg)
            model_orphan_add(m, i, dg, flags);
    }
    for (uint32_t i = 0; i < journal_jobs_end(m->journal); i++) {
        const struct journal_job *rec = journal_job(m->journal, i);
        int r = rec ? model_job_enter(m, i, rec) : 0;
        if (r < 0 && r != -ESRCH)
            return r;
        if (r == -ESRCH)
            journal_put_job(m->journal, i, NULL);
    }
    int r = members_take_back(m);
    if (r == 0)
        r = swap_take_back(m);
    if (r == 0)
        survey_begin(&e->survey, m, stays);
    return r;
}

static int engine_set_up(struct engine *e, const struct engine_options *o)
{
    struct model *m = &e->model;
    int r = model_init(m);
    m->ngpus = (unsigned)min_u64(m->driver->ops->gpus(m->driver), DEVICE_GPUS_MAX);
    m->next_number = max_u64(journal_shared(m->journal)->next_number, 1);
    struct sched_limits limits = {m->ngpus, JOURNAL_JOBS, JOURNAL_GROUPS, MODEL_ACCOUNTS};
    if (r == 0)
        r = sched_new(&limits, &o->params, &m->sched);
    if (r == 0 && o->policy)
        r = sched_set_policy(m->sched, o->policy);
    for (unsigned d = 0; r == 0 && d < m->ngpus; d++) {
        r = m->driver->ops->info(m->driver, d, &m->gpus[d]);
        model_emit(m, (struct sched_event){
                          .type = EV_DEVICE, .device = d, .on = m->gpus[d].caps & GPU_CAP_GATE});
    }
    return r;
}

static void engine_job_changed(struct model *m, uint32_t job, bool ends)
{
    struct engine *e = (struct engine *)((char *)m - offsetof(struct engine, model));
    struct job_view v;
    if (!ends)
        pods_begin(&e->pods, m, job);
    if (ends)
        demand_ended(&e->demand, m, job);
    if (e->job_changed && engine_view(e, job, &v))
        e->job_changed(e->job_arg, job, &v, ends);
}

int engine_new(struct device_driver *driver, struct journal *journal,
               const struct engine_options *options, struct engine **out, struct error *err)
{
    struct engine *e = calloc(1, sizeof(*e));
    if (!e)
        return error_set(err, -ENOMEM, "out of memory");
    e->model = (struct model){.driver = driver,
                              .journal = journal,
                              .watches.loop = options->loop,
                              .ancestors = &e->discovery.ancestors,
                              .process_gone = swap_process_gone,
                              .now = monotonic_ns(),
                              .wake = TIME_NEVER};
    e->discovery = (struct discovery){.rule = options->rule, .rule_arg = options->rule_arg};
    e->job_changed = options->job_changed;
    e->job_arg = options->job_arg;
    e->model.job_changed = engine_job_changed;
    experience_load(&e->speeds.experience, options->experience, e->model.now);
    engine_set_swap(e, &options->swap);
    e->survey.floor_us = options->params.timeslice_floor_us;
    e->restored_seen = journal_shared(journal)->restored;
    int r = engine_set_up(e, options);
    if (r < 0) {
        engine_free(e, false);
        return error_set(err, r, "cannot set up the scheduler: %s", strerror(-r));
    }
    watch_driver(&e->model.watches, driver);
    r = engine_take_back(e, options->stays);
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
    /* The journal has all changes. Records of jobs stay there for the next holder. */
    if (restore)
        failed = journal_undo(e->model.journal, e->model.driver, NULL, NULL);
    survey_end(&e->survey, &e->model, restore);
    swap_leave(&e->model, restore);
    unwatch_driver(&e->model.watches);
    switches_free(&e->switches);
    ancestors_free(&e->discovery.ancestors);
    model_free(&e->model);
    sched_free(e->model.sched);
    free(e);
    return failed;
}

struct model *engine_model(const struct engine *e)
{
    return (struct model *)&e->model;
}

#define LOOK_SOON_NS (20 * NSEC_PER_MSEC) /* debounce: several reasons lead to one look */

/* ---- what commands do ---- */

/* Whether preemption at block ends is possible. j NULL: for a new job. */
static int preempt_check(const struct model *m, const struct job *j, struct error *err)
{
    bool can = false;
    for (unsigned d = 0; d < m->ngpus; d++)
        can |= m->gpus[d].caps & GPU_CAP_PREEMPT;
    const char *why = !can ? "no GPU here can do that" : j ? model_job_preempt_refused(m, j) : NULL;
    return why ? error_set(err, -ENOTSUP, "preemption at block ends: %s", why) : 0;
}

/* Adds a Slurm step to its job, which gets the step's terms: the last step counts. */
static int engine_join(struct engine *e, struct proc_id proc, const struct job_spec *spec,
                       uint32_t job, struct error *err)
{
    int r = engine_change(e, job, &spec->terms, err);
    return r < 0 ? r : model_job_join(&e->model, job, proc, err);
}

int engine_add(struct engine *e, struct proc_id root, const struct job_spec *spec, uint32_t *job,
               struct error *err)
{
    const uint32_t known = spec->slurm_job ? model_job_of_slurm(&e->model, spec) : SLOT_NONE;
    if (known != SLOT_NONE) {
        *job = known;
        return engine_join(e, root, spec, known, err);
    }
    int r =
        model_floors_check(&e->model, SLOT_NONE, spec->account, spec->principal, &spec->terms, err);
    if (r == 0 && spec->terms.preempt)
        r = preempt_check(&e->model, NULL, err);
    return r < 0 ? r : model_job_add(&e->model, root, spec, job, err);
}

int engine_change(struct engine *e, uint32_t job, const struct job_terms *terms, struct error *err)
{
    struct job *j = &e->model.jobs[job];
    int r = model_floors_check(&e->model, job, j->rec.account, j->rec.principal, terms, err);
    if (r == 0 && terms->preempt > j->rec.preempt)
        r = preempt_check(&e->model, j, err);
    if (r == 0)
        r = deadlines_set(&e->model, job, terms);
    if (r == 0)
        r = model_job_change(&e->model, job, terms);
    if (r == 0)
        reclassify_never(&e->model, job);
    return r;
}

void engine_rename(struct engine *e, uint32_t job, const char *name)
{
    model_job_rename(&e->model, job, name);
    reclassify_never(&e->model, job);
}

int engine_try(struct engine *e, uint32_t job, const struct job_trial *t, uint64_t for_ns,
               uint32_t together, struct error *err)
{
    struct model *m = &e->model;
    struct job_trial now = *t;
    uint32_t jobs[SPEED_JOBS], n;
    now.until_ns = m->now + for_ns;
    int code = trial_set(m, job, &now, err);
    if (code < 0 || !together)
        return code;
    n = trials_of(m, t->connection, m->jobs[job].rec.uid, jobs, SPEED_JOBS);
    if (n > 1 && trials_are_all(m, t->connection, job))
        experience_learn(&e->speeds.experience, experience_key(m, jobs, n), together, m->now);
    return 0;
}

void engine_try_no_more(struct engine *e, uint64_t connection)
{
    trials_close(&e->model, connection);
}

int engine_pause(struct engine *e, uint32_t job, bool paused, uid_t by)
{
    model_job_pause(&e->model, job, paused, by);
    if (!paused) {
        demand_resumed(&e->demand, &e->model, job);
        survey_distrust(&e->model, job);
    }
    return 0;
}

int engine_look(struct engine *e, uint32_t job, struct error *err)
{
    if (e->model.quiesced)
        return error_set(err, -EAGAIN,
                         "the GPU's driver is being checked: try again in some seconds");
    int r = discovery_all(&e->discovery, &e->model), scanned = scans_job(&e->model, job);
    r = r < 0 ? r : scanned;
    return r < 0 ? error_set(err, r,
                             "not all of its processes can be looked at now (%s), and what is not "
                             "known would be left behind: try again",
                             strerror(-r))
                 : 0;
}

int engine_swap_out(struct engine *e, uint32_t job, uid_t by, struct error *err)
{
    int r = engine_look(e, job, err);
    return r < 0 ? r : swap_out(&e->swaps, &e->model, job, SWAP_BY_USER, by, err);
}

int engine_yield(struct engine *e, uint32_t job, unsigned what, uid_t by, bool over,
                 struct error *err)
{
    int r = what & YIELD_MEMORY ? engine_look(e, job, err) : 0;
    return r < 0 ? r : yield_begin(&e->swaps, &e->model, job, what, by, over, err);
}

int engine_resume_unmanaged(struct engine *e, struct proc_id proc, struct error *err)
{
    return survey_free(&e->survey, &e->model, proc, err);
}

int engine_need(struct engine *e, uint32_t job, uint64_t bytes, uint32_t gpu, struct error *err)
{
    demand_ask(&e->demand); /* which jobs have to leave depends on what each has now */
    return autoswap_need(&e->autoswap, &e->model, job, bytes, gpu, err);
}

void engine_room(struct engine *e, uint32_t job, unsigned gpu, uint64_t bytes, uint64_t until_ns)
{
    demand_ask(&e->demand);
    autoswap_room(&e->autoswap, &e->model, job, gpu, bytes, until_ns);
}

int engine_place(struct engine *e, uint32_t job, const struct place_need *need, struct error *err)
{
    if (demand_stale(&e->demand, &e->model)) {
        discovery_all(&e->discovery, &e->model); /* new programs count as well */
        demand_refresh(&e->demand, &e->model);
    }
    return place_job(&e->names, &e->demand, &e->autoswap, &e->speeds, &e->model, job, need, err);
}

/* Makes a process of a job unmanaged, and keeps what is known of its shared groups. to_rules: it
 * does not count as detached, so that a rule may take it. */
static void release_process(struct model *m, const struct process *p, bool to_rules)
{
    struct unmanaged *u = model_unmanaged_add(m, p->id, true);
    if (u && to_rules)
        u->detached = u->looked = false;
    for_each_group_of (m, p, i) {
        const struct device_group *g = &m->groups[i].dg;
        if (u && g->shared) {
            u->client = true;
            u->shares[g->gpu] = g->shared;
        }
    }
}

static void release_job(struct model *m, uint32_t job, bool to_rules)
{
    const uint64_t controls = m->controls + APPLY_CONTROLS_MAX;
    for (uint32_t p = m->jobs[job].first_process, next; p != SLOT_NONE; p = next) {
        next = m->processes[p].job_next;
        release_process(m, &m->processes[p], to_rules);
        apply_detach(m, p, controls);
        model_process_remove(m, p, true); /* failed undoing is tried again for orphans */
    }
    model_job_remove(m, job);
}

void engine_release(struct engine *e, uint32_t job)
{
    release_job(&e->model, job, false);
}

void engine_told(struct engine *e, uint32_t job)
{
    e->model.jobs[job].told++;
}

void engine_untold(struct engine *e, uint32_t job)
{
    if (--e->model.jobs[job].told > 0)
        return;
    release_job(&e->model, job, e->model.jobs[job].was_free);
    engine_look_for_jobs(e, false);
}

int engine_set_policy(struct engine *e, const char *name)
{
    e->model.dirty = true;
    return sched_set_policy(e->model.sched, name);
}

int engine_set_params(struct engine *e, const struct sched_params *params)
{
    model_unmanaged_forget(&e->model); /* the rules may have changed too */
    e->model.dirty = true;
    return sched_set_params(e->model.sched, params);
}

void engine_look_for_jobs(struct engine *e, bool anew)
{
    if (anew)
        model_unmanaged_forget(&e->model);
    e->discovery.at = min_u64(e->discovery.at, e->model.now + LOOK_SOON_NS);
    e->reclassify.at = min_u64(e->reclassify.at, e->discovery.at);
}

void engine_facts_came(struct engine *e, const struct identities *reports)
{
    model_unmanaged_facts(&e->model);
    engine_look_for_jobs(e, false);
    reclassify_all(&e->reclassify, &e->model, e->discovery.at);
    e->pods.reports = reports;
    pods_all(&e->pods, &e->model);
}

void engine_set_swap(struct engine *e, const struct swap_options *o)
{
    e->swaps.mode = o->mode;
    e->swaps.start_ns = o->start_us * NSEC_PER_USEC;
    e->autoswap.options = *o;
    e->autoswap.at = 0;
}
