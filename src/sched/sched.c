/* The scheduler: set-up, the order in which a plan is made, and what can be asked of it.
 * See sched.h for the rules this file keeps: no clock, no system call, no allocation after set-up.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sched/packing.h"
#include "sched/sched_impl.h"

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
    if (!limits->devices || !limits->jobs || !limits->groups || !limits->accounts ||
        limits->accounts == SLOT_NONE || limits->jobs == SLOT_NONE || limits->groups == SLOT_NONE ||
        params_check(params, &what) < 0)
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
    c->accounts = calloc(limits->accounts, sizeof(*c->accounts));
    c->turns = calloc((size_t)limits->devices * limits->accounts, sizeof(*c->turns));
    c->frames.claims = calloc(limits->jobs > limits->accounts ? limits->jobs : limits->accounts,
                              sizeof(*c->frames.claims));
    c->devices = calloc(limits->devices, sizeof(*c->devices));
    c->members = calloc(members, sizeof(*c->members));
    c->order = calloc(members, sizeof(*c->order));
    c->packings = calloc(2 * (size_t)limits->devices, sizeof(*c->packings));
    if (!c->jobs || !c->groups || !c->settings || !c->first_group || !c->accounts || !c->turns ||
        !c->frames.claims || !c->devices || !c->members || !c->order || !c->packings) {
        sched_free(c);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < limits->devices; i++) {
        struct policy_device *dev = &c->devices[i];
        dev->members = c->members + (size_t)i * limits->jobs;
        dev->window = SLOT_NONE;
        dev->accounts = c->accounts;
        dev->turns = c->turns + (size_t)i * limits->accounts;
        dev->packings = &c->packings[2 * i];
        dev->first = dev->last = SLOT_NONE;
        rotation_init(&dev->rotation, i);
        boost_init(&dev->boost);
        dev->order.leader = SLOT_NONE;
        dev->runs.group = SLOT_NONE;
    }
    for (uint32_t i = 0; i < limits->accounts; i++)
        c->accounts[i].weight = WEIGHT_DEFAULT;
    for (size_t i = 0; i < (size_t)limits->devices * limits->accounts; i++)
        c->turns[i].part = WEIGHT_DEFAULT;
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
    free(c->packings);
    free(c->order);
    free(c->members);
    free(c->devices);
    free(c->frames.claims);
    free(c->turns);
    free(c->accounts);
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
            c->explained = 0;
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
    c->explained = 0;
    return r;
}

const struct sched_params *sched_current_params(const struct sched *c)
{
    return &c->params;
}

bool sched_has_slice(uint64_t us)
{
    return company_has_slice(us) || speed_floor_has_slice(us);
}

/* Whose turn it is among the computing groups of one member that do not run beside others: round
 * and round. */
static void pick_turn_group(const struct sched *c, struct member *m, uint32_t head)
{
    if (m->turn_group != SLOT_NONE && !company_slice(c, &c->groups[m->turn_group]))
        return;
    m->turn_group = SLOT_NONE;
    uint32_t first = SLOT_NONE;
    bool passed = false;
    for (uint32_t g = head; g != SLOT_NONE && m->turn_group == SLOT_NONE; g = c->groups[g].next) {
        if (!c->groups[g].computes || company_slice(c, &c->groups[g]))
            continue;
        first = first == SLOT_NONE ? g : first;
        m->turn_group = passed ? g : SLOT_NONE;
        passed |= g == m->last_group;
    }
    m->turn_group = m->turn_group == SLOT_NONE ? first : m->turn_group;
    m->last_group = m->turn_group;
}

/* What each device shall look like but for turns: timeslices, and which classes take turns. */
static void decide_device(const struct sched *c, struct policy_device *dev, uint64_t now_ns)
{
    dev->rotation.from = CLASS_COUNT;
    dev->rotation.blocked = false;
    for_each_member (dev, m)
        m->serialize_contexts = false, m->compute_us = 0;
    if (dev->gated && c->policy->turns)
        policy_gated(&c->params, dev, now_ns);
    else
        c->policy->decide(&c->params, dev, now_ns);
}

