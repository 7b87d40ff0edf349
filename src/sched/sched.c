/* The scheduler's tables and events; what to do with a device is asked of the policy.
 * See sched.h for the rules this file keeps: no clock, no system call, no allocation after set-up.
 */
#include "sched/sched.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sched/policy.h"

struct job {
    bool used, paused;
    enum job_class class;
    uint32_t weight, budget_us;
    uint64_t deadline_ns, left_ns;
    int priority;
    bool may_rise, attends;
};

struct group {
    uint32_t job, device; /* SLOT_NONE: slot free */
    uint32_t prev, next;  /* among the groups of its member */
    bool computes;
};

struct sched {
    struct sched_limits limits;
    struct sched_params params;
    const struct policy *policy;
    struct job *jobs;
    struct group *groups;
    uint32_t *first_group; /* [device * limits.jobs + job] */
    struct policy_device *devices;
    struct sched_setting *settings;
};

static const char *const class_names[CLASS_COUNT] = {"latency", "normal", "batch"};
static const struct policy *const policies[] = {&policy_laxity, &policy_edf, &policy_priority,
                                                &policy_shares, &policy_static};
#define POLICY_COUNT (sizeof(policies) / sizeof(policies[0]))

const char *job_class_name(enum job_class c)
{
    return (unsigned)c < CLASS_COUNT ? class_names[c] : "?";
}

int job_class_parse(const char *name, enum job_class *out)
{
    for (unsigned i = 0; i < CLASS_COUNT; i++) {
        if (strcmp(name, class_names[i]) == 0) {
            *out = (enum job_class)i;
            return 0;
        }
    }
    return -EINVAL;
}

int sched_new(const struct sched_limits *limits, const struct sched_params *params,
              struct sched **out)
{
    const struct param *what;
    if (!limits->devices || !limits->jobs || !limits->groups || limits->jobs == SLOT_NONE ||
        limits->groups == SLOT_NONE || params_check(params, &what) < 0)
        return -EINVAL;

    struct sched *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->limits = *limits;
    c->params = *params;
    c->policy = &policy_laxity;
    size_t members = (size_t)limits->devices * limits->jobs;
    c->jobs = calloc(limits->jobs, sizeof(*c->jobs));
    c->groups = calloc(limits->groups, sizeof(*c->groups));
    c->settings = calloc(limits->groups, sizeof(*c->settings));
    c->first_group = calloc(members, sizeof(*c->first_group));
    c->devices = calloc(limits->devices, sizeof(*c->devices));
    struct member *pool = calloc(members, sizeof(*pool));
    if (c->devices)
        c->devices[0].members = pool; /* owned here; sched_free looks for it here */
    if (!c->jobs || !c->groups || !c->settings || !c->first_group || !c->devices || !pool) {
        if (!c->devices)
            free(pool);
        sched_free(c);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < limits->devices; i++) {
        struct policy_device *dev = &c->devices[i];
        dev->members = pool + (size_t)i * limits->jobs;
        dev->first = dev->last = dev->holder = dev->hurried = SLOT_NONE;
        dev->upper_seen = -1;
        dev->idle_since_ns = TIME_NEVER;
    }
    for (uint32_t i = 0; i < limits->groups; i++)
        c->groups[i].job = SLOT_NONE;
    for (size_t i = 0; i < members; i++)
        c->first_group[i] = SLOT_NONE;
    *out = c;
    return 0;
}

void sched_free(struct sched *c)
{
    if (!c)
        return;
    if (c->devices)
        free(c->devices[0].members);
    free(c->devices);
    free(c->first_group);
    free(c->settings);
    free(c->groups);
    free(c->jobs);
    free(c);
}

int sched_set_policy(struct sched *c, const char *name)
{
    for (size_t i = 0; i < POLICY_COUNT; i++) {
        if (strcmp(policies[i]->name, name) == 0) {
            c->policy = policies[i];
            return 0;
        }
    }
    return -EINVAL;
}

const char *sched_policy(const struct sched *c)
{
    return c->policy->name;
}

bool sched_policy_at(unsigned i, const char **name, const char **summary)
{
    if (i >= POLICY_COUNT)
        return false;
    *name = policies[i]->name;
    *summary = policies[i]->summary;
    return true;
}

