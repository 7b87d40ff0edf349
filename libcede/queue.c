/* libcede: the request queue; see cede/queue.h. Locks, clock and memory around the pure part, which
 * decides everything: order, admission and batches (pure/requests.h), run times
 * (pure/run_times.h). One lock; the only system calls under it are the clock's and those of waking
 * threads. */
#include "cede/queue.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lib/estimate.h"
#include "libcede/api.h"
#include "libcede/clock.h"
#include "libcede/pure/requests.h"
#include "libcede/pure/run_times.h"

#define FAR_US       (1ULL << 52) /* later than this is never */
#define DEVICES_MAX  64U
#define CAPACITY_MAX (1U << 20)
#define CLASSES      3U

_Static_assert(CEDE_QUEUE_BATCH_MAX == REQUESTS_BATCH_MAX, "one limit");
_Static_assert((int)CEDE_LAXITY == REQ_LAXITY && (int)CEDE_BATCH == CLASS_BATCH, "same order");

enum queue_state { QUEUE_FREE, QUEUE_WAITING, QUEUE_RUNNING };

struct queue_slot {
    enum queue_state state;
    uint32_t generation, next_free;
    uint32_t model;
    uint64_t shape, arrival_ns, deadline_ns;
    void *user;
    struct cede_request reported; /* to the daemon */
};

struct queue_model {
    unsigned batch_max;
    uint64_t wait_ns, expected_ns;
};

struct queue_lane {
    pthread_cond_t changed;
    unsigned waiters;
    uint64_t batch; /* id of the one that runs; 0: none */
    uint64_t start_ns;
    uint64_t key; /* of its run time */
};

struct cede_queue {
    pthread_mutex_t lock;
    pthread_cond_t left; /* no thread waits any more */
    struct cede_queue_config config;
    struct requests *requests;
    struct run_times *times;
    struct estimate latency;
    struct queue_slot *slots;
    uint32_t nslots, first_free;
    struct queue_lane *lanes;
    struct queue_model models[CEDE_QUEUE_MODELS + 1]; /* the last: of all other models */
    uint64_t batches;                                 /* so far */
    unsigned inside;                                  /* threads in cede_queue_next() */
    bool shut;
    struct cede_queue_statistics s;
    struct request out[REQUESTS_BATCH_MAX];
};

static struct queue_model queue_settings(unsigned batch_max, uint64_t wait_us, uint64_t expected_us)
{
    return (struct queue_model){batch_max, wait_us * CLOCK_US_NS, expected_us * CLOCK_US_NS};
}

/* ---- slots ----------------------------------------------------------------------------------- */

static uint64_t queue_ticket(const struct cede_queue *q, uint32_t slot)
{
    return (uint64_t)q->slots[slot].generation << 32 | slot;
}

static struct queue_slot *queue_find(const struct cede_queue *q, uint64_t ticket)
{
    uint32_t i = (uint32_t)ticket;
    return i < q->nslots && q->slots[i].state != QUEUE_FREE && queue_ticket(q, i) == ticket
               ? &q->slots[i]
               : NULL;
}

static void queue_release(struct cede_queue *q, struct queue_slot *s)
{
    if (q->config.cede)
        cede_request_end(q->config.cede, &s->reported);
    q->s.waiting -= s->state == QUEUE_WAITING;
    q->s.running -= s->state == QUEUE_RUNNING;
    s->state = QUEUE_FREE;
    s->generation++;
    s->next_free = q->first_free;
    q->first_free = (uint32_t)(s - q->slots);
}

/* ---- opening --------------------------------------------------------------------------------- */

CEDE_API void cede_queue_defaults(struct cede_queue_config *c)
{
    struct requests_params p;
    cede_requests_params_default(&p);
    *c = (struct cede_queue_config){.size = sizeof(*c),
                                    .policy = (enum cede_queue_policy)p.policy,
                                    .k = p.k,
                                    .devices = p.devices,
                                    .capacity = p.capacity,
                                    .admit = p.admit,
                                    .urgent_us = p.urgent_ns / CLOCK_US_NS,
                                    .quantile = 0.99,
                                    .batch_max = 32,
                                    .batch_wait_us = 10000,
                                    .expected_us = 1000};
}

