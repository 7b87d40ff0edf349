/* One tick of the engine: the steps in the table at the end, in that order. Each does what is due
 * and returns when it is due again. Two of the steps are a commit:
 *
 *   decide    src/plan
 *   record    changes in the model are written to the journal
 *   apply     the devices are changed as planned, each change after its record
 *   answer    commands
 *
 * The first commit is for commands, because discovery and scans take milliseconds. Only a command
 * that depends on what these find waits for the second.
 *
 * This is the only caller of the parts. */
#include "base/log.h"
#include "base/probe.h"
#include "core/mps_stop.h"
#include "core/trial.h"
#include "engine/engine_impl.h"

/* ---- record ---- */

void engine_record(struct engine *e)
{
    struct model *m = &e->model;
    if (journal_shared(m->journal)->next_number < m->next_number) {
        journal_shared(m->journal)->next_number = m->next_number;
        journal_store_shared(m->journal);
    }
    if (!m->records_changed)
        return;
    m->records_changed = false;
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        struct job *j = &m->jobs[i];
        if (j->record_changed)
            journal_put_job(m->journal, i, j->rec.root.pid ? &j->rec : NULL);
        j->record_changed = false;
    }
    for (uint32_t i = 0; i < m->processes_end; i++) {
        struct process *p = &m->processes[i];
        const struct journal_member member = {.proc = p->id, .job = m->jobs[p->job].rec.number};
        if (p->record_changed)
            journal_put_member(m->journal, i, p->id.pid ? &member : NULL);
        p->record_changed = false;
    }
    for (uint32_t i = 0; i < m->groups_end; i++) {
        struct channel_group *g = &m->groups[i];
        const bool live = g->dg.proc.pid;
        g->record_changed = g->record_changed && !g->orphan &&
                            journal_keep_group(m->journal, i, live ? model_journal_flags(g) : 0,
                                               live ? &g->dg : NULL) < 0;
        m->records_changed |= g->record_changed;
    }
}

/* ---- commands ---- */

#define COMMANDS_NS (20 * NSEC_PER_MSEC)

bool engine_pending(const struct engine *e)
{
    return e->model.watches.pending || e->first;
}

void engine_submit(struct engine *e, struct command *c)
{
    c->next = NULL;
    if (e->last)
        e->last->next = c;
    else
        e->first = c;
    e->last = c;
}

/* Runs commands that wait, for COMMANDS_NS; the others, and those that are submitted meanwhile, are
 * left to the next tick. A program can make commands about itself slow: 25 ms with 65536 groups. */
static uint64_t commands_due(struct engine *e)
{
    struct command *last = e->last, *c = e->first;
    const uint64_t until = c ? thread_cpu_ns() + COMMANDS_NS : 0;
    e->ran = c;
    e->first = e->last = NULL;
    for (; c; c = c->next) {
        c->code = c->run(c, e);
        if (!c->next || thread_cpu_ns() < until)
            continue;
        last->next = e->first;
        e->last = e->last ? e->last : last;
        e->first = c->next;
        c->next = NULL;
    }
    return TIME_NEVER;
}

/* all: also commands that wait for discovery and scans (command.looks). */
static void tick_answer(struct engine *e, bool all)
{
    struct command *c = e->ran, **end = &e->ran;
    for (struct command *next; c; c = next) {
        next = c->next;
        if (all || !c->looks || c->code < 0) {
            c->answer(c, e, c->code);
            continue;
        }
        *end = c;
        end = &c->next;
    }
    *end = NULL;
}

/* ---- decide, record, apply, answer ---- */

static uint64_t tick_commit(struct engine *e)
{
    struct model *m = &e->model;
    model_units_update(m);
    if (m->records_changed)
        mps_continue_left(m);
    engine_record(e);
    const bool decide = m->dirty || m->now >= m->wake;
    if (decide) {
        struct sched_plan plan;
        sched_decide(m->sched, m->now, &plan);
        m->dirty = false;
        m->wake = min_u64(plan.wake_ns, apply_plan(m, &plan));
        demand_decided(m);
        m->decisions++;
        PROBE(plan, m->decisions, m->controls);
    }
    counts_update(&e->counts, m, decide);
    return min_u64(min_u64(m->wake, apply_preempt(m)), mps_stops(m));
}

/* The second commit returns when the next one is due. */
static uint64_t commit_asked(struct engine *e)
{
    tick_commit(e);
    tick_answer(e, false);
    return TIME_NEVER;
}

static uint64_t commit_seen(struct engine *e)
{
    const uint64_t next = tick_commit(e);
    tick_answer(e, true);
    return next;
}

/* ---- steps for events since the last tick ---- */

static uint64_t restorer_due(struct engine *e)
{
    const uint64_t restored = journal_shared(e->model.journal)->restored;
    if (restored == e->restored_seen)
        return TIME_NEVER;
    e->restored_seen = restored;
    undo_by_restorer(&e->model);
    e->model.dirty = true;
    return TIME_NEVER;
}

/* Processes and roots whose pidfd was readable have ended. */
static uint64_t ended_due(struct engine *e)
{
    struct model *m = &e->model;
    for (uint32_t i = 0; i < m->processes_end; i++) {
        uint32_t job = m->processes[i].job;
        if (!m->processes[i].id.pid || !m->processes[i].ended)
            continue;
        model_process_remove(m, i, false);
        model_job_drop_if_over(m, job);
    }
    for_each_job (m, j) {
        if (j->root_ended && j->root_pidfd >= 0)
            model_job_root_ended(m, model_job_slot(m, j));
    }
    return TIME_NEVER;
}

