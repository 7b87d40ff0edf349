/* Batches: combines the policy's order (requests.c) with the batcher's decision (batcher.h). */
#include <errno.h>

#include "libcede/pure/batcher.h"
#include "libcede/pure/requests_impl.h"

#define LOOK  256U /* requests of a queue that a batch is checked against */
#define KINDS 16U  /* kinds tried on one free device */

/* Waiting requests that could run together; the policy's choice is nodes[0]. */
struct party {
    uint32_t n, max, nodes[REQUESTS_BATCH_MAX];
    struct batch_request reqs[REQUESTS_BATCH_MAX]; /* in order of deadline */
    uint32_t order[REQUESTS_BATCH_MAX];            /* their places in nodes */
    bool taken[REQUESTS_BATCH_MAX];
};

static void party_gather(const struct requests *r, const struct device *from, uint32_t first,
                         uint32_t room, struct party *p)
{
    const struct request *q = &r->nodes[first].q;
    uint32_t max = q->batch_max < 1 ? 1 : q->batch_max;
    p->max = max = max > room ? room : max;
    p->n = 0;
    p->nodes[p->n++] = first;
    for (uint32_t i = r->nodes[first].next; i != SLOT_NONE && p->n < max; i = r->nodes[i].next) {
        if (r->nodes[i].q.kind == q->kind)
            p->nodes[p->n++] = i;
    }
    for (uint32_t i = from->first; i != first && p->n < max; i = r->nodes[i].next) {
        if (r->nodes[i].q.kind == q->kind)
            p->nodes[p->n++] = i;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        const struct request *w = &r->nodes[p->nodes[i]].q;
        uint32_t at = i;
        for (; at && p->reqs[at - 1].deadline_ns > w->deadline_ns; at--) {
            p->reqs[at] = p->reqs[at - 1];
            p->order[at] = p->order[at - 1];
        }
        p->reqs[at] = (struct batch_request){w->arrival_ns, w->deadline_ns};
        p->order[at] = i;
    }
}

/* Marks n of the party as taken, the policy's choice among them. */
static void party_mark(struct party *p, const uint32_t *pick, uint32_t n)
{
    for (uint32_t i = 0; i < p->n; i++)
        p->taken[i] = false;
    for (uint32_t i = 0; i < n; i++)
        p->taken[p->order[pick[i]]] = true;
    if (!p->taken[0])
        p->taken[p->order[pick[n - 1]]] = false;
    p->taken[0] = true;
}

static uint64_t party_run_ns(const struct request *q, uint32_t n)
{
    return saturating_add(q->run_ns, (n - 1) * q->each_ns);
}

/* Running the marked requests now makes another late that meets its deadline in queue order. */
static bool party_harms(const struct requests *r, const struct device *from, const struct party *p,
                        uint32_t n, uint64_t now_ns)
{
    struct requests_plan before, after;
    uint32_t left = n, look = LOOK;
    cede_requests_plan(&before, now_ns);
    cede_requests_plan(&after, saturating_add(now_ns, party_run_ns(&r->nodes[p->nodes[0]].q, n)));
    for (uint32_t i = from->first; i != SLOT_NONE && look--; i = r->nodes[i].next) {
        const struct request *q = &r->nodes[i].q;
        bool met = cede_requests_plan_step(&before, q), taken = false;
        for (uint32_t k = 0; left && k < p->n && !taken; k++)
            taken = p->taken[k] && p->nodes[k] == i;
        left -= taken;
        if (!taken && !cede_requests_plan_step(&after, q) && met)
            return true;
    }
    return false;
}

/* The size of the largest batch that makes no other request late; 0: there is none. */
static uint32_t party_harmless(const struct requests *r, const struct device *from, struct party *p,
                               const uint32_t *pick, uint32_t n, uint64_t now_ns)
{
    for (; n; n--) {
        party_mark(p, pick, n);
        if (!party_harms(r, from, p, n, now_ns))
            return n;
    }
    return 0;
}

static uint64_t party_slack_ns(const struct requests *r, const struct device *from, uint64_t now_ns)
{
    struct requests_plan p;
    uint32_t look = LOOK;
    cede_requests_plan(&p, now_ns);
    for (uint32_t i = from->first; i != SLOT_NONE && look--; i = r->nodes[i].next)
        cede_requests_plan_step(&p, &r->nodes[i].q);
    return cede_requests_plan_slack(&p);
}