static bool queue_model_valid(unsigned batch_max, uint64_t wait_us, uint64_t expected_us)
{
    return batch_max >= 1 && batch_max <= CEDE_QUEUE_BATCH_MAX && wait_us < FAR_US &&
           expected_us >= 1 && expected_us < FAR_US;
}

static bool queue_config_valid(const struct cede_queue_config *c)
{
    return c->size == sizeof(*c) && (unsigned)c->policy <= CEDE_LAXITY && c->k >= 1 &&
           c->devices >= 1 && c->devices <= DEVICES_MAX && c->capacity >= 1 &&
           c->capacity <= CAPACITY_MAX && c->urgent_us < FAR_US && c->quantile > 0 &&
           c->quantile < 1 && queue_model_valid(c->batch_max, c->batch_wait_us, c->expected_us);
}

static void queue_free(struct cede_queue *q)
{
    cede_requests_free(q->requests);
    cede_run_times_free(q->times);
    free(q->slots);
    free(q->lanes);
    free(q);
}

CEDE_API int cede_queue_open(const struct cede_queue_config *config, struct cede_queue **out)
{
    struct cede_queue_config c;
    if (!out)
        return -EINVAL;
    *out = NULL;
    cede_queue_defaults(&c);
    c = config ? *config : c;
    if (!queue_config_valid(&c))
        return -EINVAL;
    struct requests_params p;
    cede_requests_params_default(&p);
    p.policy = (enum request_policy)c.policy;
    p.k = c.k;
    p.devices = c.devices;
    p.capacity = c.capacity;
    p.admit = c.admit;
    p.urgent_ns = c.urgent_us * CLOCK_US_NS;
    struct cede_queue *q = calloc(1, sizeof(*q));
    if (!q)
        return -ENOMEM;
    q->config = c;
    q->nslots = c.capacity + c.devices * REQUESTS_BATCH_MAX;
    q->slots = calloc(q->nslots, sizeof(*q->slots));
    q->lanes = calloc(c.devices, sizeof(*q->lanes));
    if (!q->slots || !q->lanes || cede_requests_new(&p, &q->requests) < 0 ||
        cede_run_times_new(c.quantile, &q->times) < 0) {
        queue_free(q);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < q->nslots; i++) {
        q->slots[i].generation = 1;
        q->slots[i].next_free = i + 1;
    }
    for (unsigned i = 0; i <= CEDE_QUEUE_MODELS; i++)
        q->models[i] = queue_settings(c.batch_max, c.batch_wait_us, c.expected_us);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->left, NULL);
    for (unsigned i = 0; i < c.devices; i++)
        cede_clock_cond_init(&q->lanes[i].changed);
    *out = q;
    return 0;
}