int sched_set_params(struct sched *c, const struct sched_params *params)
{
    const struct param *what;
    int r = params_check(params, &what);
    if (r == 0)
        c->params = *params;
    return r;
}

const struct sched_params *sched_current_params(const struct sched *c)
{
    return &c->params;
}

static uint32_t *group_head(struct sched *c, uint32_t device, uint32_t job)
{
    return &c->first_group[(size_t)device * c->limits.jobs + job];
}

static void member_link(struct sched *c, uint32_t device, uint32_t job)
{
    struct policy_device *dev = &c->devices[device];
    const struct job *j = &c->jobs[job];
    struct member *m = &dev->members[job];
    *m = (struct member){
        .job = job,
        .class = j->class,
        .own_class = j->class,
        .weight = j->weight,
        .budget_us = j->budget_us,
        .paused = j->paused,
        .deadline_ns = j->deadline_ns,
        .left_ns = j->left_ns,
        .priority = j->priority,
        .may_rise = j->may_rise,
        .attends = j->attends,
        .runnable = !j->paused,
        .turn_group = SLOT_NONE,
        .last_group = SLOT_NONE,
        .vtime = dev->vtime_floor,
        .prev = dev->last,
        .next = SLOT_NONE,
        .used = true,
    };
    if (dev->last == SLOT_NONE)
        dev->first = job;
    else
        dev->members[dev->last].next = job;
    dev->last = job;
    dev->count++;
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
    if (dev->holder == job)
        dev->holder = SLOT_NONE;
    if (dev->hurried == job)
        dev->hurried = SLOT_NONE;
    m->used = false;
    dev->count--;
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
    uint32_t *head = group_head(c, ev->device, ev->job);
    *g = (struct group){.job = ev->job,
                        .device = ev->device,
                        .prev = SLOT_NONE,
                        .next = *head,
                        .computes = ev->computes};
    if (*head != SLOT_NONE)
        c->groups[*head].prev = ev->group;
    *head = ev->group;
    m->ngroups++;
    m->ncompute += ev->computes;
    return 0;
}

static void group_remove(struct sched *c, uint32_t group)
{
    struct group *g = &c->groups[group];
    if (g->prev == SLOT_NONE)
        *group_head(c, g->device, g->job) = g->next;
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
    g->job = SLOT_NONE;
}

/* Carries what the job says into its members. */
static void job_spread(struct sched *c, uint32_t job)
{
    const struct job *j = &c->jobs[job];
    for (uint32_t d = 0; d < c->limits.devices; d++) {
        struct member *m = &c->devices[d].members[job];
        if (!m->used)
            continue;
        m->class = m->own_class = j->class;
        m->weight = j->weight;
        m->budget_us = j->budget_us;
        m->paused = j->paused;
        /* No credit for the time it took no turns (paused, or in another class). */
        if (m->vtime < c->devices[d].vtime_floor)
            m->vtime = c->devices[d].vtime_floor;
    }
}

#define LEAD_NS 5000000000U /* of turns had in a hurry: more is forgotten */

/* A job that comes back gets no credit for the time it wanted nothing, and no debt for probes. A
 * gated device is never probed, nor is a job that attends: there it is no debt, but what it had. */
static void comes_back(const struct policy_device *dev, struct member *m)
{
    uint64_t most = dev->vtime_floor + (uint64_t)LEAD_NS * WEIGHT_DEFAULT / m->weight;
    bool probed = !dev->gated && !m->attends;
    m->idle = false;
    if (probed || m->vtime < dev->vtime_floor)
        m->vtime = dev->vtime_floor;
    else if (m->attends && m->vtime > most)
        m->vtime = most;
}

static void deadline(struct sched *c, const struct sched_event *ev)
{
    struct job *j = &c->jobs[ev->job];
    bool begins = ev->deadline_ns != TIME_NEVER && ev->deadline_ns != j->deadline_ns;
    j->deadline_ns = ev->deadline_ns;
    j->left_ns = ev->left_ns;
    j->priority = ev->priority;
    j->may_rise = ev->may_rise;
    j->attends = ev->on;
    for (uint32_t d = 0; d < c->limits.devices; d++) {
        struct member *m = &c->devices[d].members[ev->job];
        if (!m->used)
            continue;
        m->deadline_ns = j->deadline_ns;
        m->left_ns = j->left_ns;
        m->priority = j->priority;
        m->may_rise = j->may_rise;
        m->attends = j->attends;
        if (m->attends && j->deadline_ns == TIME_NEVER)
            m->idle |= !c->devices[d].gated;           /* it is seen if it goes on */
        if (begins && m->idle && !c->devices[d].gated) /* there it says so itself */
            comes_back(&c->devices[d], m);
    }
}

