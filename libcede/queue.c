/* libcede: the request queue; see cede/queue.h, queue_impl.h. Locks, clock, leases and memory
 * around the pure part, which decides everything: order, admission and batches (pure/requests.h),
 * run times (pure/run_times.h). One lock; the only system calls under it are the clock's, those of
 * waking threads, and once a second of a look for the daemon, which does not wait (handle.h). */
#include "cede/queue.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcede/clock.h"
#include "libcede/error.h"
#include "libcede/queue_impl.h"

#define BATCHES_DEFAULT 8U /* at a time, with a pool */

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER; /* taken before a queue's */
static LIST_HEAD(, cede_queue) list = LIST_HEAD_INITIALIZER(list);

/* ---- opening --------------------------------------------------------------------------------- */

CEDE_API void cede_queue_defaults(struct cede_queue_config *c)
{
    *c = (struct cede_queue_config){.size = sizeof(*c),
                                    .policy = CEDE_QUEUE_EDF,
                                    .k = 16,
                                    .devices = 1,
                                    .capacity = 1024,
                                    .urgent_us = 1000,
                                    .quantile = 0.99,
                                    .batch_max = 32,
                                    .batch_wait_us = 10000,
                                    .expected_us = 1000};
}

static int queue_set_models(struct cede_queue *q, unsigned first, unsigned last, unsigned batch_max,
                            uint64_t wait_us, uint64_t expected_us)
{
    if (!SETTINGS(cede_setting("batch_max", batch_max, 1, CEDE_QUEUE_BATCH_MAX),
                  cede_setting("batch_wait_us", wait_us, 0, MOST_US),
                  cede_setting("expected_us", expected_us, 1, MOST_US)))
        return -EINVAL;
    for (struct queue_model *m = &q->models[first]; m <= &q->models[last]; m++) {
        m->batch_max = batch_max;
        m->wait_ns = wait_us * NSEC_PER_USEC;
        m->expected_ns = expected_us * NSEC_PER_USEC;
        m->most = m->most ? m->most : CEDE_QUEUE_BATCH_MAX;
    }
    return 0;
}

static void queue_free(struct cede_queue *q)
{
    cede_requests_free(q->requests);
    free(q->times);
    free(q->reported);
    free(q->devices);
    free(q->slots);
    free(q);
}

/* The queue's reason comes first. */
static int queue_owner_stopped(const struct lease_owner *o)
{
    int r = atomic_load(&((const struct queue_device *)o)->stop);
    return r ? r : owner_stopped(cede_owner_here());
}

static bool queue_config_valid(const struct cede_queue_config *c)
{
    return SIZED(c->size, *c) &&
           SETTINGS(SETTING(c, policy, CEDE_QUEUE_FIFO, CEDE_QUEUE_LAXITY),
                    SETTING(c, k, 1, UINT32_MAX), SETTING(c, devices, 1, REQUESTS_DEVICES_MAX),
                    SETTING(c, batches, 0, CEDE_QUEUE_BATCHES_MAX),
                    SETTING(c, capacity, 1, REQUESTS_CAPACITY_MAX), SETTING(c, admit, 0, 1),
                    SETTING(c, urgent_us, 0, MOST_US)) &&
           IS(c->quantile > 0 && c->quantile < 1,
              "quantile is %g: give one between 0 and 1, but neither", c->quantile);
}

static int queue_set_up(struct cede_queue *q)
{
    struct cede_queue_config *c = &q->config;
    struct cede_pool_statistics s;
    c->batches = c->batches ? c->batches : c->pool ? BATCHES_DEFAULT : 1;
    int r =
        queue_set_models(q, 0, CEDE_QUEUE_MODELS, c->batch_max, c->batch_wait_us, c->expected_us)
            ?: cede_requests_new(c, REQUESTS_PREFER_NS, &q->requests);
    if (r)
        return r;
    if (c->pool && cede_pool_get_statistics(c->pool, (int)c->devices - 1, &s, sizeof(s)) < 0)
        return cede_fail(-EINVAL, "the pool is closed, or too small: give one of %u devices",
                         c->devices);
    for (unsigned d = 0; c->memory && d < c->devices; d++) {
        if (cede_memory_can_allocate(c->memory[d], 0) < 0)
            return cede_fail(-EINVAL, "memory[%u] is closed: open it first", d);
    }
    q->nreported = c->client ? cede_requests_slots(q->requests) : 0;
    q->times = cede_run_times_new(c->quantile);
    /* Of both there is one at least: queue_config_valid(). */
    q->devices = calloc(c->devices, sizeof(*q->devices));                  // NOLINT(*UnixAPI)
    q->slots = calloc((size_t)c->devices * c->batches, sizeof(*q->slots)); // NOLINT(*UnixAPI)
    q->reported = calloc(q->nreported + 1, sizeof(*q->reported));
    return q->times && q->devices && q->slots && q->reported ? 0 : -ENOMEM;
}

