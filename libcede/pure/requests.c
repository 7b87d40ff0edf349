/* See requests.h. Each device's queue is a list in the policy's order; CEDE_QUEUE_LAXITY and
 * CEDE_QUEUE_EDF with k > 1 make their exceptions from it when a request is taken. */
#include "libcede/pure/requests.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "libcede/pure/request_plan.h"
#include "libcede/pure/times.h"

#define BATCH_MAX ((uint32_t)CEDE_QUEUE_BATCH_MAX)
#define LOOK      256U /* requests of a queue that a batch is checked against */
#define KINDS     16U  /* kinds tried on one free device */

enum request_state { REQUEST_FREE, REQUEST_WAITS, REQUEST_RUNS };

/* A node's number is the lower half of its requests' ids. */
struct node {
    struct request q; /* first; free: the id that its next request gets */
    enum request_state state;
    struct device *device;  /* it waits there */
    uint64_t mark;          /* that of struct requests: it is in the batch considered now */
    TAILQ_ENTRY(node) link; /* in that queue, in a batch, or among the free nodes */
};
TAILQ_HEAD(node_list, node);

/* A batch that runs on a device. */
struct slot {
    struct node_list batch; /* empty: the slot is free */
    uint64_t end_ns;        /* by the estimates */
};

struct device {
    struct node_list queue; /* in the policy's order */
    struct slot *slots;     /* c.batches */
    uint32_t running;       /* batches */
    uint32_t lanes;         /* batches at a time to plan with, 1 to c.batches */
    uint64_t queued_ns;     /* estimates of the waiting requests, summed up */
};

struct requests {
    struct cede_queue_config c;
    uint64_t prefer_ns, urgent_ns;
    struct device *devices;
    struct slot *slots; /* of all devices */
    struct node *nodes; /* `capacity` for those that wait, and a batch for each slot */
    uint32_t nnodes, waiting;
    struct node_list unused;
    uint64_t mark;     /* of the batch considered last */
    bool draining;     /* batches do not wait to be filled */
    uint64_t worst_ns; /* about the 99th percentile of the lateness */
};

int cede_requests_new(const struct cede_queue_config *c, uint64_t prefer_ns, struct requests **out)
{
    *out = NULL;
    struct requests *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->c = *c;
    r->prefer_ns = prefer_ns;
    r->urgent_ns = c->urgent_us * NSEC_PER_USEC;
    r->nnodes = c->capacity + c->devices * c->batches * BATCH_MAX;
    r->devices = calloc(c->devices, sizeof(*r->devices));
    r->slots = calloc((size_t)c->devices * c->batches, sizeof(*r->slots));
    r->nodes = calloc(r->nnodes, sizeof(*r->nodes));
    if (!r->devices || !r->slots || !r->nodes) {
        cede_requests_free(r);
        return -ENOMEM;
    }
    for (uint32_t d = 0; d < c->devices; d++) {
        r->devices[d].slots = &r->slots[d * c->batches];
        r->devices[d].lanes = 1;
        TAILQ_INIT(&r->devices[d].queue);
    }
    for (uint32_t i = 0; i < c->devices * c->batches; i++)
        TAILQ_INIT(&r->slots[i].batch);
    TAILQ_INIT(&r->unused);
    for (uint32_t i = 0; i < r->nnodes; i++) {
        r->nodes[i].q.id = 1ULL << 32 | i;
        TAILQ_INSERT_TAIL(&r->unused, &r->nodes[i], link);
    }
    *out = r;
    return 0;
}

void cede_requests_free(struct requests *r)
{
    if (!r)
        return;
    free(r->devices);
    free(r->slots);
    free(r->nodes);
    free(r);
}