static void demand(struct sched *c, const struct sched_event *ev)
{
    struct policy_device *dev = &c->devices[ev->device];
    struct member *m = &dev->members[ev->job];
    if (!m->used)
        return;
    if (m->idle && ev->on)
        comes_back(dev, m);
    m->idle = !ev->on;
}

/* Half a second's memory: 50 requests at 100/s, and quick enough to follow a rush hour. */
#define SEEN_S 0.5

/* What latency jobs take while a job with a deadline works: some periods of such a job. */
#define UPPER_S 2.0

static void activity(struct policy_device *dev, const struct sched_event *ev)
{
    double window = (double)ev->window_ns * 1e-9, keep = window < SEEN_S ? 1 - window / SEEN_S : 0;
    double share = (double)ev->busy_ns / (double)ev->window_ns, w = window / UPPER_S;
    dev->upper_seen = dev->upper_seen < 0 ? share : dev->upper_seen + (share - dev->upper_seen) * w;
    if (dev->rest_until_ns)
        return;
    if (dev->unseen_s > 0) {
        dev->unseen_s -= window;
        return;
    }
    dev->seen_s = dev->seen_s * keep + window;
    dev->seen_returns = dev->seen_returns * keep + ev->returns;
    dev->seen_busy_s = dev->seen_busy_s * keep + (double)ev->busy_ns * 1e-9;
}

int sched_event(struct sched *c, const struct sched_event *ev)
{
    if (ev->type == EV_DEVICE) {
        if (ev->device >= c->limits.devices)
            return -EINVAL;
        c->devices[ev->device].gated = ev->on;
        return 0;
    }
    if (ev->type == EV_ACTIVITY) {
        if (ev->device >= c->limits.devices || !ev->window_ns || ev->window_ns > 1000000000U ||
            ev->busy_ns > ev->window_ns)
            return -EINVAL;
        activity(&c->devices[ev->device], ev);
        return 0;
    }
    if (ev->type == EV_GROUP_REMOVE) {
        if (ev->group >= c->limits.groups || c->groups[ev->group].job == SLOT_NONE)
            return -EINVAL;
        group_remove(c, ev->group);
        return 0;
    }
    if (ev->job >= c->limits.jobs)
        return -EINVAL;
    struct job *j = &c->jobs[ev->job];
    if (ev->type == EV_JOB_ADD ? j->used : !j->used)
        return ev->type == EV_JOB_ADD ? -EEXIST : -EINVAL;
    bool sets = ev->type == EV_JOB_ADD || ev->type == EV_JOB_CHANGE;
    if (sets && ((unsigned)ev->class >= CLASS_COUNT || ev->weight < WEIGHT_MIN ||
                 ev->weight > WEIGHT_MAX || ev->budget_us > BUDGET_MAX_US))
        return -EINVAL;

    switch (ev->type) {
    case EV_JOB_ADD:
        *j = (struct job){.used = true,
                          .class = ev->class,
                          .weight = ev->weight,
                          .budget_us = ev->budget_us,
                          .deadline_ns = TIME_NEVER};
        return 0;
    case EV_JOB_CHANGE:
        j->class = ev->class;
        j->weight = ev->weight;
        j->budget_us = ev->budget_us;
        job_spread(c, ev->job);
        return 0;
    case EV_JOB_REMOVE:
        for (uint32_t d = 0; d < c->limits.devices; d++) {
            while (*group_head(c, d, ev->job) != SLOT_NONE)
                group_remove(c, *group_head(c, d, ev->job));
        }
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
        if (ev->device >= c->limits.devices)
            return -EINVAL;
        demand(c, ev);
        return 0;
    case EV_GROUP_REMOVE:
    case EV_DEVICE:
    case EV_ACTIVITY:
        break;
    }
    return -EINVAL;
}

