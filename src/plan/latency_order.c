/* See latency_order.h. */
#include "plan/latency_order.h"

#include <math.h>

#include "plan/policy.h"

#define OWED_NS     250000000.0 /* some requests, and less than a person notices */
#define KEEP_NS     100000000U
#define CHANGE_NS   4000000U  /* between two orders: their control calls are a fifth of it */
#define WAKE_NS     1000000.0 /* least time between decisions for what time alone changes */
#define ORDERED_MAX 32        /* requests on one device; more have their share only */
#define LEFT_LEAST  0.125     /* of the need, which is left at least: see deadlines.c */
#define FORGETS     2.0       /* times its share, at which a job without a request loses credit */
#define ROOM        1.1 /* factor by which sharing by weight takes longer, because of switches */
/* Slice of several followers, or of one with lower jobs: with the shortest they would only switch
 * between each other while the leader has no work. */
#define FOLLOW_US 1000U

/* An open request. */
struct ordered {
    struct member *m;
    double left, due; /* GPU time that it needs; time until its deadline, negative: late */
    bool overruns;    /* it has had more GPU time than it was said to need */
    bool given_up;
};

struct ordering {
    const struct sched_params *p;
    struct policy_device *dev;
    uint64_t now_ns;
    double switch_ns;
    struct ordered v[ORDERED_MAX]; /* by deadline */
    uint32_t n;
};

static bool slack_reports(const struct policy_device *dev, const struct member *m)
{
    bool ceiling = m->limit.own.max > 0 || dev->accounts[m->account].limits.max > 0;
    return m->own_class == CLASS_LATENCY && m->due.expects && m->present && !m->gang && !ceiling;
}

static void slack_end(struct policy_device *dev)
{
    dev->order.leader = SLOT_NONE;
    for_each_member (dev, m)
        m->slack.role = SLACK_NONE;
}

/* Called when no job takes part any more. */
static void slack_forget(struct policy_device *dev)
{
    slack_end(dev);
    dev->order.charged_ns = 0;
    for_each_member (dev, m)
        m->slack = (struct member_slack){0};
}

/* ---- credits ---- */

static double toward_zero(double credit, double share_ns)
{
    if (credit > 0)
        return credit > share_ns * FORGETS ? credit - share_ns * FORGETS : 0;
    return credit < -share_ns ? credit + share_ns : 0;
}

/* The estimated part of the time, while it had a request, for which the job had the GPU. */
static double slack_part(const struct policy_device *dev, const struct member *m, double pending,
                         double ordered)
{
    bool led = dev->order.leader != SLOT_NONE && dev->members[dev->order.leader].slack.pending;
    if (!led || m->slack.role == SLACK_NONE)
        return m->share / pending;
    return m->slack.role == SLACK_LEADS ? ordered / pending : 0;
}

static void slack_charge(struct policy_device *dev, uint64_t now_ns)
{
    struct slack_order *o = &dev->order;
    double dt = o->charged_ns && now_ns > o->charged_ns ? (double)(now_ns - o->charged_ns) : 0;
    double all = 0, pending = 0, ordered = 0;
    for_each_member (dev, m) {
        all += m->slack.reports ? m->share : 0;
        pending += m->slack.pending ? m->share : 0;
        ordered += m->slack.pending && m->slack.role != SLACK_NONE ? m->share : 0;
    }
    for_each_member (dev, m) {
        struct member_slack *s = &m->slack;
        if (!s->reports)
            continue;
        double share = m->share / all, most = share * OWED_NS;
        if (s->pending) {
            double had = dt * slack_part(dev, m, pending, ordered);
            s->served_ns += had;
            s->credit_ns += dt * share - had;
        } else {
            s->credit_ns = toward_zero(s->credit_ns, dt * share);
        }
        s->credit_ns = s->credit_ns > most ? most : s->credit_ns < -most ? -most : s->credit_ns;
        if (s->credit_ns >= most * (1 - 1e-9))
            s->owed = true;
        else if (s->credit_ns <= most / 2)
            s->owed = false;
    }
    o->charged_ns = now_ns;
}

/* ---- open requests ---- */

static void slack_add(struct ordering *o, struct member *m)
{
    const struct member_slack *s = &m->slack;
    double need = (double)s->left_ns, left = need - s->served_ns;
    struct ordered r = {.m = m,
                        .left = left > need * LEFT_LEAST ? left : need * LEFT_LEAST,
                        .due = (double)s->deadline_ns - (double)o->now_ns,
                        .overruns = left <= 0};
    uint32_t at = o->n++;
    for (; at > 0 && o->v[at - 1].due > r.due; at--)
        o->v[at] = o->v[at - 1];
    o->v[at] = r;
}

