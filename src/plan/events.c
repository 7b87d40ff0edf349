/* Applies events to the scheduler's tables: see sched.h. Decides nothing. */
#include <errno.h>

#include "plan/sched_impl.h"

#define UNSEEN_MAX_NS 1000000000U

/* Copies the job's terms into a member. */
static void set_terms(const struct sched *c, struct member *m)
{
    const struct job *j = &c->jobs[m->job];
    m->terms = j->terms;
    m->own_class = j->terms.class;
    m->share = m->turn_weight = j->terms.weight;
    m->limit.own = j->limits;
    m->limit.verdict = LIMIT_NONE;
    m->limit.class = CLASS_COUNT;
    dispatch_admit(c, m);
}

static void member_link(struct sched *c, uint32_t device, uint32_t job)
{
    struct policy_device *dev = &c->devices[device];
    const struct job *j = &c->jobs[job];
    struct member *m = &dev->members[job];
    *m = (struct member){
        .job = job,
        .due = j->due,
        .limit = {.window_ns = m->limit.window_ns < 0 ? m->limit.window_ns : 0},
        .runnable = !j->paused,
        .turn_group = SLOT_NONE,
        .last_group = SLOT_NONE,
        .gang_first = SLOT_NONE,
        .pace = 1,
        .fresh = true,
        .account = j->account,
        .vtime = dev->turns[j->account].floor,
        .prev = dev->last,
        .next = SLOT_NONE,
        .used = true,
    };
    set_terms(c, m);
    if (dev->last == SLOT_NONE)
        dev->first = job;
    else
        dev->members[dev->last].next = job;
    dev->last = job;
}

static void member_unlink(struct sched *c, uint32_t device, uint32_t job)
{
    struct policy_device *dev = &c->devices[device];
    struct member *m = &dev->members[job];
    if (m->prev == SLOT_NONE)
        dev->first = m->next;
    else
        dev->members[m->prev].next = m->next;
    if (m->next == SLOT_NONE)
        dev->last = m->prev;
    else
        dev->members[m->next].prev = m->prev;
    rotation_leave(dev, m);
    if (dev->boost.job == job)
        dev->boost.job = SLOT_NONE;
    if (dev->order.leader == job)
        dev->order.leader = SLOT_NONE;
    m->used = false;
    dev->gangs -= m->gang > 0;
    m->gang = 0;
}

static void mark(struct sched *c, uint32_t job)
{
    struct machine mc = sched_machine(c, 0);
    gang_mark(&mc, job);
}

static void mark_all(struct sched *c)
{
    for (uint32_t j = 0; j < c->limits.jobs; j++) {
        if (c->jobs[j].used)
            mark(c, j);
    }
}

/* Charges a member for the time in which its group was not known and ran by the driver's default,
 * unless that was within its turn, which is charged anyway. */
static void charge_unseen(struct policy_device *dev, struct member *m, uint64_t ns)
{
    ns = ns < UNSEEN_MAX_NS ? ns : UNSEEN_MAX_NS;
    if (!ns || (m->runnable && m->ncompute > 1))
        return;
    limits_charge(dev, m, ns);
    if (m->own_class != CLASS_LATENCY)
        rotation_charge(dev, m, ns);
}

static int group_add(struct sched *c, const struct sched_event *ev)
{
    if (ev->group >= c->limits.groups || ev->device >= c->limits.devices)
        return -EINVAL;
    struct group *g = &c->groups[ev->group];
    if (g->job != SLOT_NONE)
        return -EEXIST;
    struct member *m = &c->devices[ev->device].members[ev->job];
    if (!m->used)
        member_link(c, ev->device, ev->job);
    uint32_t *head = sched_group_head(c, ev->device, ev->job);
    *g = (struct group){.job = ev->job,
                        .device = ev->device,
                        .prev = SLOT_NONE,
                        .next = *head,
                        .computes = ev->computes,
                        .process = ev->process};
    if (*head != SLOT_NONE)
        c->groups[*head].prev = ev->group;
    *head = ev->group;
    c->ngroups++;
    m->ngroups++;
    m->ncompute += ev->computes;
    mark(c, ev->job);
    charge_unseen(&c->devices[ev->device], m, ev->unseen_ns);
    return 0;
}