/* Whose turn it is among the computing groups of one member: round and round. */
static void pick_turn_group(const struct sched *c, struct member *m, uint32_t head)
{
    if (m->turn_group != SLOT_NONE)
        return;
    uint32_t first = SLOT_NONE;
    bool passed = false;
    for (uint32_t g = head; g != SLOT_NONE && m->turn_group == SLOT_NONE; g = c->groups[g].next) {
        if (!c->groups[g].computes)
            continue;
        first = first == SLOT_NONE ? g : first;
        m->turn_group = passed ? g : SLOT_NONE;
        passed |= g == m->last_group;
    }
    m->turn_group = m->turn_group == SLOT_NONE ? first : m->turn_group;
    m->last_group = m->turn_group;
}

int sched_decide(struct sched *c, uint32_t device, uint64_t now_ns, struct sched_plan *plan)
{
    if (device >= c->limits.devices)
        return -EINVAL;
    struct policy_device *dev = &c->devices[device];
    dev->wake_ns = TIME_NEVER;
    dev->minds_gaps = false;
    for_each_member (dev, m)
        m->one_by_one = false;
    policy_hurry(&c->params, dev, c->policy->deadlines, now_ns);
    if (dev->gated && c->policy != &policy_static)
        policy_gated(&c->params, dev, c->policy->strict, now_ns);
    else
        c->policy->decide(&c->params, dev, now_ns);
    if (!dev->minds_gaps)
        dev->rest_until_ns = 0;

    /* Groups that stop from the front, groups that run from the back of the same array: one pass.
     */
    size_t total = 0, front = 0;
    for_each_member (dev, m)
        total += m->ngroups;
    size_t back = total;
    for_each_member (dev, m) {
        if (m->paused)
            m->runnable = false;
        uint32_t head = *group_head(c, device, m->job);
        if (m->one_by_one)
            pick_turn_group(c, m, head);
        for (uint32_t g = head; g != SLOT_NONE; g = c->groups[g].next) {
            bool waits = m->one_by_one && c->groups[g].computes && g != m->turn_group;
            bool apart = c->params.copies_apart && m->one_by_one && !c->groups[g].computes;
            bool runs = apart ? !m->paused : m->runnable && !waits;
            c->settings[runs ? --back : front++] = (struct sched_setting){
                .group = g, .timeslice_us = apart ? 0 : m->timeslice_us, .runnable = runs};
        }
    }
    *plan = (struct sched_plan){.settings = c->settings, .n = total, .wake_ns = dev->wake_ns};
    return 0;
}

bool sched_wants_activity(const struct sched *c, uint32_t device)
{
    if (device >= c->limits.devices)
        return false;
    bool upper = false, budget = false, lower = false, deadline = false;
    if (c->devices[device].gated)
        return false; /* the budget is what may be queued there */
    for_each_member (&c->devices[device], m) {
        upper |= m->own_class == CLASS_LATENCY && !m->paused;
        budget |= m->own_class == CLASS_LATENCY && m->budget_us && !m->paused;
        lower |= m->own_class != CLASS_LATENCY && !m->paused;
        deadline |= m->attends || m->deadline_ns != TIME_NEVER;
    }
    return lower && (budget || (upper && deadline));
}

bool sched_minds_gaps(const struct sched *c, uint32_t device)
{
    return device < c->limits.devices && c->devices[device].minds_gaps;
}

bool sched_rests(const struct sched *c, uint32_t device)
{
    return device < c->limits.devices && c->devices[device].rest_until_ns;
}

bool sched_member_state(const struct sched *c, uint32_t job, uint32_t device, bool *runnable,
                        uint32_t *timeslice_us)
{
    if (job >= c->limits.jobs || device >= c->limits.devices)
        return false;
    const struct member *m = &c->devices[device].members[job];
    if (!m->used)
        return false;
    *runnable = m->runnable;
    *timeslice_us = m->timeslice_us;
    return true;
}

bool sched_member_hurries(const struct sched *c, uint32_t job, uint32_t device, bool *risen)
{
    *risen = false;
    if (job >= c->limits.jobs || device >= c->limits.devices || c->devices[device].hurried != job)
        return false;
    *risen = c->devices[device].risen;
    return true;
}
