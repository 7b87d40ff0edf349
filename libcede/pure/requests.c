/* See requests.h. Each device's queue is a list in the policy's order; CEDE_LAXITY and CEDE_EDF
 * with k > 1 make their exceptions from it when a request is taken. */
#include "libcede/pure/requests.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "libcede/pure/batcher.h"
#include "libcede/pure/times.h"

#define DEVICES_MAX  64U
#define CAPACITY_MAX (1U << 20)
#define BATCH_MAX    ((uint32_t)CEDE_QUEUE_BATCH_MAX)
#define LOOK         256U /* requests of a queue that a batch is checked against */
#define KINDS        16U  /* kinds tried on one free device */

_Static_assert((int)CEDE_BATCH == CLASS_BATCH, "same order");

enum request_state { REQUEST_FREE, REQUEST_WAITS, REQUEST_RUNS };

/* A node's number is the lower half of its requests' ids. */
struct node {
    struct request q; /* free: the id that its next request gets */
    enum request_state state;
    struct device *device;  /* it waits there */
    uint64_t mark;          /* that of struct requests: it is in the batch considered now */
    TAILQ_ENTRY(node) link; /* in that queue, in a batch, or among the free nodes */
};
TAILQ_HEAD(node_list, node);

struct device {
    struct node_list queue; /* in the policy's order */
    struct node_list batch; /* that runs; empty: the device is free */
    uint64_t end_ns;        /* of the running batch, by the estimates */
    uint64_t queued_ns;     /* estimates of the waiting requests, summed up */
};

struct requests {
    struct cede_queue_config c;
    uint64_t prefer_ns, urgent_ns;
    struct device *devices;
    struct node *nodes; /* `capacity` for those that wait, and a batch for each device */
    uint32_t nnodes, waiting;
    struct node_list unused;
    uint64_t mark;     /* of the batch considered last */
    uint64_t worst_ns; /* about the 99th percentile of the lateness */
};

int cede_requests_new(const struct cede_queue_config *c, uint64_t prefer_ns, struct requests **out)
{
    *out = NULL;
    if (c->devices < 1 || c->devices > DEVICES_MAX || c->capacity < 1 ||
        c->capacity > CAPACITY_MAX || c->k < 1 || (unsigned)c->policy > CEDE_LAXITY ||
        c->urgent_us >= FAR_US)
        return -EINVAL;
    struct requests *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->c = *c;
    r->prefer_ns = prefer_ns;
    r->urgent_ns = c->urgent_us * NSEC_PER_USEC;
    r->nnodes = c->capacity + c->devices * BATCH_MAX;
    r->devices = calloc(c->devices, sizeof(*r->devices));
    r->nodes = calloc(r->nnodes, sizeof(*r->nodes));
    if (!r->devices || !r->nodes) {
        cede_requests_free(r);
        return -ENOMEM;
    }
    for (uint32_t d = 0; d < c->devices; d++) {
        TAILQ_INIT(&r->devices[d].queue);
        TAILQ_INIT(&r->devices[d].batch);
    }
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
    free(r->nodes);
    free(r);
}

