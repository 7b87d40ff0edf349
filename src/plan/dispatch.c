/* The dispatcher: decides which jobs may run, which have their turn, and their timeslices. Each
 * mechanism is one file; values that follow from several of them, such as a member's class and
 * whether it is present, are set only here. */
#include "plan/sched_impl.h"
#include "plan/timeslices.h"

/* ---- which jobs may run, and in which class ---- */

void dispatch_admit(const struct sched *c, struct member *m)
{
    m->present = !c->jobs[m->job].paused && m->limit.verdict != LIMIT_OUT;
    if (m->limit.class != CLASS_COUNT)
        m->class = m->limit.class;
    else if (!c->policy->strict)
        m->class = CLASS_BATCH;
    else
        m->class = m->due.joins_latency ? CLASS_LATENCY : m->own_class;
}

static void admit_all(const struct machine *mc, const struct sched *c)
{
    for (uint32_t d = 0; d < mc->n; d++) {
        for_each_member (&mc->devices[d], m)
            dispatch_admit(c, m);
    }
}

/* ---- which jobs have their turn ---- */

/* Chooses the computing group that runs, in rotation, of those of a member that do not run together
 * with others. */
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

/* Lets the policy decide a device: timeslices, and which classes take turns. */
static void decide_device(const struct sched *c, struct policy_device *dev, uint64_t now_ns)
{
    dev->rotation.from = CLASS_COUNT;
    dev->rotation.blocked = false;
    for_each_member (dev, m)
        m->serialize_contexts = false, m->compute_us = 0;
    if (dev->gated)
        policy_gated(&c->params, dev, now_ns);
    else
        c->policy->decide(&c->params, dev, now_ns);
}

/* Decides the turns, of each device or of all that gangs link. */
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

/* Groups that stop fill the array from the front, groups that run from the back, in one pass. */
struct emission {
    size_t front, back;
};

static void emit_member(struct sched *c, uint32_t d, struct member *m, struct emission *e,
                        uint64_t now_ns)
{
    uint32_t g = *sched_group_head(c, d, m->job);
    m->runnable &= m->present && m->limit.verdict == LIMIT_NONE;
    if (m->serialize_contexts)
        pick_turn_group(c, m, g);
    for (; g != SLOT_NONE; g = c->groups[g].next) {
        struct sched_setting s = timeslices_setting(c, m, g);
        if (c->groups[g].slice_us != s.timeslice_us) {
            c->groups[g].before_us = c->groups[g].slice_us;
            c->groups[g].sliced_ns = now_ns;
        }
        c->groups[g].slice_us = s.timeslice_us;
        c->groups[g].runs = s.runnable;
        c->settings[s.runnable ? --e->back : e->front++] = s;
    }
}

/* Writes the settings job by job, those of a gang at the first of its devices. */
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

static bool lower_runs(const struct policy_device *dev)
{
    bool any = false;
    for_each_member (dev, m)
        any |= m->runnable && !m->idle && m->class != CLASS_LATENCY;
    return any;
}

/* Decides by deadlines and limits which jobs may run, in which class and with which share. */
static void decide_who(struct sched *c, struct machine *mc)
{
    limits_release(mc);
    admit_all(mc, c);
    boost_decide(mc, c->policy->deadlines);
    admit_all(mc, c);
    for (uint32_t d = 0; d < mc->n; d++)
        rotation_charge_left(mc->params, &mc->devices[d], mc->now_ns);
    account_shares(mc);
    if (mc->limited) {
        limits_decide(mc, &c->frames);
        admit_all(mc, c);
        account_shares(mc);
    } else {
        limits_end(mc);
    }
    c->had_several = mc->several;
}

void sched_decide(struct sched *c, uint64_t now_ns, struct sched_plan *plan)
{
    struct machine mc = sched_machine(c, now_ns);
    c->explained = 0;
    for (uint32_t d = 0; d < mc.n; d++)
        mc.devices[d].wake_ns = TIME_NEVER;
    decide_who(c, &mc);
    company_judge(c, now_ns);
    slack_decide(&mc, sched_orders(c));
    for (uint32_t d = 0; d < mc.n; d++)
        decide_device(c, &mc.devices[d], now_ns);
    decide_turns(&mc);
    for (uint32_t d = 0; d < mc.n && mc.limited; d++)
        limits_slices(&mc.devices[d]);
    emit(c, now_ns);
    company_count(c, now_ns);
    *plan = (struct sched_plan){.settings = c->settings, .n = c->ngroups, .wake_ns = TIME_NEVER};
    for_each (dev, mc.devices, mc.n) {
        runs_count(&dev->runs, lower_runs(dev), now_ns);
        plan->wake_ns = dev->wake_ns < plan->wake_ns ? dev->wake_ns : plan->wake_ns;
    }
}
