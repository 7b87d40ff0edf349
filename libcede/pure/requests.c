/* See requests.h. Each device's queue is a list in the policy's order; REQ_LAXITY and REQ_EDF with
 * k > 1 make their exceptions from it when a request is taken. */
#include "libcede/pure/requests_impl.h"

#include <errno.h>
#include <stdlib.h>

void cede_requests_params_default(struct requests_params *p)
{
    *p = (struct requests_params){.policy = REQ_EDF,
                                  .devices = 1,
                                  .capacity = 1024,
                                  .k = 16,
                                  .urgent_ns = 1000000,
                                  .prefer_within_ns = 1000000};
}

const char *cede_requests_answer_text(enum request_answer a)
{
    static const char *const texts[] = {
        [REQ_RUN] = "runs now",
        [REQ_QUEUED] = "waits in the queue",
        [REQ_INVALID] = "refused: class, device or time out of range",
        [REQ_FULL] = "refused: the queue is full",
        [REQ_HOPELESS] = "refused: it could not meet its deadline even if it ran at once",
        [REQ_BACKLOG] = "refused: it would miss its deadline behind the requests before it",
        [REQ_HARMS_OTHERS] = "refused: an admitted request would miss its deadline",
    };
    return (unsigned)a < sizeof(texts) / sizeof(texts[0]) ? texts[a] : "unknown";
}

/* The latest start that meets the deadline; the laxity is the time until then. */
static uint64_t requests_latest_start(const struct request *q)
{
    return q->deadline_ns == TIME_NEVER
               ? TIME_NEVER
               : saturating_sub(q->deadline_ns, saturating_add(q->run_ns, q->after_ns));
}

/* a runs before b. Equal requests keep the order in which they were submitted. */
static bool requests_before(enum request_policy policy, const struct request *a,
                            const struct request *b)
{
    if ((policy == REQ_PRIORITY || policy == REQ_LAXITY) && a->class != b->class)
        return a->class < b->class;
    if (policy == REQ_EDF && a->deadline_ns != b->deadline_ns)
        return a->deadline_ns < b->deadline_ns;
    if (policy == REQ_LAXITY && requests_latest_start(a) != requests_latest_start(b))
        return requests_latest_start(a) < requests_latest_start(b);
    return a->arrival_ns < b->arrival_ns;
}

int cede_requests_new(const struct requests_params *p, struct requests **out)
{
    *out = NULL;
    if (!p->devices || !p->capacity || p->capacity == SLOT_NONE || !p->k ||
        (unsigned)p->policy >= REQ_POLICIES)
        return -EINVAL;
    struct requests *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->p = *p;
    r->devices = calloc(p->devices, sizeof(*r->devices));
    r->nodes = calloc(p->capacity, sizeof(*r->nodes));
    if (!r->devices || !r->nodes) {
        cede_requests_free(r);
        return -ENOMEM;
    }
    for (uint32_t d = 0; d < p->devices; d++)
        r->devices[d].first = SLOT_NONE;
    for (uint32_t i = 0; i < p->capacity; i++)
        r->nodes[i].next = i + 1 < p->capacity ? i + 1 : SLOT_NONE;
    *out = r;
    return 0;
}

void cede_requests_free(struct requests *r)
{
    if (!r)
        return;
    free(r->devices);
    free(r->nodes);
    free(r);
}

uint64_t cede_requests_backlog_ns(const struct requests *r, uint32_t device, uint64_t now_ns)
{
    if (device >= r->p.devices)
        return 0;
    const struct device *d = &r->devices[device];
    return saturating_add(d->queued_ns, d->running ? saturating_sub(d->end_ns, now_ns) : 0);
}

static uint32_t requests_place(const struct requests *r, const struct request *q, uint64_t now_ns)
{
    uint32_t least = 0;
    for (uint32_t d = 1; d < r->p.devices; d++) {
        if (cede_requests_backlog_ns(r, d, now_ns) < cede_requests_backlog_ns(r, least, now_ns))
            least = d;
    }
    if (q->preferred != SLOT_NONE &&
        cede_requests_backlog_ns(r, q->preferred, now_ns) <=
            saturating_add(cede_requests_backlog_ns(r, least, now_ns), r->p.prefer_within_ns))
        return q->preferred;
    return least;
}