/* Collects the open requests. Returns whether a job takes part. */
static bool slack_collect(struct ordering *o)
{
    bool any = false;
    for_each_member (o->dev, m) {
        struct member_slack *s = &m->slack;
        s->reports = slack_reports(o->dev, m);
        any |= s->reports;
        s->pending = s->reports && m->due.deadline_ns != TIME_NEVER && m->due.left_ns != TIME_NEVER;
        if (m->due.deadline_ns != s->deadline_ns || m->due.left_ns != s->left_ns)
            s->served_ns = 0;
        s->deadline_ns = m->due.deadline_ns;
        s->left_ns = m->due.left_ns;
        if (!s->reports) {
            s->credit_ns = 0;
            s->owed = false;
        }
        if (s->pending && o->n < ORDERED_MAX)
            slack_add(o, m);
    }
    return any;
}

static double slack_sum(const struct ordering *o)
{
    double sum = 0;
    for (uint32_t i = 0; i < o->n; i++)
        sum += o->v[i].left + o->switch_ns;
    return sum;
}

static bool can_be_met(const struct ordered *r)
{
    return r->due >= r->left;
}

static bool slack_any_met(const struct ordering *o)
{
    bool any = false;
    for (uint32_t i = 0; i < o->n; i++)
        any |= can_be_met(&o->v[i]);
    return any;
}

/* Whether sharing by weight makes a request late that can be met, because of one that needs more
 * than a timeslice. */
static bool slack_needed(const struct ordering *o)
{
    double sum = slack_sum(o) * ROOM, slice = o->p->timeslice_latency_us * 1000.0;
    for (uint32_t i = 0; i < o->n; i++) {
        const struct ordered *r = &o->v[i];
        bool behind = false;
        for (uint32_t k = 0; k < o->n; k++)
            behind |= k != i && o->v[k].left > slice;
        if (behind && can_be_met(r) && r->due < sum)
            return true;
    }
    return false;
}

/* ---- the order ---- */

static struct ordered *least_worth(struct ordering *o, uint32_t n)
{
    struct ordered *worst = NULL;
    for_each (r, o->v, n) {
        if (r->given_up)
            continue;
        int a = r->m->due.priority, b = worst ? worst->m->due.priority : 0;
        if (!worst || a < b || (a == b && r->left > worst->left))
            worst = r;
    }
    return worst;
}

static void give_up(struct ordering *o)
{
    double end = 0;
    for (uint32_t i = 0; i < o->n; i++) {
        struct ordered *r = &o->v[i];
        r->given_up = !can_be_met(r);
        if (r->given_up)
            continue;
        end += r->left + o->switch_ns;
        while (end > r->due && end > 0) {
            struct ordered *worst = least_worth(o, i + 1);
            if (!worst)
                break;
            worst->given_up = true;
            end -= worst->left + o->switch_ns;
        }
    }
}

/* Whether all requests that are not given up are in time when this one is first. */
static bool can_lead(const struct ordering *o, const struct ordered *first)
{
    bool leads = first->m->job == o->dev->order.leader;
    double end = first->left + (leads ? 0 : o->switch_ns);
    if (first->given_up || end > first->due)
        return false;
    for_each (r, o->v, o->n) {
        if (r == first || r->given_up)
            continue;
        end += r->left + o->switch_ns;
        if (end > r->due)
            return false;
    }
    return true;
}

/* The request whose job leads; NULL: none can be met. */
static struct ordered *slack_pick(struct ordering *o)
{
    struct ordered *least = NULL, *earliest = NULL;
    give_up(o);
    for_each (r, o->v, o->n) {
        bool ends = !r->overruns && r->left <= 2 * o->switch_ns;
        if (r->m->job == o->dev->order.leader && (ends || can_lead(o, r)))
            return r;
        if (r->given_up)
            continue;
        earliest = earliest ? earliest : r;
        least = !least || r->due - r->left < least->due - least->left ? r : least;
    }
    return least && can_lead(o, least) ? least : earliest;
}

/* Whether another job with a request has waited enough. */
static bool owed_other(const struct ordering *o, const struct member *m)
{
    for (uint32_t i = 0; i < o->n; i++) {
        if (o->v[i].m != m && o->v[i].m->slack.owed)
            return true;
    }
    return false;
}