/* A context that was incomplete when it was found turns out to compute, or not to. */
static void group_change(struct sched *c, uint32_t group, bool computes)
{
    struct group *g = &c->groups[group];
    struct member *m = &c->devices[g->device].members[g->job];
    m->ncompute = m->ncompute - g->computes + computes;
    g->computes = computes;
    m->turn_group = m->turn_group == group && !computes ? SLOT_NONE : m->turn_group;
    m->last_group = m->last_group == group && !computes ? SLOT_NONE : m->last_group;
    mark(c, g->job);
}

static void group_remove(struct sched *c, uint32_t group)
{
    struct group *g = &c->groups[group];
    if (g->prev == SLOT_NONE)
        *sched_group_head(c, g->device, g->job) = g->next;
    else
        c->groups[g->prev].next = g->next;
    if (g->next != SLOT_NONE)
        c->groups[g->next].prev = g->prev;
    struct member *m = &c->devices[g->device].members[g->job];
    m->ncompute -= g->computes;
    m->turn_group = m->turn_group == group ? SLOT_NONE : m->turn_group;
    m->last_group = m->last_group == group ? SLOT_NONE : m->last_group;
    if (--m->ngroups == 0)
        member_unlink(c, g->device, g->job);
    mark(c, g->job);
    c->ngroups--;
    struct runs *r = &c->devices[g->device].runs;
    r->group = r->group == group ? SLOT_NONE : r->group;
    g->job = SLOT_NONE;
}

/* Copies the job's terms into its members. */
static void job_spread(struct sched *c, uint32_t job)
{
    const struct job *j = &c->jobs[job];
    for (uint32_t d = 0; d < c->limits.devices; d++) {
        struct member *m = &c->devices[d].members[job];
        if (!m->used)
            continue;
        set_terms(c, m);
        /* No credit for the time it took no turns (paused, or in another class). */
        if (m->vtime < c->devices[d].turns[j->account].floor)
            m->vtime = c->devices[d].turns[j->account].floor;
    }
}

/* A job that works again gets no credit for the time in which it wanted nothing, and no debt for
 * probes. On gated devices, and of jobs that expect deadlines, there are no probes: their lead is
 * from real turns, and is kept, but after turns while boosted only up to ROTATION_LEAD_NS. */
static void wake_member(struct policy_device *dev, struct member *m)
{
    uint64_t floor = dev->turns[m->account].floor;
    uint64_t most = floor + (uint64_t)ROTATION_LEAD_NS * WEIGHT_DEFAULT / m->weight;
    bool probed = !dev->gated && !m->due.expects;
    m->idle = false;
    m->fresh = probed;
    rotation_wake(dev, m);
    if (probed || m->vtime < floor)
        m->vtime = floor;
    else if (m->due.expects && m->vtime > most)
        m->vtime = most;
}

static void deadline(struct sched *c, const struct sched_event *ev)
{
    struct member_due *due = &c->jobs[ev->job].due;
    bool begins = ev->deadline_ns != TIME_NEVER && ev->deadline_ns != due->deadline_ns;
    due->deadline_ns = ev->deadline_ns;
    due->left_ns = ev->left_ns;
    due->priority = ev->priority;
    due->may_promote = ev->may_promote;
    due->expects = ev->on;
    for (uint32_t d = 0; d < c->limits.devices; d++) {
        struct member *m = &c->devices[d].members[ev->job];
        if (!m->used)
            continue;
        struct member_due was = m->due;
        m->due = *due;
        m->due.urgent_for = was.urgent_for;
        m->due.promoted_for = was.promoted_for;
        /* On gated devices programs report their wants; a latency job is never suspended for its
         * peers. */
        if (c->devices[d].gated || m->own_class == CLASS_LATENCY)
            continue;
        if (due->expects && due->deadline_ns == TIME_NEVER)
            m->idle = m->idle_here = true; /* EV_DEMAND corrects this if it works on */
        if (begins && m->idle && !m->stray) {
            wake_member(&c->devices[d], m);
            m->idle_here = false;
        }
    }
    mark(c, ev->job);
}