uint32_t cede_requests_slots(const struct requests *r)
{
    return r->nnodes;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* The request that runs next, of a queue that is not empty.
 *
 * With k > 1 EDF passes over a head that is late whatever happens, for a request that can still
 * meet its deadline; but only while the head is then at most half as late as the worst lateness
 * seen. Fewer requests are late so, and those passed over stay out of the tail of latencies;
 * without the bound they make up the tail. */
static struct node *requests_choose(const struct requests *r, const struct device *d,
                                    uint64_t now_ns)
{
    struct node *best = TAILQ_FIRST(&d->queue);
    uint32_t seen = 0;
    uint64_t least = saturating_add(now_ns, r->urgent_ns);
    const struct request *head = &best->q;
    if (r->c.policy != CEDE_QUEUE_EDF && r->c.policy != CEDE_QUEUE_LAXITY)
        return best;
    for (struct node *at = best; at; at = TAILQ_NEXT(at, link)) {
        const struct request *q = &at->q;
        uint64_t end = saturating_add(now_ns, q->run_ns);
        if (r->c.policy == CEDE_QUEUE_LAXITY) {
            best = request_latest_start(q) < least ? at : best;
            least = min_u64(request_latest_start(q), least);
        } else if (seen++ == r->c.k) {
            break;
        } else if (end <= request_end_by(q)) {
            uint64_t late = saturating_sub(saturating_add(end, head->run_ns), head->deadline_ns);
            return late <= r->worst_ns / 2 ? at : best;
        }
    }
    return best;
}

/* A plan for d, of at least min_lanes; those without a running batch are free now. */
static void requests_plan(struct request_plan *p, const struct requests *r, const struct device *d,
                          uint32_t min_lanes, uint64_t now_ns)
{
    uint32_t left = d->running;
    p->first = NULL;
    p->n = p->lane = p->lanes = 0;
    p->due_ns = p->slack_ns = TIME_NEVER;
    for (uint32_t i = 0; left && i < r->c.batches; i++) {
        if (TAILQ_EMPTY(&d->slots[i].batch))
            continue;
        p->end_ns[p->lanes++] = max_u64(now_ns, d->slots[i].end_ns);
        left--;
    }
    while (p->lanes < d->lanes || p->lanes < min_lanes)
        p->end_ns[p->lanes++] = now_ns;
}

/* ---- admission and placement ----------------------------------------------------------------- */

uint64_t cede_requests_backlog_ns(const struct requests *r, uint32_t device, uint64_t now_ns)
{
    const struct device *d = &r->devices[device];
    uint64_t left = d->queued_ns;
    for (uint32_t i = 0; d->running && i < r->c.batches; i++) {
        if (!TAILQ_EMPTY(&d->slots[i].batch))
            left = saturating_add(left, saturating_sub(d->slots[i].end_ns, now_ns));
    }
    return left / d->lanes;
}

static uint32_t requests_place(const struct requests *r, const struct request *q, uint64_t now_ns)
{
    uint32_t least = 0;
    for (uint32_t d = 1; d < r->c.devices; d++) {
        if (cede_requests_backlog_ns(r, d, now_ns) < cede_requests_backlog_ns(r, least, now_ns))
            least = d;
    }
    if (q->preferred != SLOT_NONE &&
        cede_requests_backlog_ns(r, q->preferred, now_ns) <=
            saturating_add(cede_requests_backlog_ns(r, least, now_ns), r->prefer_ns))
        return q->preferred;
    return least;
}

/* CEDE_QUEUE_WAITS, or which request would be late, by the estimates. An admitted request stays on
 * time: a later one that would make it late is refused, and one that another device takes no longer
 * runs before it. */
static enum cede_queue_answer requests_fits(const struct requests *r, uint32_t device,
                                            const struct request *q, uint64_t now_ns)
{
    const struct device *d = &r->devices[device];
    struct request_plan without, with;
    bool in = false;
    requests_plan(&without, r, d, 1, now_ns);
    requests_plan(&with, r, d, 1, now_ns);
    for (const struct node *n = TAILQ_FIRST(&d->queue); n; n = TAILQ_NEXT(n, link)) {
        const struct request *w = &n->q;
        if (!in && request_before(r->c.policy, q, w)) {
            in = true;
            if (!cede_request_plan_step(&with, q))
                return CEDE_QUEUE_BEHIND;
        }
        bool met = cede_request_plan_step(&without, w);
        if (!cede_request_plan_step(&with, w) && met)
            return CEDE_QUEUE_OTHERS;
    }
    return !in && !cede_request_plan_step(&with, q) ? CEDE_QUEUE_BEHIND : CEDE_QUEUE_WAITS;
}

static enum cede_queue_answer requests_check(const struct requests *r, const struct request *q,
                                             uint64_t now_ns, uint32_t *device)
{
    if (r->waiting >= r->c.capacity) /* more where a batch came back */
        return CEDE_QUEUE_FULL;
    *device = requests_place(r, q, now_ns);
    if (!r->c.admit)
        return CEDE_QUEUE_WAITS;
    /* On an idle device it costs nobody anything, and shows whether its estimate is still true. */
    const struct device *at = &r->devices[*device];
    if (saturating_add(now_ns, q->run_ns) > request_end_by(q))
        return now_ns < q->deadline_ns && !at->running && TAILQ_EMPTY(&at->queue)
                   ? CEDE_QUEUE_WAITS
                   : CEDE_QUEUE_ALONE;
    enum cede_queue_answer a = requests_fits(r, *device, q, now_ns);
    for (uint32_t d = 0; a != CEDE_QUEUE_WAITS && d < r->c.devices; d++) {
        if (requests_fits(r, d, q, now_ns) == CEDE_QUEUE_WAITS) {
            *device = d;
            return CEDE_QUEUE_WAITS;
        }
    }
    return a;
}

/* Puts a request into its device's queue, before that node; NULL: at the end. */
static void requests_link(struct requests *r, struct node *n, struct node *before)
{
    n->state = REQUEST_WAITS;
    if (before)
        TAILQ_INSERT_BEFORE(before, n, link);
    else
        TAILQ_INSERT_TAIL(&n->device->queue, n, link);
    n->device->queued_ns = saturating_add(n->device->queued_ns, n->q.run_ns);
    r->waiting++;
}

int cede_requests_submit(struct requests *r, const struct request *q, uint64_t now_ns,
                         struct cede_queue_ticket *out)
{
    if ((unsigned)q->class >= CLASS_COUNT || q->run_ns > UINT64_MAX / 4 || q->each_ns > q->run_ns ||
        (q->preferred != SLOT_NONE && q->preferred >= r->c.devices))
        return -EINVAL;
    *out = (struct cede_queue_ticket){.device = CEDE_ANY_DEVICE,
                                      .urgent = request_latest_start(q) <
                                                saturating_add(now_ns, r->urgent_ns)};
    uint32_t device = 0;
    out->answer = requests_check(r, q, now_ns, &device);
    if (out->answer != CEDE_QUEUE_WAITS)
        return -EBUSY;
    struct device *d = &r->devices[device];
    struct node *n = TAILQ_FIRST(&r->unused);
    TAILQ_REMOVE(&r->unused, n, link);
    out->id = n->q.id;
    out->device = (int)device;
    n->q = *q;
    n->q.id = out->id;
    n->device = d;
    struct node *after = TAILQ_LAST(&d->queue, node_list);
    if (after && request_before(r->c.policy, q, &after->q)) {
        after = TAILQ_FIRST(&d->queue);
        while (!request_before(r->c.policy, q, &after->q))
            after = TAILQ_NEXT(after, link);
    } else {
        after = NULL;
    }
    requests_link(r, n, after);
    if (d->running < d->lanes && TAILQ_FIRST(&d->queue) == n)
        out->answer = CEDE_QUEUE_RUNS;
    return 0;
}

/* ---- leaving a queue ------------------------------------------------------------------------- */

static void requests_unlink(struct requests *r, struct node *n)
{
    TAILQ_REMOVE(&n->device->queue, n, link);
    n->device->queued_ns = saturating_sub(n->device->queued_ns, n->q.run_ns);
    r->waiting--;
}

static struct request requests_forget(struct requests *r, struct node *n)
{
    struct request q = n->q;
    n->q.id += 1ULL << 32;
    n->state = REQUEST_FREE;
    TAILQ_INSERT_HEAD(&r->unused, n, link);
    return q;
}

int cede_requests_cancel(struct requests *r, uint64_t id)
{
    uint32_t i = (uint32_t)id;
    if (i >= r->nnodes || r->nodes[i].q.id != id || r->nodes[i].state == REQUEST_FREE)
        return -ENOENT;
    if (r->nodes[i].state == REQUEST_RUNS)
        return -EBUSY;
    requests_unlink(r, &r->nodes[i]);
    requests_forget(r, &r->nodes[i]);
    return 0;
}

bool cede_requests_reclaim(struct requests *r, struct request *out)
{
    for (uint32_t d = 0; d < r->c.devices; d++) {
        struct node *n = TAILQ_FIRST(&r->devices[d].queue);
        if (!n)
            continue;
        requests_unlink(r, n);
        *out = requests_forget(r, n);
        return true;
    }
    return false;
}

bool cede_requests_end(struct requests *r, uint32_t slot, struct request *out)
{
    struct slot *s = &r->slots[slot];
    struct node *n = TAILQ_FIRST(&s->batch);
    if (!n)
        return false;
    TAILQ_REMOVE(&s->batch, n, link);
    *out = requests_forget(r, n);
    /* Up by 1/16 of the difference, down by 1/2048: about the 99th percentile of the lateness. */
    uint64_t late_ns = saturating_sub(s->end_ns, out->deadline_ns);
    if (late_ns > r->worst_ns)
        r->worst_ns += (late_ns - r->worst_ns + 15) / 16;
    else
        r->worst_ns -= r->worst_ns / 2048;
    r->devices[slot / r->c.batches].running -= TAILQ_EMPTY(&s->batch);
    return true;
}

void cede_requests_put_back(struct requests *r, uint32_t slot)
{
    struct slot *s = &r->slots[slot];
    struct node *n;
    r->devices[slot / r->c.batches].running -= !TAILQ_EMPTY(&s->batch);
    while ((n = TAILQ_LAST(&s->batch, node_list))) {
        struct node *before = TAILQ_FIRST(&n->device->queue);
        while (before && request_before(r->c.policy, &before->q, &n->q))
            before = TAILQ_NEXT(before, link);
        TAILQ_REMOVE(&s->batch, n, link);
        requests_link(r, n, before);
    }
}

void cede_requests_drain(struct requests *r)
{
    r->draining = true;
}

void cede_requests_no_room(struct requests *r, uint32_t device)
{
    struct device *d = &r->devices[device];
    d->lanes = d->running > 1 ? d->running : 1;
}

/* ---- batches: the policy's order, and what runs together ------------------------------------- */

/* Waiting requests that could run together; the policy's choice is nodes[0]. */
struct party {
    const struct device *on, *from; /* that is to run them, and in whose queue they wait */
    uint32_t n, max;
    struct node *nodes[BATCH_MAX];
    const struct request *due[BATCH_MAX]; /* theirs, in order of deadline */
};

static void party_gather(struct party *p, struct node *first, uint32_t room)
{
    struct node *n = first;
    p->max = (uint32_t)clamp_u64(first->q.batch_max, 1, room);
    p->n = 0;
    do { /* from the policy's choice to the end, then those before it */
        if (request_same_kind(&n->q, &first->q))
            p->nodes[p->n++] = n;
        n = TAILQ_NEXT(n, link);
        n = n ? n : TAILQ_FIRST(&p->from->queue);
    } while (n != first && p->n < p->max);
    for (uint32_t i = 0; i < p->n; i++) {
        const struct request *w = &p->nodes[i]->q;
        uint32_t at = i;
        for (; at && p->due[at - 1]->deadline_ns > w->deadline_ns; at--)
            p->due[at] = p->due[at - 1];
        p->due[at] = w;
    }
}

/* Marks n of the party in order of deadline, from the first on, and the policy's choice instead of
 * the last if it is not among them. Returns n. */
static uint32_t party_mark(struct requests *r, const struct party *p, uint32_t first, uint32_t n)
{
    struct node *last = p->nodes[0];
    r->mark++;
    for (uint32_t i = 0; i < n; i++) {
        last = (struct node *)p->due[(first + i) % p->n];
        last->mark = r->mark;
    }
    if (p->nodes[0]->mark != r->mark)
        last->mark = 0;
    p->nodes[0]->mark = r->mark;
    return n;
}

/* When the marked requests, n of them, end if they start now. */
static uint64_t party_end_ns(const struct party *p, uint32_t n, uint64_t now_ns)
{
    const struct request *q = &p->nodes[0]->q;
    return saturating_add(now_ns, cede_batch_run_ns(q->run_ns, q->each_ns, n));
}

/* Running the marked requests, n of them, now makes another late that meets its deadline in queue
 * order. */
static bool party_harms(const struct requests *r, const struct party *p, uint32_t n,
                        uint64_t now_ns)
{
    struct request_plan before, after;
    uint32_t look = LOOK;
    requests_plan(&before, r, p->on, p->on->running + 1, now_ns);
    requests_plan(&after, r, p->on, p->on->running + 1, now_ns);
    after.end_ns[p->on->running] = party_end_ns(p, n, now_ns);
    for (const struct node *w = TAILQ_FIRST(&p->from->queue); w && look--;
         w = TAILQ_NEXT(w, link)) {
        bool met = cede_request_plan_step(&before, &w->q);
        if (w->mark != r->mark && !cede_request_plan_step(&after, &w->q) && met)
            return true;
    }
    return false;
}

/* *late: requests that miss their deadline in queue order. */
static uint64_t party_slack_ns(const struct requests *r, const struct party *p, uint64_t now_ns,
                               uint32_t *late)
{
    struct request_plan plan;
    uint32_t look = LOOK;
    *late = 0;
    requests_plan(&plan, r, p->on, p->on->running + 1, now_ns);
    for (const struct node *n = TAILQ_FIRST(&p->from->queue); n && look--; n = TAILQ_NEXT(n, link))
        *late += !cede_request_plan_step(&plan, &n->q);
    return cede_request_plan_slack(&plan);
}

/* More requests wait than fit into a batch, and some will be late. The whole party then runs: a
 * smaller batch would meet its first deadline, but as requests get to the head when their slack is
 * gone, one small batch would follow the other, and keep up a backlog that full ones work off. */
static bool party_overload(const struct requests *r, const struct party *p, uint64_t now_ns)
{
    uint32_t late = 0;
    if (p->max > 1 && p->n == p->max)
        party_slack_ns(r, p, now_ns, &late);
    return late > 0;
}

/* How many of the first requests run together in the plan of the queue, which harms none. */
static uint32_t party_in_order(const struct requests *r, const struct party *p, uint64_t now_ns)
{
    struct request_plan plan;
    uint32_t n = 0;
    requests_plan(&plan, r, p->on, p->on->running + 1, now_ns);
    for (const struct node *w = p->nodes[0]; w && n < p->n && p->nodes[n] == w && plan.n == n;
         w = TAILQ_NEXT(w, link)) {
        cede_request_plan_step(&plan, &w->q);
        n += plan.n == n + 1;
    }
    return n;
}

/* How many of the party start now, and marks them; 0: none, and until when it may wait. others:
 * kinds that come before it are held, so it may overtake them only if that makes none of them
 * late. */
static uint32_t party_decide(struct requests *r, const struct party *p, bool others,
                             uint64_t now_ns, uint64_t *until_ns)
{
    const struct request *q = &p->nodes[0]->q;
    struct batch_params b = {.max = p->max,
                             .run_ns = q->run_ns + request_margin_ns(q, q->run_ns),
                             .each_ns = q->each_ns + request_margin_ns(q, q->each_ns),
                             .wait_ns = r->draining ? 0 : q->wait_ns};
    *until_ns = TIME_NEVER;
    struct batch_choice c = cede_batch_decide(&b, p->due, p->n, now_ns);
    if (c.n == 0) {
        uint32_t late;
        uint64_t slack = saturating_sub(party_slack_ns(r, p, now_ns, &late), r->urgent_ns);
        *until_ns = min_u64(saturating_add(now_ns, slack), c.wake_ns);
        if (*until_ns > now_ns)
            return 0;
        b.max = p->n; /* full: it starts */
        c = cede_batch_decide(&b, p->due, p->n, now_ns);
    }
    if (!others && party_overload(r, p, now_ns))
        return party_mark(r, p, 0, p->n);
    /* The largest batch that makes no other request late. The policy's choice alone runs whatever
     * the effect, unless it overtakes. */
    for (uint32_t n = c.n; n; n--) {
        party_mark(r, p, c.first, n);
        if ((c.n == 1 && !others) || !party_harms(r, p, n, now_ns))
            return n;
    }
    if (others)
        return 0;
    if (p->nodes[0] != TAILQ_FIRST(&p->from->queue))
        return party_mark(r, p, c.first, c.n);
    uint32_t n = party_in_order(r, p, now_ns);
    r->mark++;
    for (uint32_t i = 0; i < n; i++)
        p->nodes[i]->mark = r->mark;
    return n;
}

/* Starts the marked requests, n of them, in that slot. */
static void party_start(struct requests *r, struct device *d, struct slot *s, const struct party *p,
                        uint32_t n, uint64_t now_ns, struct request *out)
{
    s->end_ns = party_end_ns(p, n, now_ns);
    d->running++;
    d->lanes = d->running > d->lanes ? d->running : d->lanes;
    for (uint32_t k = 0; k < p->n; k++) {
        struct node *node = p->nodes[k];
        if (node->mark != r->mark)
            continue;
        requests_unlink(r, node);
        node->state = REQUEST_RUNS;
        TAILQ_INSERT_TAIL(&s->batch, node, link);
        *out++ = node->q;
    }
}

/* The device from whose queue a free device takes: itself, or the one with the longest queue. NULL:
 * all are empty. */
static struct device *requests_source(struct requests *r, struct device *d)
{
    struct device *from = d;
    for (uint32_t i = 0; TAILQ_EMPTY(&d->queue) && i < r->c.devices; i++) {
        struct device *o = &r->devices[i];
        if (!TAILQ_EMPTY(&o->queue) && (from == d || o->queued_ns > from->queued_ns))
            from = o;
    }
    return TAILQ_EMPTY(&from->queue) ? NULL : from;
}

/* The first request in a queue that is of no kind held; NULL. */
static struct node *requests_other_kind(const struct device *from, struct node *const *held,
                                        uint32_t nheld)
{
    for (struct node *n = TAILQ_FIRST(&from->queue); n; n = TAILQ_NEXT(n, link)) {
        uint32_t k = 0;
        while (k < nheld && !request_same_kind(&n->q, &held[k]->q))
            k++;
        if (k == nheld)
            return n;
    }
    return NULL;
}

int cede_requests_next_batch(struct requests *r, uint32_t device, uint64_t now_ns,
                             struct request *out, uint32_t *n, uint32_t *slot, uint64_t *wake_ns)
{
    uint32_t nheld = 0, room = *n < BATCH_MAX ? *n : BATCH_MAX;
    struct node *held[KINDS];
    struct party p;
    *n = 0;
    *wake_ns = TIME_NEVER;
    if (device >= r->c.devices || !room)
        return -EINVAL;
    struct device *d = &r->devices[device], *from = requests_source(r, d);
    if (d->running == r->c.batches)
        return -EBUSY;
    for (*slot = device * r->c.batches; !TAILQ_EMPTY(&r->slots[*slot].batch);)
        ++*slot;
    p.on = d;
    p.from = from;
    struct node *first = from ? requests_choose(r, from, now_ns) : NULL;
    while (first && nheld < KINDS) {
        uint64_t until;
        party_gather(&p, first, room);
        *n = party_decide(r, &p, nheld > 0, now_ns, &until);
        if (*n) {
            party_start(r, d, &r->slots[*slot], &p, *n, now_ns, out);
            return 0;
        }
        *wake_ns = min_u64(until, *wake_ns);
        held[nheld++] = first;
        first = requests_other_kind(from, held, nheld);
    }
    return -EAGAIN;
}