static void slack_lead(struct ordering *o, struct ordered *first)
{
    if (o->dev->order.leader != first->m->job)
        o->dev->order.changed_ns = o->now_ns;
    slack_end(o->dev);
    for (uint32_t i = 0; i < o->n; i++)
        o->v[i].m->slack.role = SLACK_FOLLOWS;
    first->m->slack.role = SLACK_LEADS;
    o->dev->order.leader = first->m->job;
}

/* Decides again when a follower will be owed, or after the time `left`. */
static void slack_wake(const struct ordering *o, double left)
{
    double all = 0, at = left;
    for_each_member (o->dev, m)
        all += m->slack.reports ? m->share : 0;
    for (uint32_t i = 0; i < o->n; i++) {
        const struct member *m = o->v[i].m;
        double share = m->share / all, waits = OWED_NS - m->slack.credit_ns / share;
        if (m->slack.role == SLACK_FOLLOWS && !m->slack.owed && waits < at)
            at = waits;
    }
    policy_wake(o->dev, policy_after(o->now_ns, at > WAKE_NS ? at : WAKE_NS));
}

static void slack_device(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    struct slack_order *order = &dev->order;
    struct ordering o = {.p = p, .dev = dev, .now_ns = now_ns, .switch_ns = p->switch_us * 1000.0};
    slack_charge(dev, now_ns);
    if (!slack_collect(&o)) {
        slack_forget(dev);
        return;
    }
    bool needed = o.n > 1 && slack_needed(&o);
    struct ordered *first = needed ? slack_pick(&o) : NULL;
    if (first && !owed_other(&o, first->m)) {
        order->needed_ns = now_ns;
        bool soon = order->changed_ns && now_ns < order->changed_ns + CHANGE_NS;
        if (soon && first->m->job != order->leader) {
            policy_wake(dev, order->changed_ns + CHANGE_NS);
            return;
        }
        slack_lead(&o, first);
        slack_wake(&o, first->left);
        return;
    }
    const struct member *leader = order->leader == SLOT_NONE ? NULL : &dev->members[order->leader];
    bool over = needed || now_ns >= order->needed_ns + KEEP_NS;
    if (leader && (over || (o.n > 1 && !leader->slack.pending) || owed_other(&o, leader)))
        slack_end(dev);
    else if (leader)
        policy_wake(dev, order->needed_ns + KEEP_NS);
    if (o.n > 1 && slack_any_met(&o))
        slack_wake(&o, slack_sum(&o));
}

void slack_decide(const struct machine *mc, bool use)
{
    for_each (dev, mc->devices, mc->n) {
        bool lower = false, any = false;
        for_each_member (dev, m) {
            lower |= m->own_class != CLASS_LATENCY && m->present;
            any |= m->own_class == CLASS_LATENCY && m->due.expects;
        }
        /* A floor is kept by the timeslices of the latency class, which then must not change. */
        if (!use || dev->gated || (mc->params->floor > 0 && lower))
            any = false;
        if (any)
            slack_device(mc->params, dev, mc->now_ns);
        else if (dev->order.charged_ns)
            slack_forget(dev);
    }
}

/* ---- timeslices ---- */

void slack_slices(const struct sched_params *p, struct policy_device *dev, bool lower)
{
    uint32_t follow = 0, others = 0;
    double sum_us = 0;
    if (dev->order.leader == SLOT_NONE)
        return;
    for_each_member (dev, m) {
        if (m->class != CLASS_LATENCY || !m->present)
            continue;
        follow += m->slack.role == SLACK_FOLLOWS;
        others += m->slack.role == SLACK_NONE;
        sum_us += m->slack.role != SLACK_NONE ? (double)m->timeslice_us * member_width(m) : 0;
    }
    uint32_t least =
        (follow > 1 || lower) && p->timeslice_min_us < FOLLOW_US ? FOLLOW_US : p->timeslice_min_us;
    for_each_member (dev, m) {
        if (m->class != CLASS_LATENCY || !m->present)
            continue;
        if (m->slack.role == SLACK_FOLLOWS && (!lower || others))
            m->compute_us = m->timeslice_us < least ? m->timeslice_us : least;
        else if (m->slack.role == SLACK_LEADS && !others && member_width(m) == 1)
            m->compute_us = p->timeslice_alone_us;
        else if (m->slack.role == SLACK_LEADS)
            m->compute_us = (uint32_t)fmin(sum_us / member_width(m), p->timeslice_max_us);
    }
}