void cede_requests_plan(struct requests_plan *p, uint64_t t_ns)
{
    *p = (struct requests_plan){
        .t_ns = t_ns, .end_ns = t_ns, .due_ns = TIME_NEVER, .slack_ns = TIME_NEVER};
}

uint64_t cede_requests_plan_slack(const struct requests_plan *p)
{
    if (p->due_ns == TIME_NEVER)
        return p->slack_ns;
    uint64_t slack = saturating_sub(p->due_ns, p->end_ns);
    return slack < p->slack_ns ? slack : p->slack_ns;
}

bool cede_requests_plan_step(struct requests_plan *p, const struct request *q)
{
    uint64_t longer = saturating_add(p->end_ns, q->each_ns);
    if (p->n && p->n < p->max && q->kind == p->kind && longer <= p->due_ns) {
        p->n++;
        p->end_ns = longer;
    } else {
        p->slack_ns = cede_requests_plan_slack(p);
        p->t_ns = p->end_ns;
        p->end_ns = saturating_add(p->t_ns, q->run_ns);
        p->due_ns = TIME_NEVER;
        p->kind = q->kind;
        p->n = 1;
        p->max = q->batch_max;
    }
    bool met = p->end_ns <= q->deadline_ns;
    if (met && q->deadline_ns < p->due_ns)
        p->due_ns = q->deadline_ns;
    return met;
}

/* REQ_QUEUED, or which request would be late, by the estimates. An admitted request stays on time:
 * a later one that would make it late is refused, and one that another device takes no longer runs
 * before it. */
static enum request_answer requests_fits(const struct requests *r, uint32_t device,
                                         const struct request *q, uint64_t now_ns)
{
    const struct device *d = &r->devices[device];
    uint64_t t = d->running && d->end_ns > now_ns ? d->end_ns : now_ns;
    struct requests_plan without, with;
    bool in = false;
    cede_requests_plan(&without, t);
    cede_requests_plan(&with, t);
    for (uint32_t i = d->first; i != SLOT_NONE; i = r->nodes[i].next) {
        const struct request *w = &r->nodes[i].q;
        if (!in && requests_before(r->p.policy, q, w)) {
            in = true;
            if (!cede_requests_plan_step(&with, q))
                return REQ_BACKLOG;
        }
        bool met = cede_requests_plan_step(&without, w);
        if (!cede_requests_plan_step(&with, w) && met)
            return REQ_HARMS_OTHERS;
    }
    return !in && !cede_requests_plan_step(&with, q) ? REQ_BACKLOG : REQ_QUEUED;
}

static enum request_answer requests_check(const struct requests *r, const struct request *q,
                                          uint64_t now_ns, uint32_t *device)
{
    if ((unsigned)q->class >= CLASS_COUNT || q->run_ns > UINT64_MAX / 4 || q->each_ns > q->run_ns ||
        (q->preferred != SLOT_NONE && q->preferred >= r->p.devices))
        return REQ_INVALID;
    if (r->unused == SLOT_NONE)
        return REQ_FULL;
    *device = requests_place(r, q, now_ns);
    if (!r->p.admit)
        return REQ_QUEUED;
    if (saturating_add(now_ns, q->run_ns) > q->deadline_ns)
        return REQ_HOPELESS;
    enum request_answer a = requests_fits(r, *device, q, now_ns);
    for (uint32_t d = 0; a != REQ_QUEUED && d < r->p.devices; d++) {
        if (requests_fits(r, d, q, now_ns) == REQ_QUEUED) {
            *device = d;
            return REQ_QUEUED;
        }
    }
    return a;
}