CEDE_API int cede_queue_open(const struct cede_queue_config *config, struct cede_queue **out)
{
    struct cede_queue_config c;
    CALL(GIVEN(out));
    *out = NULL;
    cede_queue_defaults(&c);
    c = config ? *config : c;
    if (!queue_config_valid(&c))
        return -EINVAL;
    struct cede_queue *q = calloc(1, sizeof(*q));
    if (!q)
        return cede_no_memory();
    q->config = c;
    int r = SAY(queue_set_up(q), {-ENOMEM, "too little memory: free some, or lower capacity"});
    if (r) {
        queue_free(q);
        return r;
    }
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->left, NULL);
    for (unsigned i = 0; i < c.devices; i++) {
        q->devices[i].owner = (struct lease_owner){
            .deadline_ns = TIME_NEVER, .stopped = queue_owner_stopped, .reports = c.client != NULL};
        q->devices[i].memory = c.memory ? c.memory[i] : NULL;
        cede_clock_cond_init(&q->devices[i].changed);
    }
    cede_owner_closed = cede_queue_wake_owners;
    HOLD(&list_lock);
    LIST_INSERT_HEAD(&list, q, link);
    *out = q;
    return 0;
}

CEDE_API int cede_queue_set_model(struct cede_queue *q, unsigned model, unsigned batch_max,
                                  uint64_t batch_wait_us, uint64_t expected_us)
{
    CALL(GIVEN(q) && SETTINGS(cede_setting("model", model, 0, CEDE_QUEUE_MODELS - 1)));
    HOLD(&q->lock);
    return queue_set_models(q, model, model, batch_max, batch_wait_us, expected_us);
}

/* How many requests of so many bytes a batch may have, on any device. */
static int queue_most(const struct cede_queue *q, uint64_t bytes, uint32_t *most)
{
    for (unsigned d = 0; d < q->config.devices; d++) {
        struct cede_memory_statistics s;
        int r = cede_memory_get_statistics(q->devices[d].memory, &s, sizeof(s));
        if (r)
            return cede_fail(r, "the memory of device %u is closed: open another queue", d);
        const uint64_t there = saturating_sub(s.total_bytes, s.reserve_bytes);
        if (there < bytes)
            return cede_fail(-ENOMEM,
                             "memory_bytes is %llu: give at most what device %u ever has, %llu",
                             (unsigned long long)bytes, d, (unsigned long long)there);
        *most = (uint32_t)min_u64(*most, there / bytes);
    }
    return 0;
}

CEDE_API int cede_queue_set_lease(struct cede_queue *q, unsigned model, const char *kernel,
                                  const struct cede_shape *shape)
{
    CALL(GIVEN(q) && SETTINGS(cede_setting("model", model, 0, CEDE_QUEUE_MODELS - 1)) &&
         IS(q->config.pool || (q->config.memory && !kernel),
            "the queue has no pool: set `pool` of its settings"));
    uint32_t most = CEDE_QUEUE_BATCH_MAX;
    int r = q->config.pool ? cede_lease_check(q->config.pool, CEDE_ANY_DEVICE, kernel, shape) : 0;
    if (r == 0 && q->config.memory && shape && shape->memory_bytes)
        r = queue_most(q, shape->memory_bytes, &most);
    if (r)
        return r;
    HOLD(&q->lock);
    struct queue_model *m = &q->models[model];
    m->most = most;
    snprintf(m->kernel, sizeof(m->kernel), "%s", kernel ? kernel : "");
    m->shape = shape ? *shape : (struct cede_shape){0};
    return 0;
}

/* ---- requests -------------------------------------------------------------------------------- */