/* Whose turn it is, on each device or on all that gangs link. */
static void decide_turns(const struct machine *mc)
{
    gang_link(mc);
    for (uint32_t d = 0; d < mc->n; d++)
        company_open(mc->params, &mc->devices[d]);
    for (uint32_t d = 0; d < mc->n; d++) {
        struct policy_device *dev = &mc->devices[d];
        if (dev->gated)
            continue;
        if (!dev->rotation.linked)
            rotation_decide(mc->params, dev, mc->now_ns);
        else if (dev->rotation.link == d)
            round_decide(mc, d);
    }
    company_pick(mc);
    for (uint32_t d = 0; d < mc->n; d++) {
        if (!mc->devices[d].gated)
            rotation_apply(mc->params, &mc->devices[d]);
    }
}

static struct sched_setting setting(const struct sched *c, const struct member *m, uint32_t g)
{
    const struct group *x = &c->groups[g];
    uint32_t beside_us = m->serialize_contexts && x->computes ? company_slice(c, x) : 0;
    bool waits = m->serialize_contexts && x->computes && g != m->turn_group && !beside_us;
    bool apart = c->params.copies_apart && m->serialize_contexts && !c->groups[g].computes;
    bool other = m->compute_us && (c->groups[g].computes || !m->ncompute);
    uint32_t us = other ? m->compute_us : m->timeslice_us;
    us = beside_us > us ? beside_us : us;
    return (struct sched_setting){.group = g,
                                  .timeslice_us = apart ? 0 : us,
                                  .runnable = apart ? !m->paused : m->runnable && !waits};
}

/* Groups that stop go from the front, groups that run from the back of the same array: one pass. */
struct emission {
    size_t front, back;
};

static void emit_member(struct sched *c, uint32_t d, struct member *m, struct emission *e,
                        uint64_t now_ns)
{
    uint32_t g = *sched_group_head(c, d, m->job);
    m->runnable &= !m->paused && !m->limit.held;
    if (m->serialize_contexts)
        pick_turn_group(c, m, g);
    for (; g != SLOT_NONE; g = c->groups[g].next) {
        struct sched_setting s = setting(c, m, g);
        if (c->groups[g].slice_us != s.timeslice_us) {
            c->groups[g].before_us = c->groups[g].slice_us;
            c->groups[g].sliced_ns = now_ns;
        }
        c->groups[g].slice_us = s.timeslice_us;
        c->groups[g].runs = s.runnable;
        c->settings[s.runnable ? --e->back : e->front++] = s;
    }
}

/* Job by job, a gang at the first of its devices. */
static void emit(struct sched *c, uint64_t now_ns)
{
    struct emission e = {0, c->ngroups};
    for (uint32_t d = 0; d < c->limits.devices; d++) {
        for_each_member (&c->devices[d], m) {
            if (!m->gang)
                emit_member(c, d, m, &e, now_ns);
            for (uint32_t k = d; m->gang && m->gang_first == d && k < c->limits.devices; k++) {
                if (c->devices[k].members[m->job].gang)
                    emit_member(c, k, &c->devices[k].members[m->job], &e, now_ns);
            }
        }
    }
}

bool sched_rotates(const struct sched *c)
{
    return c->policy->strict && c->policy->turns;
}

bool sched_orders(const struct sched *c)
{
    return c->policy->deadlines != DEADLINES_IGNORED && c->params.deadline_share > 0;
}

static bool lower_runs(const struct policy_device *dev)
{
    bool any = false;
    for_each_member (dev, m)
        any |= m->runnable && !m->idle && m->class != CLASS_LATENCY;
    return any;
}

