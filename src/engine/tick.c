/* One tick of the engine, in a fixed order:
 *
 *   observe   what ended, what programs report, what commands ask for, which processes and groups
 *             there are, which of them work, what is due
 *   decide    src/sched
 *   record    the journal gets what changed in the model
 *   apply     devices get what differs from the plan, each change written to the journal before it
 *   answer    commands
 *
 * What a person asked for is decided, recorded, applied and answered before looking around, which
 * takes milliseconds; only a command that is about what has still to be found waits for that.
 *
 * This is the only caller of the parts. */
#include "engine/engine_impl.h"
#include "lib/log.h"
#include "lib/probe.h"

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
        if (g->record_changed && !g->orphan)
            journal_put_group(m->journal, i, g->dg.proc.pid ? model_journal_flags(g) : 0,
                              g->dg.proc.pid ? &g->dg : NULL);
        g->record_changed = false;
    }
}

/* ---- decide, record, apply ---- */

static uint64_t tick_commit(struct engine *e)
{
    struct model *m = &e->model;
    model_units_update(m);
    if (m->records_changed)
        apply_continues(m);
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
    counts_update(m, decide);
    if (decide)
        idle_decided(&e->idle, m);
    return min_u64(min_u64(m->wake, apply_preempt(m)), apply_stops(m));
}

/* ---- observe ---- */

/* Processes and roots whose pidfd was readable have ended. */
static void tick_reap(struct model *m)
{
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
}

static uint64_t tick_observe(struct engine *e)
{
    struct model *m = &e->model;
    uint64_t next = discovery_due(&e->discovery, m);
    next = min_u64(next, reclassify_due(&e->reclassify, m, &e->discovery));
    next = min_u64(next, scans_due(&e->scans, m));
    if (m->discover_now)
        next = m->now;
    next = min_u64(next, survey_due(&e->survey, m));
    if (m->norphans && m->now >= m->orphans_until)
        undo_orphans(m);
    if (m->norphans)
        next = min_u64(next, m->orphans_until);
    demand_gated(&e->demand, m); /* groups that were found just now */
    if (autoswap_looks(&e->autoswap, m))
        e->demand.usage_at = 0; /* what jobs hold and what is free, of the same moment */
    const bool turns = m->wake != TIME_NEVER || deadlines_wanted(m) || e->clients.contend;
    next = min_u64(next, demand_due(&e->demand, m, turns));
    idle_observed(&e->idle, m, &e->demand);
    if (e->demand.fresh)
        deadlines_observe(m);
    if (!e->once) {
        next = min_u64(next, switches_due(&e->switches, m));
        next = min_u64(next, speeds_due(&e->speeds, m));
        next = min_u64(next, clients_due(&e->clients, m));
    }
    return min_u64(next, deadlines_due(m));
}

/* ---- moves ---- */

#define LOOK_AGAIN_NS (10 * NSEC_PER_SEC)

static uint64_t tick_move(struct engine *e)
{
    struct model *m = &e->model;
    struct swap_move what;
    struct error err = {""};
    int r = 0;
    if (e->swaps.moved)
        e->autoswap.at = 0;
    e->swaps.moved = false;
    const bool looks = autoswap_looks(&e->autoswap, m);
    uint64_t next = autoswap_due(&e->autoswap, m, &what);
    if (looks)
        place_moves(&e->names, &e->autoswap, m);
    if (what.job == SLOT_NONE || m->held)
        return next;
    struct job *j = &m->jobs[what.job];
    if (what.out) { /* all of it, with what began just now */
        r = engine_look(e, what.job, &err);
        if (r < 0) /* another one leaves */
            j->swap.refused_until = m->now + LOOK_AGAIN_NS;
        else
            r = swap_out(&e->swaps, m, what.job, SWAP_AUTOMATIC, 0, &err);
    } else {
        swap_in(m, what.job);
    }
    log_say(LOG_WARNING, "job #%llu (%s) begins to be swapped %s%s%s",
            (unsigned long long)j->rec.number, j->rec.name,
            what.out ? "out, for a latency job" : "in again", r < 0 ? ": not done: " : "",
            err.text);
    return next;
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

/* Takes the commands that wait, as far as there is time for; those that are submitted meanwhile are
 * the next tick's as well. A program can make looking at itself take long: 25 ms with 65536 groups.
 */
static struct command *run_commands(struct engine *e)
{
    struct command *first = e->first, *last = e->last, *c = first;
    const uint64_t until = first ? thread_cpu_ns() + COMMANDS_NS : 0;
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
    return first;
}

/* Returns those that are left: all but what `all` or the command itself lets be answered now. */
static struct command *tick_answer(struct engine *e, struct command *c, bool all)
{
    struct command *left = NULL, **end = &left;
    for (struct command *next; c; c = next) {
        next = c->next;
        if (all || !c->looks || c->code < 0) {
            c->answer(c, e, c->code);
            continue;
        }
        *end = c;
        end = &c->next;
        c->next = NULL;
    }
    return left;
}

uint64_t engine_tick(struct engine *e, uint64_t now_ns)
{
    struct model *m = &e->model;
    m->now = now_ns;
    m->watches.pending = false;
    uint64_t restored = journal_shared(m->journal)->restored;
    if (restored != e->restored_seen) {
        e->restored_seen = restored;
        undo_by_restorer(m);
        m->dirty = true;
    }
    tick_reap(m);
    demand_read(m);
    struct command *commands = run_commands(e);
    demand_gated(&e->demand, m);
    survey_take(&e->survey, m);
    swap_reap(&e->swaps, m);
    uint64_t next = yield_due(&e->swaps, &e->autoswap, &e->demand, m);
    next = min_u64(next, swap_due(&e->swaps, m));
    tick_commit(e);
    commands = tick_answer(e, commands, false);
    next = min_u64(next, tick_observe(e));
    next = min_u64(next, tick_move(e));
    next = min_u64(next, tick_commit(e));
    tick_answer(e, commands, true);
    return e->first ? now_ns : next;
}