struct request_verdict cede_requests_submit(struct requests *r, const struct request *q,
                                            uint64_t now_ns)
{
    struct request_verdict v = {.device = SLOT_NONE};
    uint32_t device = 0;
    v.urgent = requests_latest_start(q) < saturating_add(now_ns, r->p.urgent_ns);
    v.answer = requests_check(r, q, now_ns, &device);
    if (v.answer != REQ_QUEUED)
        return v;
    struct device *d = &r->devices[device];
    uint32_t n = r->unused, *at = &d->first;
    r->unused = r->nodes[n].next;
    if (d->first != SLOT_NONE && !requests_before(r->p.policy, q, &r->nodes[d->last].q))
        at = &r->nodes[d->last].next;
    while (*at != SLOT_NONE && !requests_before(r->p.policy, q, &r->nodes[*at].q))
        at = &r->nodes[*at].next;
    r->nodes[n] = (struct node){.q = *q, .next = *at};
    if (*at == SLOT_NONE)
        d->last = n;
    *at = n;
    d->queued_ns = saturating_add(d->queued_ns, q->run_ns);
    v.device = device;
    if (!d->running && d->first == n)
        v.answer = REQ_RUN;
    return v;
}

/* Up by 1/16 of the difference, down by 1/2048: about the 99th percentile of the lateness. */
void cede_requests_late(struct requests *r, uint64_t late_ns)
{
    if (late_ns > r->worst_ns)
        r->worst_ns += (late_ns - r->worst_ns + 15) / 16;
    else
        r->worst_ns -= r->worst_ns / 2048;
}

/* With k > 1 EDF passes over a head that is late whatever happens, for a request that can still
 * meet its deadline; but only while the head is then at most half as late as the worst lateness
 * seen. Fewer requests are late so, and those passed over stay out of the tail of latencies;
 * without the bound they make up the tail. */
uint32_t *cede_requests_choose(struct requests *r, struct device *d, uint64_t now_ns)
{
    uint32_t *best = &d->first, seen = 0;
    if (r->p.policy == REQ_EDF) {
        const struct request *head = &r->nodes[*best].q;
        for (uint32_t *at = &d->first; *at != SLOT_NONE && seen++ < r->p.k;
             at = &r->nodes[*at].next) {
            const struct request *q = &r->nodes[*at].q;
            uint64_t end = saturating_add(now_ns, q->run_ns);
            if (end > q->deadline_ns)
                continue;
            return saturating_sub(saturating_add(end, head->run_ns), head->deadline_ns) <=
                           r->worst_ns / 2
                       ? at
                       : best;
        }
    }
    if (r->p.policy == REQ_LAXITY) {
        uint64_t least = saturating_add(now_ns, r->p.urgent_ns);
        for (uint32_t *at = &d->first; *at != SLOT_NONE; at = &r->nodes[*at].next) {
            if (requests_latest_start(&r->nodes[*at].q) < least) {
                least = requests_latest_start(&r->nodes[*at].q);
                best = at;
            }
        }
    }
    return best;
}

struct request cede_requests_take(struct requests *r, struct device *d, uint32_t *at)
{
    uint32_t n = *at;
    struct node *node = &r->nodes[n];
    if (d->last == n && at != &d->first) /* at is the `next` of the one before */
        d->last = (uint32_t)((struct node *)((char *)at - offsetof(struct node, next)) - r->nodes);
    *at = node->next;
    d->queued_ns = saturating_sub(d->queued_ns, node->q.run_ns);
    node->next = r->unused;
    r->unused = n;
    return node->q;
}

struct device *cede_requests_source(struct requests *r, struct device *d)
{
    struct device *from = d;
    for (uint32_t i = 0; d->first == SLOT_NONE && i < r->p.devices; i++) {
        struct device *o = &r->devices[i];
        if (o->first != SLOT_NONE && (from == d || o->queued_ns > from->queued_ns))
            from = o;
    }
    return from->first == SLOT_NONE ? NULL : from;
}

int cede_requests_done(struct requests *r, uint32_t device)
{
    if (device >= r->p.devices)
        return -EINVAL;
    if (!r->devices[device].running)
        return -ENOENT;
    r->devices[device].running = false;
    return 0;
}

int cede_requests_cancel(struct requests *r, uint64_t id)
{
    for (uint32_t i = 0; i < r->p.devices; i++) {
        struct device *d = &r->devices[i];
        for (uint32_t *at = &d->first; *at != SLOT_NONE; at = &r->nodes[*at].next) {
            if (r->nodes[*at].q.id == id) {
                cede_requests_take(r, d, at);
                return 0;
            }
        }
    }
    return -ENOENT;
}
