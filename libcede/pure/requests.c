/* See requests.h. Each device's queue is a list in the policy's order; CEDE_LAXITY and CEDE_EDF
 * with k > 1 make their exceptions from it when a request is taken. */
#include "libcede/pure/requests.h"

#include <errno.h>
#include <stdlib.h>

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
    uint32_t device, next; /* in that device's queue or batch; next: also among the free nodes */
};

struct device {
    uint32_t first, last; /* last: valid while the queue is not empty */
    uint32_t batch;       /* first of the running requests; SLOT_NONE: the device is free */
    uint64_t end_ns;      /* of the running batch, by the estimates */
    uint64_t queued_ns;   /* estimates of the waiting requests, summed up */
};

struct requests {
    struct cede_queue_config c;
    uint64_t prefer_ns, urgent_ns;
    struct device *devices;
    struct node *nodes; /* `capacity` for those that wait, and a batch for each device */
    uint32_t nnodes, waiting;
    uint32_t unused;   /* first of the free nodes */
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
    for (uint32_t d = 0; d < c->devices; d++)
        r->devices[d].first = r->devices[d].batch = SLOT_NONE;
    for (uint32_t i = 0; i < r->nnodes; i++) {
        r->nodes[i].q.id = 1ULL << 32 | i;
        r->nodes[i].next = i + 1;
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

/* The link to the request that runs next, of a queue that is not empty.
 *
 * With k > 1 EDF passes over a head that is late whatever happens, for a request that can still
 * meet its deadline; but only while the head is then at most half as late as the worst lateness
 * seen. Fewer requests are late so, and those passed over stay out of the tail of latencies;
 * without the bound they make up the tail. */
static uint32_t *requests_choose(struct requests *r, struct device *d, uint64_t now_ns)
{
    uint32_t *best = &d->first, seen = 0;
    uint64_t least = saturating_add(now_ns, r->urgent_ns);
    const struct request *head = &r->nodes[*best].q;
    if (r->c.policy != CEDE_EDF && r->c.policy != CEDE_LAXITY)
        return best;
    for (uint32_t *at = best; *at != SLOT_NONE; at = &r->nodes[*at].next) {
        const struct request *q = &r->nodes[*at].q;
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

uint64_t cede_requests_backlog_ns(const struct requests *r, uint32_t device, uint64_t now_ns)
{
    const struct device *d = &r->devices[device];
    return saturating_add(d->queued_ns,
                          d->batch == SLOT_NONE ? 0 : saturating_sub(d->end_ns, now_ns));
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
    uint64_t from = d->batch == SLOT_NONE ? now_ns : max_u64(now_ns, d->end_ns);
    struct requests_plan without = requests_plan(from), with = without;
    bool in = false;
    for (uint32_t i = d->first; i != SLOT_NONE; i = r->nodes[i].next) {
        const struct request *w = &r->nodes[i].q;
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
    uint32_t device = 0, n = r->unused;
    out->answer = requests_check(r, q, now_ns, &device);
    if (out->answer != CEDE_QUEUE_WAITS)
        return -EBUSY;
    struct device *d = &r->devices[device];
    struct node *node = &r->nodes[n];
    uint32_t *at = &d->first;
    if (*at != SLOT_NONE && !requests_before(r->c.policy, q, &r->nodes[d->last].q))
        at = &r->nodes[d->last].next;
    while (*at != SLOT_NONE && !requests_before(r->c.policy, q, &r->nodes[*at].q))
        at = &r->nodes[*at].next;
    r->unused = node->next;
    out->id = node->q.id;
    *node = (struct node){.q = *q, .state = REQUEST_WAITS, .device = device, .next = *at};
    node->q.id = out->id;
    if (*at == SLOT_NONE)
        d->last = n;
    *at = n;
    d->queued_ns = saturating_add(d->queued_ns, q->run_ns);
    r->waiting++;
    out->device = device;
    if (d->batch == SLOT_NONE && d->first == n)
        out->answer = CEDE_QUEUE_RUNS;
    return 0;
}

/* ---- leaving a queue ------------------------------------------------------------------------- */

/* Takes a request out of its device's queue. */
static void requests_unlink(struct requests *r, uint32_t n)
{
    struct node *node = &r->nodes[n];
    struct device *d = &r->devices[node->device];
    uint32_t *at = &d->first, before = SLOT_NONE;
    while (*at != n) {
        before = *at;
        at = &r->nodes[before].next;
    }
    *at = node->next;
    d->last = d->last == n ? before : d->last;
    d->queued_ns = saturating_sub(d->queued_ns, node->q.run_ns);
    r->waiting--;
}

static struct request requests_forget(struct requests *r, uint32_t n)
{
    struct node *node = &r->nodes[n];
    struct request q = node->q;
    node->q.id += 1ULL << 32;
    node->state = REQUEST_FREE;
    node->next = r->unused;
    r->unused = n;
    return q;
}

int cede_requests_cancel(struct requests *r, uint64_t id)
{
    uint32_t n = (uint32_t)id;
    if (n >= r->nnodes || r->nodes[n].q.id != id || r->nodes[n].state == REQUEST_FREE)
        return -ENOENT;
    if (r->nodes[n].state == REQUEST_RUNS)
        return -EBUSY;
    requests_unlink(r, n);
    requests_forget(r, n);
    return 0;
}

bool cede_requests_reclaim(struct requests *r, struct request *out)
{
    for (uint32_t d = 0; d < r->c.devices; d++) {
        uint32_t n = r->devices[d].first;
        if (n == SLOT_NONE)
            continue;
        requests_unlink(r, n);
        *out = requests_forget(r, n);
        return true;
    }
    return false;
}

bool cede_requests_end(struct requests *r, uint32_t device, struct request *out)
{
    struct device *d = &r->devices[device];
    uint32_t n = d->batch;
    if (n == SLOT_NONE)
        return false;
    d->batch = r->nodes[n].next;
    *out = requests_forget(r, n);
    return true;
}

/* ---- batches: combines the policy's order with the batcher's decision ------------------------ */

/* Waiting requests that could run together; the policy's choice is nodes[0]. */
struct party {
    uint32_t n, max, nodes[BATCH_MAX];
    struct batch_request reqs[BATCH_MAX]; /* in order of deadline */
    uint32_t order[BATCH_MAX];            /* their places in nodes */
    bool taken[BATCH_MAX];
};

static void party_gather(const struct requests *r, const struct device *from, uint32_t first,
                         uint32_t room, struct party *p)
{
    const struct request *q = &r->nodes[first].q;
    uint32_t i = first;
    p->max = (uint32_t)clamp_u64(q->batch_max, 1, room);
    p->n = 0;
    do { /* from the policy's choice to the end, then those before it */
        if (requests_same_kind(&r->nodes[i].q, q))
            p->nodes[p->n++] = i;
        i = r->nodes[i].next == SLOT_NONE ? from->first : r->nodes[i].next;
    } while (i != first && p->n < p->max);
    for (i = 0; i < p->n; i++) {
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

/* Running the marked requests, n of them, now makes another late that meets its deadline in queue
 * order. */
static bool party_harms(const struct requests *r, const struct device *from, const struct party *p,
                        uint32_t n, uint64_t now_ns)
{
    const struct request *first = &r->nodes[p->nodes[0]].q;
    uint64_t run_ns = cede_batch_run_ns(first->run_ns, first->each_ns, n);
    struct requests_plan before = requests_plan(now_ns),
                         after = requests_plan(saturating_add(now_ns, run_ns));
    uint32_t left = n, look = LOOK;
    for (uint32_t i = from->first; i != SLOT_NONE && look--; i = r->nodes[i].next) {
        const struct request *q = &r->nodes[i].q;
        bool met = requests_plan_step(&before, q), taken = false;
        for (uint32_t k = 0; left && k < p->n && !taken; k++)
            taken = p->taken[k] && p->nodes[k] == i;
        left -= taken;
        if (!taken && !requests_plan_step(&after, q) && met)
            return true;
    }
    return false;
}

static uint64_t party_slack_ns(const struct requests *r, const struct device *from, uint64_t now_ns)
{
    struct requests_plan p = requests_plan(now_ns);
    uint32_t look = LOOK;
    for (uint32_t i = from->first; i != SLOT_NONE && look--; i = r->nodes[i].next)
        requests_plan_step(&p, &r->nodes[i].q);
    return requests_plan_slack(&p);
}

/* How many of the first requests run together in the plan of the queue, which harms none. */
static uint32_t party_in_order(const struct requests *r, const struct party *p, uint64_t now_ns)
{
    struct requests_plan plan = requests_plan(now_ns);
    uint32_t n = 0;
    for (uint32_t i = p->nodes[0]; i != SLOT_NONE && n < p->n && p->nodes[n] == i && plan.n == n;
         i = r->nodes[i].next) {
        requests_plan_step(&plan, &r->nodes[i].q);
        n += plan.n == n + 1;
    }
    return n;
}

/* How many of the party start now, and marks them; 0: none, and until when it may wait. others:
 * kinds that come before it are held, so it may overtake them only if that makes none of them
 * late. */
static uint32_t party_decide(const struct requests *r, const struct device *from, struct party *p,
                             bool others, uint64_t now_ns, uint64_t *until_ns)
{
    const struct request *q = &r->nodes[p->nodes[0]].q;
    uint32_t pick[BATCH_MAX];
    struct batch_params b = {
        .max = p->max, .run_ns = q->run_ns, .each_ns = q->each_ns, .wait_ns = q->wait_ns};
    *until_ns = TIME_NEVER;
    struct batch_choice c = cede_batch_decide(&b, p->reqs, p->n, now_ns, pick);
    if (c.n == 0) {
        uint64_t slack = saturating_sub(party_slack_ns(r, from, now_ns), r->urgent_ns);
        *until_ns = min_u64(saturating_add(now_ns, slack), c.wake_ns);
        if (*until_ns > now_ns)
            return 0;
        b.max = p->n; /* full: it starts */
        c = cede_batch_decide(&b, p->reqs, p->n, now_ns, pick);
    }
    /* The largest batch that makes no other request late. The policy's choice alone runs whatever
     * the effect, unless it overtakes. */
    for (uint32_t n = c.n; n; n--) {
        party_mark(p, pick, n);
        if ((c.n == 1 && !others) || !party_harms(r, from, p, n, now_ns))
            return n;
    }
    if (others)
        return 0;
    if (p->nodes[0] != from->first) {
        party_mark(p, pick, c.n);
        return c.n;
    }
    uint32_t n = party_in_order(r, p, now_ns);
    for (uint32_t i = 0; i < p->n; i++)
        p->taken[i] = i < n;
    return n;
}

/* Starts the marked requests, n of them. The lateness with which they begin is remembered: up by
 * 1/16 of the difference, down by 1/2048, which is about its 99th percentile. */
static void party_start(struct requests *r, struct device *d, const struct party *p, uint32_t n,
                        uint64_t now_ns, struct request *out)
{
    const struct request *first = &r->nodes[p->nodes[0]].q;
    d->end_ns = saturating_add(now_ns, cede_batch_run_ns(first->run_ns, first->each_ns, n));
    for (uint32_t k = 0; k < p->n; k++) {
        struct node *node = &r->nodes[p->nodes[k]];
        if (!p->taken[k])
            continue;
        requests_unlink(r, p->nodes[k]);
        node->state = REQUEST_RUNS;
        node->next = d->batch;
        d->batch = p->nodes[k];
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
    for (uint32_t i = 0; d->first == SLOT_NONE && i < r->c.devices; i++) {
        struct device *o = &r->devices[i];
        if (o->first != SLOT_NONE && (from == d || o->queued_ns > from->queued_ns))
            from = o;
    }
    return from->first == SLOT_NONE ? NULL : from;
}

/* The first request in a queue that is of no kind held; SLOT_NONE. */
static uint32_t requests_other_kind(const struct requests *r, const struct device *from,
                                    const uint32_t *held, uint32_t nheld)
{
    for (uint32_t i = from->first; i != SLOT_NONE; i = r->nodes[i].next) {
        uint32_t k = 0;
        while (k < nheld && !requests_same_kind(&r->nodes[i].q, &r->nodes[held[k]].q))
            k++;
        if (k == nheld)
            return i;
    }
    return SLOT_NONE;
}

int cede_requests_next_batch(struct requests *r, uint32_t device, uint64_t now_ns,
                             struct request *out, uint32_t *n, uint64_t *wake_ns)
{
    uint32_t held[KINDS], nheld = 0, room = *n < BATCH_MAX ? *n : BATCH_MAX;
    struct party p;
    *n = 0;
    *wake_ns = TIME_NEVER;
    if (device >= r->c.devices || !room)
        return -EINVAL;
    struct device *d = &r->devices[device], *from = requests_source(r, d);
    if (d->batch != SLOT_NONE)
        return -EBUSY;
    if (!from)
        return -EAGAIN;
    uint32_t i = *requests_choose(r, from, now_ns);
    while (i != SLOT_NONE && nheld < KINDS) {
        uint64_t until;
        party_gather(r, from, i, room, &p);
        *n = party_decide(r, from, &p, nheld > 0, now_ns, &until);
        if (*n) {
            party_start(r, d, &p, *n, now_ns, out);
            return 0;
        }
        *wake_ns = min_u64(until, *wake_ns);
        held[nheld++] = i;
        i = requests_other_kind(r, from, held, nheld);
    }
    return -EAGAIN;
}
