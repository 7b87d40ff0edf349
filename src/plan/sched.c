/* See sched.h: set-up of the scheduler, and questions about its state. dispatch.c decides. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/packing.h"
#include "plan/sched_impl.h"

static const char *const class_names[CLASS_COUNT] = {"latency", "normal", "batch"};
static const struct policy *const policies[] = {&policy_laxity, &policy_edf, &policy_priority,
                                                &policy_shares};
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

bool sched_rotates(const struct sched *c)
{
    return c->policy->strict;
}

bool sched_orders(const struct sched *c)
{
    return c->policy->deadlines != DEADLINES_IGNORED && c->params.deadline_share > 0;
}

bool sched_wants_activity(const struct sched *c, uint32_t device)
{
    if (device >= c->limits.devices)
        return false;
    bool upper = false, budget = false, lower = false, deadline = false;
    if (c->devices[device].gated)
        return false; /* there the budget limits the work that may be queued */
    for_each_member (&c->devices[device], m) {
        upper |= m->own_class == CLASS_LATENCY && m->present;
        budget |= m->own_class == CLASS_LATENCY && m->budget_us && m->present;
        lower |= m->own_class != CLASS_LATENCY && m->present;
        deadline |=
            m->own_class != CLASS_LATENCY && (m->due.expects || m->due.deadline_ns != TIME_NEVER);
    }
    return lower && (budget || (upper && deadline));
}

bool sched_wants_switches(const struct sched *c, uint32_t device, double latency_busy)
{
    bool latency = false, lower = false;
    uint32_t contexts = 0;
    if (device >= c->limits.devices || c->devices[device].gated)
        return false;
    for_each_member (&c->devices[device], m) {
        latency |= m->class == CLASS_LATENCY && m->present;
        lower |= m->class != CLASS_LATENCY && m->present;
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
    bool lower = r->top == CLASS_LATENCY && r->from != CLASS_COUNT;
    /* The cost of switches is measured for launch-bound jobs only. */
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