/* How many of the first requests run together in the plan of the queue, which harms none. */
static uint32_t party_in_order(const struct requests *r, const struct party *p, uint64_t now_ns)
{
    struct requests_plan plan;
    uint32_t n = 0;
    cede_requests_plan(&plan, now_ns);
    for (uint32_t i = p->nodes[0]; i != SLOT_NONE && n < p->n && p->nodes[n] == i && plan.n == n;
         i = r->nodes[i].next) {
        cede_requests_plan_step(&plan, &r->nodes[i].q);
        n += plan.n == n + 1;
    }
    return n;
}

/* How many of the party start now; 0: none, and until when it may wait. others: kinds that come
 * before it are held, so it may overtake them only if that makes none of them late. */
static uint32_t party_decide(const struct requests *r, const struct device *from, struct party *p,
                             bool others, uint64_t now_ns, uint64_t *until_ns)
{
    const struct request *q = &r->nodes[p->nodes[0]].q;
    uint32_t pick[REQUESTS_BATCH_MAX];
    struct batch_params b = {.max = p->max,
                             .fixed_ns = q->run_ns - q->each_ns,
                             .each_ns = q->each_ns,
                             .wait_max_ns = q->wait_ns};
    *until_ns = TIME_NEVER;
    struct batch_choice c = cede_batch_decide(&b, p->reqs, p->n, now_ns, pick);
    if (c.n == 0) {
        uint64_t slack = saturating_sub(party_slack_ns(r, from, now_ns), r->p.urgent_ns);
        *until_ns =
            saturating_add(now_ns, slack) < c.wake_ns ? saturating_add(now_ns, slack) : c.wake_ns;
        if (*until_ns > now_ns)
            return 0;
        b.max = p->n; /* full: it starts */
        c = cede_batch_decide(&b, p->reqs, p->n, now_ns, pick);
    }
    if (c.n == 1 && !others) { /* the policy's choice alone, whatever the effect */
        party_mark(p, pick, 1);
        return 1;
    }
    uint32_t n = party_harmless(r, from, p, pick, c.n, now_ns);
    if (n || others)
        return n;
    if (p->nodes[0] == from->first) {
        n = party_in_order(r, p, now_ns);
        for (uint32_t i = 0; i < p->n; i++)
            p->taken[i] = i < n;
        return n;
    }
    party_mark(p, pick, c.n);
    return c.n;
}

static uint32_t party_take(struct requests *r, struct device *from, const struct party *p,
                           struct request *out)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < p->n; k++) {
        uint32_t *at = &from->first;
        if (!p->taken[k])
            continue;
        while (*at != p->nodes[k])
            at = &r->nodes[*at].next;
        out[n++] = cede_requests_take(r, from, at);
    }
    return n;
}

int cede_requests_next_batch(struct requests *r, uint32_t device, uint64_t now_ns,
                             struct request *out, uint32_t *n, uint64_t *wake_ns)
{
    uint64_t held[KINDS], until;
    uint32_t nheld = 0, room = *n < REQUESTS_BATCH_MAX ? *n : REQUESTS_BATCH_MAX;
    struct party p;
    *n = 0;
    *wake_ns = TIME_NEVER;
    if (device >= r->p.devices || !room)
        return -EINVAL;
    struct device *d = &r->devices[device], *from = cede_requests_source(r, d);
    if (d->running)
        return -EBUSY;
    if (!from)
        return -EAGAIN;
    for (uint32_t i = *cede_requests_choose(r, from, now_ns); i != SLOT_NONE;) {
        party_gather(r, from, i, room, &p);
        uint32_t size = party_decide(r, from, &p, nheld > 0, now_ns, &until);
        if (size) {
            d->running = true;
            d->end_ns = saturating_add(now_ns, party_run_ns(&r->nodes[p.nodes[0]].q, size));
            *n = party_take(r, from, &p, out);
            for (uint32_t k = 0; k < *n; k++)
                cede_requests_late(r, saturating_sub(d->end_ns, out[k].deadline_ns));
            return 0;
        }
        *wake_ns = until < *wake_ns ? until : *wake_ns;
        held[nheld++] = r->nodes[i].q.kind;
        bool again = true;
        for (i = from->first; nheld < KINDS && i != SLOT_NONE && again;) {
            again = false;
            for (uint32_t k = 0; k < nheld; k++)
                again |= r->nodes[i].q.kind == held[k];
            i = again ? r->nodes[i].next : i;
        }
        if (nheld == KINDS)
            break;
    }
    return -EAGAIN;
}