static uint64_t reports_due(struct engine *e)
{
    demand_read(&e->model);
    return TIME_NEVER;
}

static uint64_t tries_due(struct engine *e)
{
    return trials_due(&e->model);
}

static uint64_t gated_due(struct engine *e)
{
    demand_gated(&e->demand, &e->model);
    return TIME_NEVER;
}

static uint64_t swappers_due(struct engine *e)
{
    survey_take(&e->survey, &e->model);
    swap_reap(&e->swaps, &e->model);
    return TIME_NEVER;
}

static uint64_t moves_due(struct engine *e)
{
    const uint64_t next = yield_due(&e->swaps, &e->autoswap, &e->demand, &e->model);
    return min_u64(next, swap_due(&e->swaps, &e->model));
}

/* ---- steps that observe ---- */

static uint64_t programs_due(struct engine *e)
{
    uint64_t next = discovery_due(&e->discovery, &e->model);
    next = min_u64(next, pods_due(&e->pods, &e->model));
    return min_u64(next, reclassify_due(&e->reclassify, &e->model, &e->discovery));
}

static uint64_t groups_due(struct engine *e)
{
    struct model *m = &e->model;
    uint64_t next = scans_due(&e->scans, m);
    next = min_u64(next, survey_due(&e->survey, m));
    return m->discover_now ? m->now : next;
}

static uint64_t orphans_due(struct engine *e)
{
    struct model *m = &e->model;
    if (m->norphans && m->now >= m->orphans_until)
        undo_orphans(m);
    return m->norphans ? m->orphans_until : TIME_NEVER;
}

static uint64_t usage_due(struct engine *e)
{
    struct model *m = &e->model;
    const bool turns = m->wake != TIME_NEVER || deadlines_wanted(m) || e->clients.contend;
    if (autoswap_looks(&e->autoswap, m))
        demand_ask(&e->demand); /* so that memory in use and free memory are of the same moment */
    const uint64_t next = demand_due(&e->demand, m, turns);
    counts_observed(&e->counts, m, &e->demand);
    if (e->demand.fresh)
        deadlines_observe(m);
    return min_u64(next, over_due(&e->over, m));
}

static uint64_t servers_due(struct engine *e)
{
    uint64_t next = switches_due(&e->switches, &e->model);
    next = min_u64(next, speeds_due(&e->speeds, &e->model));
    return min_u64(next, clients_due(&e->clients, &e->model));
}

static uint64_t dates_due(struct engine *e)
{
    return deadlines_due(&e->model);
}

/* ---- moves for jobs that lack memory ---- */

#define LOOK_AGAIN_NS (10 * NSEC_PER_SEC)

static void begin_move(struct engine *e, const struct swap_move *what)
{
    struct model *m = &e->model;
    struct job *j = &m->jobs[what->job];
    struct error err = {""};
    int r = 0;
    if (what->out) { /* all its processes have to leave, including new ones */
        r = engine_look(e, what->job, &err);
        if (r < 0) /* another job is chosen meanwhile */
            j->swap.refused_until = m->now + LOOK_AGAIN_NS;
        else
            r = swap_out(&e->swaps, m, what->job, SWAP_AUTOMATIC, 0, &err);
    } else {
        swap_in(m, what->job);
    }
    log_say(LOG_WARNING, "job #%llu (%s) begins to be swapped %s%s%s",
            (unsigned long long)j->rec.number, j->rec.name,
            what->out ? "out, for a latency job" : "in again", r < 0 ? ": not done: " : "",
            err.text);
}

static uint64_t room_due(struct engine *e)
{
    struct model *m = &e->model;
    struct swap_move what;
    if (e->swaps.moved)
        e->autoswap.at = 0;
    e->swaps.moved = false;
    const bool looks = autoswap_looks(&e->autoswap, m);
    const uint64_t next = autoswap_due(&e->autoswap, m, &what);
    if (looks)
        place_moves(&e->names, &e->autoswap, m);
    if (what.job != SLOT_NONE && !m->quiesced)
        begin_move(e, &what);
    return next;
}

/* ---- the tick ---- */

/* Each returns when it is due again; TIME_NEVER: only after an event. */
static uint64_t (*const steps[])(struct engine *e) = {
    restorer_due,               /* the state of groups is unsure after a restorer's undo */
    ended_due,                  /* processes that ended */
    reports_due,                /* demand of programs on gated devices */
    commands_due,               /* run() of commands */
    tries_due,                  /* what was tried for a moment ends */
    gated_due,    swappers_due, /* swappers that ended */
    moves_due,                  /* swapping and yielding that was asked for */
    commit_asked, programs_due, /* discovery of processes */
    groups_due,                 /* scans for channel groups */
    orphans_due,  gated_due,    /* again, for groups that were found just now */
    usage_due,                  /* which jobs work */
    servers_due,  dates_due,    /* MPS servers; deadlines */
    room_due,     commit_seen,  /* automatic swapping */
};

uint64_t engine_tick(struct engine *e, uint64_t now_ns)
{
    uint64_t next = TIME_NEVER;
    e->model.now = now_ns;
    e->model.watches.pending = false;
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
        next = min_u64(next, steps[i](e));
    return e->first ? now_ns : next;
}