void sched_decide(struct sched *c, uint64_t now_ns, struct sched_plan *plan)
{
    struct machine mc = sched_machine(c, now_ns);
    c->explained = 0;
    for (uint32_t d = 0; d < mc.n; d++)
        mc.devices[d].wake_ns = TIME_NEVER;
    limits_release(&mc);
    boost_decide(&mc, c->policy->deadlines);
    for (uint32_t d = 0; d < mc.n && !c->policy->strict; d++) {
        for_each_member (&mc.devices[d], m)
            m->class = CLASS_BATCH;
    }
    for (uint32_t d = 0; d < mc.n; d++)
        rotation_charge_left(mc.params, &mc.devices[d], now_ns);
    account_shares(&mc);
    if (mc.limited && c->policy->turns) {
        limits_decide(&mc, &c->frames);
        account_shares(&mc);
    } else {
        limits_end(&mc);
    }
    c->had_several = mc.several;
    company_judge(c, now_ns);
    slack_decide(&mc, sched_orders(c));
    for (uint32_t d = 0; d < mc.n; d++)
        decide_device(c, &mc.devices[d], now_ns);
    if (c->policy->turns)
        decide_turns(&mc);
    for (uint32_t d = 0; d < mc.n && mc.limited && c->policy->turns; d++)
        limits_slices(&mc.devices[d]);
    emit(c, now_ns);
    company_count(c, now_ns);
    for (uint32_t d = 0; d < mc.n; d++)
        runs_count(&mc.devices[d].runs, lower_runs(&mc.devices[d]), now_ns);
    *plan = (struct sched_plan){.settings = c->settings, .n = c->ngroups, .wake_ns = TIME_NEVER};
    for (uint32_t d = 0; d < mc.n; d++)
        plan->wake_ns =
            mc.devices[d].wake_ns < plan->wake_ns ? mc.devices[d].wake_ns : plan->wake_ns;
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
        deadline |=
            m->own_class != CLASS_LATENCY && (m->due.expects || m->due.deadline_ns != TIME_NEVER);
    }
    return lower && (budget || (upper && deadline));
}

bool sched_wants_switches(const struct sched *c, uint32_t device, double latency_busy)
{
    bool latency = false, lower = false;
    uint32_t contexts = 0;
    if (device >= c->limits.devices || c->devices[device].gated || !c->policy->turns)
        return false;
    for_each_member (&c->devices[device], m) {
        latency |= m->class == CLASS_LATENCY && !m->paused;
        lower |= m->class != CLASS_LATENCY && !m->paused;
        contexts += rotation_takes_part(&c->devices[device], m) ? member_width(m) : 0;
    }
    return (latency && lower && latency_busy >= SPEED_BUSY) ||
           (c->devices[device].rotation.from != CLASS_COUNT && contexts > 1);
}

bool sched_throttled(const struct sched *c, uint32_t device)
{
    return device < c->limits.devices && c->devices[device].speed.phase == SPEED_THROTTLED;
}

struct sched_speed sched_speed(const struct sched *c, uint32_t device)
{
    const struct speed_floor *s = &c->devices[device].speed;
    const struct rotation *r = &c->devices[device].rotation;
    bool lower = c->policy->turns && r->top == CLASS_LATENCY && r->from != CLASS_COUNT;
    /* Of others, what switching costs them is not measured. */
    bool known = s->launch_bound && s->alone > 0 && s->phase != SPEED_THROTTLED &&
                 (s->step > 0 || s->us_costs > 0);
    return (struct sched_speed){
        .launch_bound = s->launch_bound,
        .bursts_hz = s->bursts_hz,
        .busy = s->alone,
        .speed = known ? fmin((s->step ? s->rate : s->shortest) / s->alone, 1) : 0,
        .slice_us = lower ? r->slice_us : 0,
    };
}

bool sched_member_state(const struct sched *c, uint32_t job, uint32_t device, bool *runnable)
{
    const struct member *m = job < c->limits.jobs && device < c->limits.devices
                                 ? &c->devices[device].members[job]
                                 : NULL;
    *runnable = m && m->used && m->runnable;
    return m && m->used;
}

bool sched_member_boosted(const struct sched *c, uint32_t job, uint32_t device, bool *promoted)
{
    *promoted = false;
    if (job >= c->limits.jobs || device >= c->limits.devices)
        return false;
    const struct policy_device *dev = &c->devices[device];
    *promoted = dev->boost.job == job && dev->boost.promoted;
    return dev->boost.job == job || dev->order.leader == job;
}
