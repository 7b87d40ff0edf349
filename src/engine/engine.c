/* The engine's beginning and end, and what commands do. See engine.h. */
#include "engine/engine.h"

#include <errno.h>
#include <string.h>

#include "engine/engine_impl.h"

/* ---- beginning and end ---- */

/* Each keeps its place in the journal, so that a kill here loses none. Who has ended, or is in a
 * job by now, is off the record. */
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

/* An error: what is on record cannot be taken over now; it stays on record. */
static int engine_take_back(struct engine *e, bool stays)
{
    struct model *m = &e->model;
    uint32_t flags;
    if (journal_damaged(m->journal))
        journal_undo(m->journal, m->driver, NULL, NULL); /* what it says may be about others */
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
    if (ends)
        demand_ended(&e->demand, m, job);
    if (engine_view(e, job, &v))
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
                              .process_gone = swap_process_gone,
                              .now = monotonic_ns(),
                              .wake = TIME_NEVER};
    e->discovery = (struct discovery){.rule = options->rule, .rule_arg = options->rule_arg};
    e->once = options->once;
    e->job_changed = options->job_changed;
    e->job_arg = options->job_arg;
    if (e->job_changed)
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
    /* What is in the journal is what was changed. The jobs stay there, for the next holder. */
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

#define LOOK_SOON_NS (20 * NSEC_PER_MSEC) /* of several reasons to look, one look */

/* ---- what commands do ---- */

/* j NULL: it is not a job yet. */
static int preempt_check(const struct model *m, const struct job *j, struct error *err)
{
    bool can = false;
    for (unsigned d = 0; d < m->ngpus; d++)
        can |= m->gpus[d].caps & GPU_CAP_PREEMPT;
    const char *why = !can ? "no GPU here can do that" : j ? model_job_preempt_refused(m, j) : NULL;
    return why ? error_set(err, -ENOTSUP, "preemption at block ends: %s", why) : 0;
}

/* The last step that begins decides for all. */
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
    int r = model_floors_check(&e->model, SLOT_NONE, spec->account, spec->account_uid, &spec->terms,
                               err);
    if (r == 0 && spec->terms.preempt)
        r = preempt_check(&e->model, NULL, err);
    return r < 0 ? r : model_job_add(&e->model, root, spec, job, err);
}

void engine_accounts_forget(struct engine *e)
{
    model_accounts_forget(&e->model);
}

void engine_account_set(struct engine *e, const char *name, const struct job_terms *terms)
{
    model_account_set(&e->model, name, terms);
}

int engine_change(struct engine *e, uint32_t job, const struct job_terms *terms, struct error *err)
{
    struct job *j = &e->model.jobs[job];
    int r = model_floors_check(&e->model, job, j->rec.account, j->rec.account_uid, terms, err);
    if (r == 0 && terms->preempt > j->rec.preempt)
        r = preempt_check(&e->model, j, err);
    if (r == 0)
        r = model_job_change(&e->model, job, terms);
    if (r == 0)
        reclassify_never(&e->model, job);
    return r;
}

int engine_set_deadline(struct engine *e, uint32_t job, uint32_t deadline_us, uint32_t laxity_us,
                        bool may_promote)
{
    return deadlines_set(&e->model, job, deadline_us, laxity_us, may_promote);
}

uint64_t engine_report(struct engine *e, uint32_t job, const struct report *r)
{
    return deadlines_report(&e->model, job, r);
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
    if (e->model.held)
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

int engine_swap_in(struct engine *e, uint32_t job)
{
    return swap_in(&e->model, job);
}

int engine_yield(struct engine *e, uint32_t job, unsigned what, uid_t by, bool over,
                 struct error *err)
{
    int r = what & YIELD_MEMORY ? engine_look(e, job, err) : 0;
    return r < 0 ? r : yield_begin(&e->swaps, &e->model, job, what, by, over, err);
}

int engine_yielded(const struct engine *e, uint32_t job, struct error *err)
{
    return yield_outcome(&e->model, job, err);
}

void engine_acquire(struct engine *e, uint32_t job, uint64_t wait_us)
{
    yield_acquire(&e->model, job, wait_us * NSEC_PER_USEC);
}

void engine_yield_forget(struct engine *e, uint32_t job, unsigned what)
{
    yield_forget(&e->model, job, what);
}

int engine_swap_in_process(struct engine *e, struct proc_id proc, uint32_t *job, struct error *err)
{
    return swap_adopt(&e->model, proc, false, job, err);
}

int engine_resume_unmanaged(struct engine *e, struct proc_id proc, struct error *err)
{
    return survey_free(&e->survey, &e->model, proc, err);
}

void engine_distrust(struct engine *e, struct proc_id proc)
{
    survey_add(&e->survey, &e->model, proc);
}

int engine_need(struct engine *e, uint32_t job, uint64_t bytes, uint32_t gpu, struct error *err)
{
    e->demand.usage_at = 0; /* first which job has how much, then which have to leave */
    return autoswap_need(&e->autoswap, &e->model, job, bytes, gpu, err);
}

void engine_room(struct engine *e, uint32_t job, unsigned gpu, uint64_t bytes, uint64_t until_ns)
{
    e->demand.usage_at = 0;
    autoswap_room(&e->autoswap, &e->model, job, gpu, bytes, until_ns);
}

void engine_started(struct engine *e, uint32_t job)
{
    autoswap_started(&e->model, job);
}

int engine_place(struct engine *e, uint32_t job, const struct place_wish *w, struct error *err)
{
    if (demand_stale(&e->demand, &e->model)) {
        discovery_all(&e->discovery, &e->model); /* programs that nobody has looked at, too */
        demand_refresh(&e->demand, &e->model);
    }
    return place_job(&e->names, &e->demand, &e->autoswap, &e->model, job, w, err);
}

/* It is in no job from now on: what its groups share with others is known already. */
static void release_process(struct model *m, const struct process *p)
{
    struct unmanaged *u = model_unmanaged_add(m, p->id, true);
    for_each_group_of (m, p, i) {
        const struct device_group *g = &m->groups[i].dg;
        if (u && g->shared) {
            u->client = true;
            u->shares[g->gpu] = g->shared;
        }
    }
}

void engine_release(struct engine *e, uint32_t job)
{
    struct model *m = &e->model;
    for (uint32_t p = m->jobs[job].first_process, next; p != SLOT_NONE; p = next) {
        next = m->processes[p].job_next;
        release_process(m, &m->processes[p]);
        apply_detach(m, p);
        model_process_remove(m, p, true); /* what could not be undone is tried again */
    }
    model_job_remove(m, job);
}

void engine_told(struct engine *e, uint32_t job)
{
    e->model.jobs[job].told++;
}

void engine_untold(struct engine *e, uint32_t job)
{
    if (--e->model.jobs[job].told == 0)
        engine_release(e, job);
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

void engine_facts_came(struct engine *e)
{
    model_unmanaged_facts(&e->model);
    engine_look_for_jobs(e, false);
    reclassify_all(&e->reclassify, &e->model, e->discovery.at);
}

void engine_set_swap(struct engine *e, const struct swap_options *o)
{
    e->swaps.mode = o->mode;
    e->swaps.start_ns = o->start_us * NSEC_PER_USEC;
    e->autoswap.options = *o;
    e->autoswap.at = 0;
}

void engine_undo_orphans(struct engine *e)
{
    if (e->model.norphans)
        undo_orphans(&e->model);
}