CEDE_API int cede_queue_set_model(struct cede_queue *q, unsigned model, unsigned batch_max,
                                  uint64_t batch_wait_us, uint64_t expected_us)
{
    if (!q || model >= CEDE_QUEUE_MODELS ||
        !queue_model_valid(batch_max, batch_wait_us, expected_us))
        return -EINVAL;
    pthread_mutex_lock(&q->lock);
    q->models[model] = queue_settings(batch_max, batch_wait_us, expected_us);
    pthread_mutex_unlock(&q->lock);
    return 0;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* The pure part's answers, and the statistics that count them. */
static const struct {
    enum request_answer answer;
    size_t counter; /* 0: none */
} queue_answers[] = {
#define COUNTED(field) offsetof(struct cede_queue_statistics, field)
    [CEDE_QUEUE_RUNS] = {REQ_RUN, 0},
    [CEDE_QUEUE_WAITS] = {REQ_QUEUED, 0},
    [CEDE_QUEUE_FULL] = {REQ_FULL, COUNTED(full)},
    [CEDE_QUEUE_ALONE] = {REQ_HOPELESS, COUNTED(alone)},
    [CEDE_QUEUE_BEHIND] = {REQ_BACKLOG, COUNTED(behind)},
    [CEDE_QUEUE_OTHERS] = {REQ_HARMS_OTHERS, COUNTED(others)},
#undef COUNTED
};
#define ANSWERS (sizeof(queue_answers) / sizeof(queue_answers[0]))

CEDE_API const char *cede_queue_text(enum cede_queue_answer a)
{
    return (unsigned)a < ANSWERS ? cede_requests_answer_text(queue_answers[a].answer) : "unknown";
}

/* Wakes a thread that waits for this device; if there is none, or the device runs something, one
 * for a free device, which may take the request from this one's queue. */
static void queue_wake(struct cede_queue *q, uint32_t device)
{
    if (!q->lanes[device].waiters || q->lanes[device].batch) {
        for (uint32_t i = 0; i < q->config.devices; i++) {
            if (q->lanes[i].waiters && !q->lanes[i].batch)
                device = i;
        }
    }
    if (q->lanes[device].waiters)
        pthread_cond_signal(&q->lanes[device].changed);
}

static enum cede_queue_answer queue_answer(struct cede_queue *q, enum request_answer a)
{
    for (unsigned i = 0; i < ANSWERS; i++) {
        if (queue_answers[i].answer != a)
            continue;
        if (queue_answers[i].counter)
            ++*(uint64_t *)((char *)&q->s + queue_answers[i].counter);
        return (enum cede_queue_answer)i;
    }
    return CEDE_QUEUE_WAITS;
}

static int queue_submit(struct cede_queue *q, const struct cede_queue_request *in,
                        struct cede_queue_ticket *ticket, uint64_t now)
{
    struct queue_model m = q->models[in->model < CEDE_QUEUE_MODELS ? in->model : CEDE_QUEUE_MODELS];
    uint64_t key = cede_run_times_key(in->model, in->shape);
    struct run_time time = cede_run_times_get(q->times, key, m.expected_ns);
    uint32_t at = q->first_free; /* there is one: nslots covers all that wait and run */
    struct queue_slot *s = &q->slots[at];
    struct request r = {.id = queue_ticket(q, at),
                        .arrival_ns = now,
                        .deadline_ns = in->deadline_us && in->deadline_us < FAR_US
                                           ? now + in->deadline_us * CLOCK_US_NS
                                           : TIME_NEVER,
                        .run_ns = time.run_ns,
                        .after_ns = in->after_us < FAR_US ? in->after_us * CLOCK_US_NS : 0,
                        .class = (enum job_class)in->cls,
                        .preferred = in->prefer ? in->prefer - 1 : SLOT_NONE,
                        .batch_max = m.batch_max,
                        .kind = key,
                        .each_ns = time.each_ns,
                        .wait_ns = m.wait_ns};
    struct request_verdict v = cede_requests_submit(q->requests, &r, now);
    ticket->urgent = v.urgent;
    ticket->device = v.device;
    ticket->id = 0;
    ticket->answer = queue_answer(q, v.answer);
    if (v.device == SLOT_NONE)
        return v.answer == REQ_INVALID ? -EINVAL : -EBUSY;
    ticket->id = r.id;
    q->first_free = s->next_free;
    s->state = QUEUE_WAITING;
    s->model = in->model;
    s->shape = in->shape;
    s->arrival_ns = now;
    s->deadline_ns = r.deadline_ns;
    s->user = in->user;
    if (q->config.cede)
        cede_request_begin(q->config.cede, &s->reported, CEDE_JOB, 0,
                           r.deadline_ns == TIME_NEVER ? 0 : in->deadline_us);
    q->s.submitted++;
    q->s.waiting++;
    queue_wake(q, v.device);
    return 0;
}

CEDE_API int cede_queue_submit(struct cede_queue *q, const struct cede_queue_request *request,
                               struct cede_queue_ticket *ticket)
{
    struct cede_queue_ticket unwanted;
    if (!q || !request || (unsigned)request->cls >= CLASSES || request->prefer > q->config.devices)
        return -EINVAL;
    pthread_mutex_lock(&q->lock);
    int r = q->shut ? -ESHUTDOWN
                    : queue_submit(q, request, ticket ? ticket : &unwanted, cede_clock_now_ns());
    pthread_mutex_unlock(&q->lock);
    return r;
}

CEDE_API int cede_queue_cancel(struct cede_queue *q, uint64_t ticket)
{
    if (!q)
        return -EINVAL;
    pthread_mutex_lock(&q->lock);
    struct queue_slot *s = queue_find(q, ticket);
    int r = !s                          ? -ENOENT
            : s->state == QUEUE_RUNNING ? -EBUSY
                                        : cede_requests_cancel(q->requests, ticket);
    if (r == 0) {
        queue_release(q, s);
        q->s.cancelled++;
    }
    pthread_mutex_unlock(&q->lock);
    return r;
}

/* ---- batches --------------------------------------------------------------------------------- */

static void queue_start(struct cede_queue *q, uint32_t device, uint32_t n, uint64_t now,
                        struct cede_queue_batch *b)
{
    struct queue_lane *l = &q->lanes[device];
    const struct request *first = &q->out[0];
    uint64_t run_ns = first->run_ns + (n - 1) * first->each_ns;
    b->urgent = 0;
    b->model = q->slots[(uint32_t)first->id].model;
    b->shape = q->slots[(uint32_t)first->id].shape;
    for (uint32_t i = 0; i < n; i++) {
        struct queue_slot *s = &q->slots[(uint32_t)q->out[i].id];
        s->state = QUEUE_RUNNING;
        b->ticket[i] = q->out[i].id;
        b->user[i] = s->user;
        b->urgent |= s->deadline_ns != TIME_NEVER &&
                     now + run_ns + q->config.urgent_us * CLOCK_US_NS > s->deadline_ns;
    }
    b->id = l->batch = ++q->batches;
    b->device = device;
    b->n = n;
    b->expected_us = run_ns / CLOCK_US_NS;
    l->start_ns = now;
    l->key = first->kind;
    q->s.waiting -= n;
    q->s.running += n;
    q->s.batches++;
}

static int queue_try_next(struct cede_queue *q, unsigned device, uint64_t now,
                          struct cede_queue_batch *b, uint64_t *wake_ns)
{
    uint32_t n = REQUESTS_BATCH_MAX;
    if (q->shut)
        return -ESHUTDOWN;
    *wake_ns = TIME_NEVER;
    int r = cede_requests_next_batch(q->requests, device, now, q->out, &n, wake_ns);
    if (r == 0)
        queue_start(q, device, n, now, b);
    return r;
}

CEDE_API int cede_queue_next(struct cede_queue *q, unsigned device, uint64_t timeout_us,
                             struct cede_queue_batch *b)
{
    if (!q || !b || device >= q->config.devices)
        return -EINVAL;
    pthread_mutex_lock(&q->lock);
    struct queue_lane *l = &q->lanes[device];
    uint64_t now = cede_clock_now_ns(), wake_ns;
    uint64_t end = timeout_us < FAR_US ? now + timeout_us * CLOCK_US_NS : TIME_NEVER;
    int r;
    b->n = 0;
    q->inside++;
    while ((r = queue_try_next(q, device, now, b, &wake_ns)) == -EAGAIN || r == -EBUSY) {
        if (now >= end) {
            b->retry_us = wake_ns == TIME_NEVER ? UINT64_MAX
                                                : (wake_ns - now + CLOCK_US_NS - 1) / CLOCK_US_NS;
            r = timeout_us ? -ETIMEDOUT : -EAGAIN;
            break;
        }
        uint64_t until = wake_ns < end ? wake_ns : end;
        struct timespec t = cede_clock_timespec(until);
        l->waiters++;
        if (until == TIME_NEVER)
            pthread_cond_wait(&l->changed, &q->lock);
        else
            pthread_cond_timedwait(&l->changed, &q->lock, &t);
        l->waiters--;
        now = cede_clock_now_ns();
    }
    if (--q->inside == 0 && q->shut)
        pthread_cond_broadcast(&q->left);
    pthread_mutex_unlock(&q->lock);
    return r;
}

CEDE_API int cede_queue_done(struct cede_queue *q, const struct cede_queue_batch *b, int failed)
{
    if (!q || !b)
        return -EINVAL;
    pthread_mutex_lock(&q->lock);
    uint64_t now = cede_clock_now_ns();
    struct queue_lane *l = b->device < q->config.devices ? &q->lanes[b->device] : NULL;
    int r = !l || !b->id || l->batch != b->id || b->n > CEDE_QUEUE_BATCH_MAX ? -ENOENT : 0;
    if (r == 0) {
        for (uint32_t i = 0; i < b->n; i++) {
            struct queue_slot *s = queue_find(q, b->ticket[i]);
            if (!s || s->state != QUEUE_RUNNING)
                continue;
            if (failed) {
                q->s.failed++;
            } else {
                q->s.ended++;
                q->s.late += now > s->deadline_ns;
                cede_estimate_add(&q->latency, now - s->arrival_ns);
            }
            queue_release(q, s);
        }
        q->s.busy_us += (now - l->start_ns) / CLOCK_US_NS;
        if (!failed)
            cede_run_times_learn(q->times, l->key, b->n, now - l->start_ns);
        l->batch = 0;
        cede_requests_done(q->requests, b->device);
        if (l->waiters)
            pthread_cond_signal(&l->changed);
    }
    pthread_mutex_unlock(&q->lock);
    return r;
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void queue_shut(struct cede_queue *q)
{
    q->shut = true;
    for (unsigned i = 0; i < q->config.devices; i++)
        pthread_cond_broadcast(&q->lanes[i].changed);
}

CEDE_API void cede_queue_shutdown(struct cede_queue *q)
{
    if (!q)
        return;
    pthread_mutex_lock(&q->lock);
    queue_shut(q);
    pthread_mutex_unlock(&q->lock);
}

CEDE_API int cede_queue_reclaim(struct cede_queue *q, void **user)
{
    int r = -ENOENT;
    if (!q || !user)
        return -EINVAL;
    pthread_mutex_lock(&q->lock);
    if (!q->shut)
        r = -EBUSY;
    for (uint32_t i = 0; r == -ENOENT && q->s.waiting && i < q->nslots; i++) {
        struct queue_slot *s = &q->slots[i];
        if (s->state != QUEUE_WAITING)
            continue;
        *user = s->user;
        cede_requests_cancel(q->requests, queue_ticket(q, i));
        queue_release(q, s);
        q->s.cancelled++;
        r = 0;
    }
    pthread_mutex_unlock(&q->lock);
    return r;
}

CEDE_API void cede_queue_close(struct cede_queue *q)
{
    if (!q)
        return;
    pthread_mutex_lock(&q->lock);
    queue_shut(q);
    while (q->inside)
        pthread_cond_wait(&q->left, &q->lock);
    for (uint32_t i = 0; i < q->nslots; i++) {
        if (q->slots[i].state != QUEUE_FREE)
            queue_release(q, &q->slots[i]);
    }
    pthread_mutex_unlock(&q->lock);
    for (unsigned i = 0; i < q->config.devices; i++)
        pthread_cond_destroy(&q->lanes[i].changed);
    pthread_cond_destroy(&q->left);
    pthread_mutex_destroy(&q->lock);
    queue_free(q);
}

CEDE_API int cede_queue_get_statistics(struct cede_queue *q, struct cede_queue_statistics *out,
                                       size_t size)
{
    if (!q || !out || size != sizeof(*out))
        return -EINVAL;
    pthread_mutex_lock(&q->lock);
    *out = q->s;
    out->p50_us = cede_estimate_get(&q->latency, 0.5, 0) / CLOCK_US_NS;
    out->p99_us = cede_estimate_get(&q->latency, 0.99, 0) / CLOCK_US_NS;
    pthread_mutex_unlock(&q->lock);
    return 0;
}