static int demand(struct sched *c, const struct sched_event *ev)
{
    struct machine mc = sched_machine(c, 0);
    if (ev->device >= c->limits.devices)
        return -EINVAL;
    struct policy_device *own = &c->devices[ev->device];
    struct member *m = &own->members[ev->job];
    if (!m->used)
        return 0;
    bool was_idle = m->idle && !m->stray;
    m->fresh |= m->stray && ev->on;
    m->idle_here = !ev->on;
    m->company.busy = ev->busy;
    mark(c, ev->job);
    if (!was_idle || m->idle)
        return 0;
    for_each_device_of (&mc, own, m, dev)
        wake_member(dev, &dev->members[ev->job]);
    return 0;
}

/* Describes the group that has the engine, for the tally; NULL: none of ours. */
static const struct run *run_of(const struct sched *c, uint32_t group, struct run *out)
{
    const struct group *g = group == SLOT_NONE ? NULL : &c->groups[group];
    if (!g || g->job == SLOT_NONE)
        return NULL;
    const struct member *m = &c->devices[g->device].members[g->job];
    bool before = c->devices[g->device].runs.since_ns < g->sliced_ns;
    *out = (struct run){m->class == CLASS_LATENCY, before ? g->before_us : g->slice_us};
    return out;
}

static int engine_switch(struct sched *c, const struct sched_event *ev)
{
    if (ev->device >= c->limits.devices ||
        (ev->group != SLOT_NONE &&
         (ev->group >= c->limits.groups || c->groups[ev->group].job == SLOT_NONE ||
          c->groups[ev->group].device != ev->device)))
        return -EINVAL;
    struct runs *r = &c->devices[ev->device].runs;
    struct run was;
    r->known &= !ev->on;
    if (r->known && r->group != SLOT_NONE && ev->at_ns > r->since_ns)
        c->devices[ev->device].members[c->groups[r->group].job].company.used_ns +=
            (double)(ev->at_ns - r->since_ns) + 1e3 * c->params.switch_us;
    runs_end(&c->params, r, run_of(c, r->group, &was),
             r->group == SLOT_NONE ? NULL : &c->groups[r->group].use, ev->at_ns);
    r->group = ev->group == SLOT_NONE ? SLOT_NONE : company_first(c, ev->group);
    if (r->group != SLOT_NONE)
        runs_begin(r, r->group, &c->groups[r->group].use, ev->at_ns);
    return 0;
}

static bool limits_ok(const struct sched_event *ev)
{
    return ev->gpu_min >= 0 && ev->gpu_min <= 1 && ev->gpu_max >= 0 && ev->gpu_max <= 1 &&
           (ev->gpu_max <= 0 || ev->gpu_min <= ev->gpu_max);
}

static void set_limits(struct sched *c, struct limits *l, const struct sched_event *ev)
{
    c->nlimited -= l->min > 0 || l->max > 0;
    *l = (struct limits){ev->gpu_min, ev->gpu_max};
    c->nlimited += l->min > 0 || l->max > 0;
}

static void job_add(struct sched *c, const struct sched_event *ev)
{
    struct job *j = &c->jobs[ev->job];
    *j = (struct job){
        .used = true, .terms = ev->terms, .account = ev->account, .due.deadline_ns = TIME_NEVER};
    set_limits(c, &j->limits, ev);
    /* Clears what the previous job in the slot has left. Where there was none nothing is written,
     * because that would allocate a page for each device. */
    for (uint32_t d = 0; d < c->limits.devices; d++) {
        struct member_limits *l = &c->devices[d].members[ev->job].limit;
        if (l->window_ns < 0)
            l->window_ns = 0;
    }
    c->accounts_used += c->accounts[ev->account].jobs++ == 0;
}