CEDE_API const char *cede_queue_text(enum cede_queue_answer a)
{
    static const char *const texts[] = {
        [CEDE_QUEUE_RUNS] = "runs now",
        [CEDE_QUEUE_WAITS] = "waits in the queue",
        [CEDE_QUEUE_FULL] = "the queue is full: submit it later, or raise capacity",
        [CEDE_QUEUE_ALONE] = "it could not meet its deadline even if it ran at once: give it more "
                             "time",
        [CEDE_QUEUE_BEHIND] = "it would miss its deadline behind the requests before it: submit it "
                              "later, or give it more time",
        [CEDE_QUEUE_OTHERS] = "an admitted request would miss its deadline: submit it later",
    };
    return (unsigned)a < ARRAY_SIZE(texts) ? texts[a] : "unknown";
}

/* The thread that waits for a grant asks again, for the batch that is first now. */
static void queue_overtake(struct cede_queue *q, uint32_t device, int priority)
{
    struct queue_device *d = &q->devices[device];
    if (!d->asking || priority <= d->priority)
        return;
    atomic_store(&d->stop, -EAGAIN);
    cede_queue_wake_asking(q);
}

/* SLOT_NONE: any. False: no such device. */
static bool queue_preferred(const struct cede_queue *q, int in, uint32_t *device)
{
    *device = in && in != CEDE_ANY_DEVICE ? (uint32_t)in - CEDE_PREFER_DEVICE(0U) : SLOT_NONE;
    return *device == SLOT_NONE || *device < q->config.devices;
}

static int queue_submit(struct cede_queue *q, const struct cede_queue_request *in,
                        uint32_t preferred, struct cede_queue_ticket *ticket, uint64_t now)
{
    const struct queue_model *m = queue_model(q, in->model);
    uint64_t key = cede_run_times_key(in->model, in->shape);
    struct run_time time =
        cede_run_time_shared(cede_run_times_get(q->times, key, m->expected_ns), queue_share(q));
    struct request r = {.arrival_ns = now,
                        .deadline_ns = in->deadline_us
                                           ? time_after(now, in->deadline_us, NSEC_PER_USEC)
                                           : TIME_NEVER,
                        .run_ns = time.run_ns,
                        .margin = time.margin,
                        .after_ns = in->after_us < FAR_US ? in->after_us * NSEC_PER_USEC : 0,
                        .class = cede_class_of(in->cls),
                        .preferred = preferred,
                        .model = in->model,
                        .batch_max = (unsigned)min_u64(m->batch_max, m->most),
                        .shape = in->shape,
                        .each_ns = time.each_ns,
                        .wait_ns = m->wait_ns,
                        .user = in->user};
    int code = cede_requests_submit(q->requests, &r, now, ticket);
    q->s.full += ticket->answer == CEDE_QUEUE_FULL;
    q->s.alone += ticket->answer == CEDE_QUEUE_ALONE;
    if (ticket->answer == CEDE_QUEUE_ALONE)
        cede_run_times_refused(q->times, key, m->expected_ns);
    q->s.behind += ticket->answer == CEDE_QUEUE_BEHIND;
    q->s.others += ticket->answer == CEDE_QUEUE_OTHERS;
    if (code)
        return code;
    if (q->nreported)
        cede_request_begin(q->config.client, &q->reported[(uint32_t)ticket->id], CEDE_JOB, 0,
                           r.deadline_ns == TIME_NEVER ? 0 : in->deadline_us);
    q->s.submitted++;
    q->s.waiting++;
    cede_queue_wake(q, (uint32_t)ticket->device);
    queue_overtake(q, (uint32_t)ticket->device, queue_priority(r.class, ticket->urgent));
    return 0;
}

CEDE_API int cede_queue_submit(struct cede_queue *q, const struct cede_queue_request *request,
                               struct cede_queue_ticket *ticket)
{
    struct cede_queue_ticket unwanted = {0};
    uint32_t preferred;
    CALL(GIVEN(q) && GIVEN(request) &&
         IS(cede_class_of(request->cls) != CLASS_COUNT,
            "cls is %d: give CEDE_LATENCY, CEDE_NORMAL or CEDE_BATCH", (int)request->cls) &&
         IS(queue_preferred(q, request->device, &preferred),
            "device is %d: " GIVE_0_TO ", or -1 for any; in C by CEDE_PREFER_DEVICE()",
            request->device - (request->device < CEDE_ONLY_DEVICE(0) ? 0 : CEDE_PREFER_DEVICE(0)),
            UP_TO(q->config.devices - 1)));
    ticket = ticket ? ticket : &unwanted;
    HOLD(&q->lock);
    int r = q->shut ? -ESHUTDOWN : queue_submit(q, request, preferred, ticket, cede_clock_now_ns());
    return SAY(r, {-EBUSY, cede_queue_text(ticket->answer)},
               {-ESHUTDOWN, "the queue is shut down, or its pool or memory closed: open another"});
}