uint32_t cede_requests_places(const struct requests *r)
{
    return r->nnodes;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* The latest start that meets the deadline; the laxity is the time until then. */
static uint64_t requests_latest_start(const struct request *q)
{
    return q->deadline_ns == TIME_NEVER
               ? TIME_NEVER
               : saturating_sub(q->deadline_ns, saturating_add(q->run_ns, q->after_ns));
}

/* a runs before b. Equal requests keep the order in which they were submitted. */
static bool requests_before(enum cede_queue_policy policy, const struct request *a,
                            const struct request *b)
{
    if ((policy == CEDE_PRIORITY || policy == CEDE_LAXITY) && a->class != b->class)
        return a->class < b->class;
    if (policy == CEDE_EDF && a->deadline_ns != b->deadline_ns)
        return a->deadline_ns < b->deadline_ns;
    if (policy == CEDE_LAXITY && requests_latest_start(a) != requests_latest_start(b))
        return requests_latest_start(a) < requests_latest_start(b);
    return a->arrival_ns < b->arrival_ns;
}

static bool requests_same_kind(const struct request *a, const struct request *b)
{
    return a->model == b->model && a->shape == b->shape;
}

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
    if (r->c.policy != CEDE_EDF && r->c.policy != CEDE_LAXITY)
        return best;
    for (struct node *at = best; at; at = TAILQ_NEXT(at, link)) {
        const struct request *q = &at->q;
        uint64_t end = saturating_add(now_ns, q->run_ns);
        if (r->c.policy == CEDE_LAXITY) {
            best = requests_latest_start(q) < least ? at : best;
            least = min_u64(requests_latest_start(q), least);
        } else if (seen++ == r->c.k) {
            break;
        } else if (end <= q->deadline_ns) {
            uint64_t late = saturating_sub(saturating_add(end, head->run_ns), head->deadline_ns);
            return late <= r->worst_ns / 2 ? at : best;
        }
    }
    return best;
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* A walk through a queue: when each request would end if all ran in this order from a time on.
 * Neighbours of one kind share a batch while that makes none of them late. */
struct requests_plan {
    const struct request *first; /* of the current batch; NULL: there is none yet */
    uint32_t n;                  /* its size */
    uint64_t end_ns;             /* of the current batch */
    uint64_t due_ns;             /* earliest deadline that it meets */
    uint64_t slack_ns;           /* by which all may begin later without missing a deadline more */
};

static struct requests_plan requests_plan(uint64_t from_ns)
{
    return (struct requests_plan){.end_ns = from_ns, .due_ns = TIME_NEVER, .slack_ns = TIME_NEVER};
}

static uint64_t requests_plan_slack(const struct requests_plan *p)
{
    return p->due_ns == TIME_NEVER ? p->slack_ns
                                   : min_u64(p->slack_ns, saturating_sub(p->due_ns, p->end_ns));
}

/* Adds the next request. True: it meets its deadline, whatever is added later. */
static bool requests_plan_step(struct requests_plan *p, const struct request *q)
{
    uint64_t longer = saturating_add(p->end_ns, q->each_ns);
    if (p->first && p->n < p->first->batch_max && requests_same_kind(q, p->first) &&
        longer <= p->due_ns) {
        p->n++;
        p->end_ns = longer;
    } else {
        p->slack_ns = requests_plan_slack(p);
        p->end_ns = saturating_add(p->end_ns, q->run_ns);
        p->due_ns = TIME_NEVER;
        p->first = q;
        p->n = 1;
    }
    bool met = p->end_ns <= q->deadline_ns;
    if (met)
        p->due_ns = min_u64(p->due_ns, q->deadline_ns);
    return met;
}

/* ---- admission and placement ----------------------------------------------------------------- */

static uint64_t requests_free_ns(const struct device *d, uint64_t now_ns)
{
    return TAILQ_EMPTY(&d->batch) ? now_ns : max_u64(now_ns, d->end_ns);
}

uint64_t cede_requests_backlog_ns(const struct requests *r, uint32_t device, uint64_t now_ns)
{
    const struct device *d = &r->devices[device];
    return saturating_add(d->queued_ns, saturating_sub(requests_free_ns(d, now_ns), now_ns));
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
    struct requests_plan without = requests_plan(requests_free_ns(d, now_ns)), with = without;
    bool in = false;
    for (const struct node *n = TAILQ_FIRST(&d->queue); n; n = TAILQ_NEXT(n, link)) {
        const struct request *w = &n->q;
        if (!in && requests_before(r->c.policy, q, w)) {
            in = true;
            if (!requests_plan_step(&with, q))
                return CEDE_QUEUE_BEHIND;
        }
        bool met = requests_plan_step(&without, w);
        if (!requests_plan_step(&with, w) && met)
            return CEDE_QUEUE_OTHERS;
    }
    return !in && !requests_plan_step(&with, q) ? CEDE_QUEUE_BEHIND : CEDE_QUEUE_WAITS;
}

static enum cede_queue_answer requests_check(const struct requests *r, const struct request *q,
                                             uint64_t now_ns, uint32_t *device)
{
    if (r->waiting == r->c.capacity)
        return CEDE_QUEUE_FULL;
    *device = requests_place(r, q, now_ns);
    if (!r->c.admit)
        return CEDE_QUEUE_WAITS;
    if (saturating_add(now_ns, q->run_ns) > q->deadline_ns)
        return CEDE_QUEUE_ALONE;
    enum cede_queue_answer a = requests_fits(r, *device, q, now_ns);
    for (uint32_t d = 0; a != CEDE_QUEUE_WAITS && d < r->c.devices; d++) {
        if (requests_fits(r, d, q, now_ns) == CEDE_QUEUE_WAITS) {
            *device = d;
            return CEDE_QUEUE_WAITS;
        }
    }
    return a;
}

int cede_requests_submit(struct requests *r, const struct request *q, uint64_t now_ns,
                         struct cede_queue_ticket *out)
{
    if ((unsigned)q->class >= CLASS_COUNT || q->run_ns > UINT64_MAX / 4 || q->each_ns > q->run_ns ||
        (q->preferred != SLOT_NONE && q->preferred >= r->c.devices))
        return -EINVAL;
    *out = (struct cede_queue_ticket){.device = SLOT_NONE,
                                      .urgent = requests_latest_start(q) <
                                                saturating_add(now_ns, r->urgent_ns)};
    uint32_t device = 0;
    out->answer = requests_check(r, q, now_ns, &device);
    if (out->answer != CEDE_QUEUE_WAITS)
        return -EBUSY;
    struct device *d = &r->devices[device];
    struct node *n = TAILQ_FIRST(&r->unused), *after = TAILQ_LAST(&d->queue, node_list);
    TAILQ_REMOVE(&r->unused, n, link);
    out->id = n->q.id;
    out->device = device;
    n->q = *q;
    n->q.id = out->id;
    n->state = REQUEST_WAITS;
    n->device = d;
    if (!after || !requests_before(r->c.policy, q, &after->q)) {
        TAILQ_INSERT_TAIL(&d->queue, n, link);
    } else {
        after = TAILQ_FIRST(&d->queue);
        while (!requests_before(r->c.policy, q, &after->q))
            after = TAILQ_NEXT(after, link);
        TAILQ_INSERT_BEFORE(after, n, link);
    }
    d->queued_ns = saturating_add(d->queued_ns, q->run_ns);
    r->waiting++;
    if (TAILQ_EMPTY(&d->batch) && TAILQ_FIRST(&d->queue) == n)
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

bool cede_requests_end(struct requests *r, uint32_t device, struct request *out)
{
    struct node_list *batch = &r->devices[device].batch;
    struct node *n = TAILQ_FIRST(batch);
    if (!n)
        return false;
    TAILQ_REMOVE(batch, n, link);
    *out = requests_forget(r, n);
    return true;
}

/* ---- batches: combines the policy's order with the batcher's decision ------------------------ */

/* Waiting requests that could run together; the policy's choice is nodes[0]. */
struct party {
    uint32_t n, max;
    struct node *nodes[BATCH_MAX];
    struct batch_request reqs[BATCH_MAX]; /* in order of deadline */
    uint32_t order[BATCH_MAX];            /* their places in nodes */
};

static void party_gather(const struct device *from, struct node *first, uint32_t room,
                         struct party *p)
{
    struct node *n = first;
    p->max = (uint32_t)clamp_u64(first->q.batch_max, 1, room);
    p->n = 0;
    do { /* from the policy's choice to the end, then those before it */
        if (requests_same_kind(&n->q, &first->q))
            p->nodes[p->n++] = n;
        n = TAILQ_NEXT(n, link);
        n = n ? n : TAILQ_FIRST(&from->queue);
    } while (n != first && p->n < p->max);
    for (uint32_t i = 0; i < p->n; i++) {
        const struct request *w = &p->nodes[i]->q;
        uint32_t at = i;
        for (; at && p->reqs[at - 1].deadline_ns > w->deadline_ns; at--) {
            p->reqs[at] = p->reqs[at - 1];
            p->order[at] = p->order[at - 1];
        }
        p->reqs[at] = (struct batch_request){w->arrival_ns, w->deadline_ns};
        p->order[at] = i;
    }
}

/* Marks n of the party, the policy's choice among them. */
static void party_mark(struct requests *r, const struct party *p, const uint32_t *pick, uint32_t n)
{
    r->mark++;
    for (uint32_t i = 0; i < n; i++)
        p->nodes[p->order[pick[i]]]->mark = r->mark;
    if (p->nodes[0]->mark != r->mark)
        p->nodes[p->order[pick[n - 1]]]->mark = 0;
    p->nodes[0]->mark = r->mark;
}

/* When the marked requests, n of them, end if they start now. */
static uint64_t party_end_ns(const struct party *p, uint32_t n, uint64_t now_ns)
{
    const struct request *q = &p->nodes[0]->q;
    return saturating_add(now_ns, cede_batch_run_ns(q->run_ns, q->each_ns, n));
}

/* Running the marked requests, n of them, now makes another late that meets its deadline in queue
 * order. */
static bool party_harms(const struct requests *r, const struct device *from, const struct party *p,
                        uint32_t n, uint64_t now_ns)
{
    struct requests_plan before = requests_plan(now_ns),
                         after = requests_plan(party_end_ns(p, n, now_ns));
    uint32_t look = LOOK;
    for (const struct node *w = TAILQ_FIRST(&from->queue); w && look--; w = TAILQ_NEXT(w, link)) {
        bool met = requests_plan_step(&before, &w->q);
        if (w->mark != r->mark && !requests_plan_step(&after, &w->q) && met)
            return true;
    }
    return false;
}

static uint64_t party_slack_ns(const struct device *from, uint64_t now_ns)
{
    struct requests_plan p = requests_plan(now_ns);
    uint32_t look = LOOK;
    for (const struct node *n = TAILQ_FIRST(&from->queue); n && look--; n = TAILQ_NEXT(n, link))
        requests_plan_step(&p, &n->q);
    return requests_plan_slack(&p);
}

/* How many of the first requests run together in the plan of the queue, which harms none. */
static uint32_t party_in_order(const struct party *p, uint64_t now_ns)
{
    struct requests_plan plan = requests_plan(now_ns);
    uint32_t n = 0;
    for (const struct node *w = p->nodes[0]; w && n < p->n && p->nodes[n] == w && plan.n == n;
         w = TAILQ_NEXT(w, link)) {
        requests_plan_step(&plan, &w->q);
        n += plan.n == n + 1;
    }
    return n;
}

/* How many of the party start now, and marks them; 0: none, and until when it may wait. others:
 * kinds that come before it are held, so it may overtake them only if that makes none of them
 * late. */
static uint32_t party_decide(struct requests *r, const struct device *from, const struct party *p,
                             bool others, uint64_t now_ns, uint64_t *until_ns)
{
    const struct request *q = &p->nodes[0]->q;
    uint32_t pick[BATCH_MAX];
    struct batch_params b = {
        .max = p->max, .run_ns = q->run_ns, .each_ns = q->each_ns, .wait_ns = q->wait_ns};
    *until_ns = TIME_NEVER;
    struct batch_choice c = cede_batch_decide(&b, p->reqs, p->n, now_ns, pick);
    if (c.n == 0) {
        uint64_t slack = saturating_sub(party_slack_ns(from, now_ns), r->urgent_ns);
        *until_ns = min_u64(saturating_add(now_ns, slack), c.wake_ns);
        if (*until_ns > now_ns)
            return 0;
        b.max = p->n; /* full: it starts */
        c = cede_batch_decide(&b, p->reqs, p->n, now_ns, pick);
    }
    /* The largest batch that makes no other request late. The policy's choice alone runs whatever
     * the effect, unless it overtakes. */
    for (uint32_t n = c.n; n; n--) {
        party_mark(r, p, pick, n);
        if ((c.n == 1 && !others) || !party_harms(r, from, p, n, now_ns))
            return n;
    }
    if (others)
        return 0;
    if (p->nodes[0] != TAILQ_FIRST(&from->queue)) {
        party_mark(r, p, pick, c.n);
        return c.n;
    }
    uint32_t n = party_in_order(p, now_ns);
    r->mark++;
    for (uint32_t i = 0; i < n; i++)
        p->nodes[i]->mark = r->mark;
    return n;
}

/* Starts the marked requests, n of them. The lateness with which they begin is remembered: up by
 * 1/16 of the difference, down by 1/2048, which is about its 99th percentile. */
static void party_start(struct requests *r, struct device *d, const struct party *p, uint32_t n,
                        uint64_t now_ns, struct request *out)
{
    d->end_ns = party_end_ns(p, n, now_ns);
    for (uint32_t k = 0; k < p->n; k++) {
        struct node *node = p->nodes[k];
        if (node->mark != r->mark)
            continue;
        requests_unlink(r, node);
        node->state = REQUEST_RUNS;
        TAILQ_INSERT_TAIL(&d->batch, node, link);
        *out++ = node->q;
        uint64_t late = saturating_sub(d->end_ns, node->q.deadline_ns);
        if (late > r->worst_ns)
            r->worst_ns += (late - r->worst_ns + 15) / 16;
        else
            r->worst_ns -= r->worst_ns / 2048;
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
        while (k < nheld && !requests_same_kind(&n->q, &held[k]->q))
            k++;
        if (k == nheld)
            return n;
    }
    return NULL;
}

int cede_requests_next_batch(struct requests *r, uint32_t device, uint64_t now_ns,
                             struct request *out, uint32_t *n, uint64_t *wake_ns)
{
    uint32_t nheld = 0, room = *n < BATCH_MAX ? *n : BATCH_MAX;
    struct node *held[KINDS];
    struct party p;
    *n = 0;
    *wake_ns = TIME_NEVER;
    if (device >= r->c.devices || !room)
        return -EINVAL;
    struct device *d = &r->devices[device], *from = requests_source(r, d);
    if (!TAILQ_EMPTY(&d->batch))
        return -EBUSY;
    struct node *first = from ? requests_choose(r, from, now_ns) : NULL;
    while (first && nheld < KINDS) {
        uint64_t until;
        party_gather(from, first, room, &p);
        *n = party_decide(r, from, &p, nheld > 0, now_ns, &until);
        if (*n) {
            party_start(r, d, &p, *n, now_ns, out);
            return 0;
        }
        *wake_ns = min_u64(until, *wake_ns);
        held[nheld++] = first;
        first = requests_other_kind(from, held, nheld);
    }
    return -EAGAIN;
}