/* Applies an event that names no job. 1: it is not one of these. */
static int device_event(struct sched *c, const struct sched_event *ev)
{
    if (ev->type == EV_DEVICE) {
        if (ev->device >= c->limits.devices)
            return -EINVAL;
        c->devices[ev->device].gated = ev->on;
        mark_all(c);
        return 0;
    }
    if (ev->type == EV_ACTIVITY) {
        if (ev->device >= c->limits.devices || !ev->window_ns || ev->window_ns > 1000000000U ||
            ev->busy_ns > ev->window_ns)
            return -EINVAL;
        boost_observe(&c->devices[ev->device].boost, ev);
        observed_add(&c->devices[ev->device].seen, ev);
        return 0;
    }
    if (ev->type == EV_SWITCH)
        return engine_switch(c, ev);
    if (ev->type == EV_ACCOUNT) {
        if (ev->account >= c->limits.accounts || ev->weight < WEIGHT_MIN ||
            ev->weight > WEIGHT_MAX || !limits_ok(ev))
            return -EINVAL;
        c->accounts[ev->account].weight = ev->weight;
        set_limits(c, &c->accounts[ev->account].limits, ev);
        return 0;
    }
    if (ev->type == EV_GROUP_REMOVE || ev->type == EV_GROUP_CHANGE) {
        if (ev->group >= c->limits.groups || c->groups[ev->group].job == SLOT_NONE)
            return -EINVAL;
        if (ev->type == EV_GROUP_REMOVE)
            group_remove(c, ev->group);
        else
            group_change(c, ev->group, ev->computes);
        return 0;
    }
    return 1;
}

int sched_event(struct sched *c, const struct sched_event *ev)
{
    c->explained = 0;
    const int r = device_event(c, ev);
    if (r <= 0)
        return r;
    if (ev->job >= c->limits.jobs)
        return -EINVAL;
    struct job *j = &c->jobs[ev->job];
    const bool adds = ev->type == EV_JOB_ADD;
    if (adds == j->used)
        return adds ? -EEXIST : -EINVAL;
    if ((adds || ev->type == EV_JOB_CHANGE) &&
        ((unsigned)ev->class >= CLASS_COUNT || ev->weight < WEIGHT_MIN || ev->weight > WEIGHT_MAX ||
         ev->budget_us > BUDGET_MAX_US || ev->min_speed < 0 || ev->min_speed > 1 ||
         !limits_ok(ev) || (adds && ev->account >= c->limits.accounts)))
        return -EINVAL;

    switch (ev->type) {
    case EV_JOB_ADD:
        job_add(c, ev);
        return 0;
    case EV_JOB_CHANGE:
        j->terms = ev->terms;
        set_limits(c, &j->limits, ev);
        job_spread(c, ev->job);
        return 0;
    case EV_JOB_REMOVE:
        for (uint32_t d = 0; d < c->limits.devices; d++) {
            while (*sched_group_head(c, d, ev->job) != SLOT_NONE)
                group_remove(c, *sched_group_head(c, d, ev->job));
        }
        set_limits(c, &j->limits, &(struct sched_event){0});
        c->accounts_used -= --c->accounts[j->account].jobs == 0;
        j->used = false;
        return 0;
    case EV_JOB_PAUSE:
        j->paused = ev->on;
        job_spread(c, ev->job);
        return 0;
    case EV_DEADLINE:
        deadline(c, ev);
        return 0;
    case EV_GROUP_ADD:
        return group_add(c, ev);
    case EV_DEMAND:
        return demand(c, ev);
    default:
        return -EINVAL;
    }
}