/* A waiting request has been taken out. */
static void queue_cancelled(struct cede_queue *q, uint64_t ticket)
{
    queue_report_end(q, ticket, false);
    q->s.waiting--;
    q->s.cancelled++;
    cede_queue_end_waits(q);
}

CEDE_API int cede_queue_cancel(struct cede_queue *q, uint64_t ticket)
{
    CALL(GIVEN(q));
    HOLD(&q->lock);
    int r = cede_requests_cancel(q->requests, ticket);
    if (r == 0)
        queue_cancelled(q, ticket);
    return SAY(r, {-EBUSY, "the request runs: wait for its batch"},
               {-ENOENT, "no waiting request has this ticket: cancel it before it has ended"});
}

/* ---- ending ---------------------------------------------------------------------------------- */

void cede_queue_wake_owners(const void *closed)
{
    struct cede_queue *q;
    HOLD(&list_lock);
    LIST_FOREACH(q, &list, link)
    {
        pthread_mutex_lock(&q->lock);
        for (unsigned i = 0; closed && i < q->config.devices; i++) {
            if (closed == q->config.pool || closed == q->devices[i].memory)
                q->shut = q->closed = true;
        }
        queue_wake_all(q);
        cede_queue_end_waits(q);
        pthread_mutex_unlock(&q->lock);
    }
}

CEDE_API void cede_queue_shutdown(struct cede_queue *q)
{
    if (!q)
        return;
    HOLD(&q->lock);
    q->shut = true;
    cede_requests_drain(q->requests);
    queue_wake_all(q);
    cede_queue_end_waits(q);
}

CEDE_API int cede_queue_reclaim(struct cede_queue *q, void **user)
{
    struct request w;
    int r = -ENOENT;
    CALL(GIVEN(q) && GIVEN(user));
    HOLD(&q->lock);
    if (!q->shut) {
        r = -EBUSY;
    } else if (cede_requests_reclaim(q->requests, &w)) {
        *user = w.user;
        queue_cancelled(q, w.id);
        r = 0;
    }
    return SAY(r, {-EBUSY, "the queue is not shut down: call cede_queue_shutdown() first"},
               {-ENOENT, "no waiting request is left: close the queue"});
}

CEDE_API void cede_queue_close(struct cede_queue *q)
{
    WHOLE_CALL;
    if (!q)
        return;
    pthread_mutex_lock(&list_lock);
    LIST_REMOVE(q, link);
    pthread_mutex_unlock(&list_lock);
    pthread_mutex_lock(&q->lock);
    q->shut = q->closed = true;
    cede_queue_end_waits(q);
    while (q->inside)
        pthread_cond_wait(&q->left, &q->lock);
    for (uint32_t i = 0; i < q->nreported; i++)
        queue_report_end(q, i, false); /* without effect on those that have ended */
    pthread_mutex_unlock(&q->lock);
    for (unsigned i = 0; i < q->config.devices * q->config.batches; i++)
        cede_queue_give_back(&q->slots[i].grant);
    for (unsigned i = 0; i < q->config.devices; i++)
        pthread_cond_destroy(&q->devices[i].changed);
    pthread_cond_destroy(&q->left);
    pthread_mutex_destroy(&q->lock);
    queue_free(q);
}

CEDE_API int cede_queue_get_statistics(struct cede_queue *q, struct cede_queue_statistics *out,
                                       size_t size)
{
    CALL(GIVEN(q) && GIVEN(out) && SIZED(size, *out));
    HOLD(&q->lock);
    *out = q->s;
    out->p50_us = cede_estimate_get(&q->latency, 0.5, 0) / NSEC_PER_USEC;
    out->p99_us = cede_estimate_get(&q->latency, 0.99, 0) / NSEC_PER_USEC;
    return 0;
}
