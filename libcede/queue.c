/* libcede: the request queue; see cede/queue.h. Locks, clock and memory around the pure part, which
 * decides everything: order, admission and batches (pure/requests.h), run times
 * (pure/run_times.h). One lock; the only system calls under it are the clock's and those of waking
 * threads. */
#include "cede/queue.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "lib/estimate.h"
#include "libcede/api.h"
#include "libcede/clock.h"
#include "libcede/pure/requests.h"
#include "libcede/pure/run_times.h"

struct queue_model {
    unsigned batch_max;
    uint64_t wait_ns, expected_ns;
};

struct queue_lane {
    pthread_cond_t changed;
    unsigned waiters;
    uint64_t batch; /* id of the one that runs; 0: none */
    uint64_t start_ns;
};

struct cede_queue {
    pthread_mutex_t lock;
    pthread_cond_t left; /* no thread waits any more */
    struct cede_queue_config config;
    struct requests *requests;
    struct run_times *times;
    struct estimate latency;
    struct cede_request *reported; /* to the daemon, by the lower half of the ticket */
    uint32_t nreported;            /* 0: requests are not reported */
    struct queue_lane *lanes;
    struct queue_model models[CEDE_QUEUE_MODELS + 1]; /* the last: of all other models */
    uint64_t batches;                                 /* so far */
    unsigned inside;                                  /* threads in cede_queue_next() */
    bool shut;
    struct cede_queue_statistics s;
    struct request out[CEDE_QUEUE_BATCH_MAX];
};

/* ---- opening --------------------------------------------------------------------------------- */

CEDE_API void cede_queue_defaults(struct cede_queue_config *c)
{
    *c = (struct cede_queue_config){.size = sizeof(*c),
                                    .policy = CEDE_EDF,
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
    if (batch_max < 1 || batch_max > CEDE_QUEUE_BATCH_MAX || wait_us >= FAR_US || expected_us < 1 ||
        expected_us >= FAR_US)
        return -EINVAL;
    for (unsigned i = first; i <= last; i++)
        q->models[i] =
            (struct queue_model){batch_max, wait_us * NSEC_PER_USEC, expected_us * NSEC_PER_USEC};
    return 0;
}

static void queue_free(struct cede_queue *q)
{
    cede_requests_free(q->requests);
    free(q->times);
    free(q->reported);
    free(q->lanes);
    free(q);
}

static int queue_set_up(struct cede_queue *q, const struct cede_queue_config *c)
{
    q->config = *c;
    int r =
        queue_set_models(q, 0, CEDE_QUEUE_MODELS, c->batch_max, c->batch_wait_us, c->expected_us);
    if (r == 0)
        r = cede_requests_new(c, REQUESTS_PREFER_NS, &q->requests);
    if (r)
        return r;
    q->nreported = c->cede ? cede_requests_places(q->requests) : 0;
    q->times = cede_run_times_new(c->quantile);
    q->lanes = calloc(c->devices, sizeof(*q->lanes));
    q->reported = calloc(q->nreported + 1, sizeof(*q->reported));
    return q->times && q->lanes && q->reported ? 0 : -ENOMEM;
}

CEDE_API int cede_queue_open(const struct cede_queue_config *config, struct cede_queue **out)
{
    struct cede_queue_config c;
    if (!out)
        return -EINVAL;
    *out = NULL;
    cede_queue_defaults(&c);
    c = config ? *config : c;
    if (c.size != sizeof(c) || !(c.quantile > 0 && c.quantile < 1))
        return -EINVAL;
    struct cede_queue *q = calloc(1, sizeof(*q));
    if (!q)
        return -ENOMEM;
    int r = queue_set_up(q, &c);
    if (r) {
        queue_free(q);
        return r;
    }
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
    if (!q || model >= CEDE_QUEUE_MODELS)
        return -EINVAL;
    pthread_mutex_lock(&q->lock);
    int r = queue_set_models(q, model, model, batch_max, batch_wait_us, expected_us);
    pthread_mutex_unlock(&q->lock);
    return r;
}

/* ---- requests -------------------------------------------------------------------------------- */

CEDE_API const char *cede_queue_text(enum cede_queue_answer a)
{
    static const char *const texts[] = {
        [CEDE_QUEUE_RUNS] = "runs now",
        [CEDE_QUEUE_WAITS] = "waits in the queue",
        [CEDE_QUEUE_FULL] = "refused: the queue is full",
        [CEDE_QUEUE_ALONE] = "refused: it could not meet its deadline even if it ran at once",
        [CEDE_QUEUE_BEHIND] = "refused: it would miss its deadline behind the requests before it",
        [CEDE_QUEUE_OTHERS] = "refused: an admitted request would miss its deadline",
    };
    return (unsigned)a < ARRAY_SIZE(texts) ? texts[a] : "unknown";
}

static void queue_report_end(struct cede_queue *q, uint64_t ticket)
{
    if (q->nreported)
        cede_request_end(q->config.cede, &q->reported[(uint32_t)ticket]);
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

static int queue_submit(struct cede_queue *q, const struct cede_queue_request *in,
                        struct cede_queue_ticket *ticket, uint64_t now)
{
    struct queue_model m = q->models[in->model < CEDE_QUEUE_MODELS ? in->model : CEDE_QUEUE_MODELS];
    uint64_t key = cede_run_times_key(in->model, in->shape);
    struct run_time time = cede_run_times_get(q->times, key, m.expected_ns);
    struct request r = {.arrival_ns = now,
                        .deadline_ns = in->deadline_us
                                           ? time_after(now, in->deadline_us, NSEC_PER_USEC)
                                           : TIME_NEVER,
                        .run_ns = time.run_ns,
                        .after_ns = in->after_us < FAR_US ? in->after_us * NSEC_PER_USEC : 0,
                        .class = (enum job_class)in->cls,
                        .preferred = in->prefer ? in->prefer - 1 : SLOT_NONE,
                        .model = in->model,
                        .batch_max = m.batch_max,
                        .shape = in->shape,
                        .each_ns = time.each_ns,
                        .wait_ns = m.wait_ns,
                        .user = in->user};
    int code = cede_requests_submit(q->requests, &r, now, ticket);
    q->s.full += ticket->answer == CEDE_QUEUE_FULL;
    q->s.alone += ticket->answer == CEDE_QUEUE_ALONE;
    q->s.behind += ticket->answer == CEDE_QUEUE_BEHIND;
    q->s.others += ticket->answer == CEDE_QUEUE_OTHERS;
    if (code)
        return code;
    if (q->nreported)
        cede_request_begin(q->config.cede, &q->reported[(uint32_t)ticket->id], CEDE_JOB, 0,
                           r.deadline_ns == TIME_NEVER ? 0 : in->deadline_us);
    q->s.submitted++;
    q->s.waiting++;
    queue_wake(q, ticket->device);
    return 0;
}

CEDE_API int cede_queue_submit(struct cede_queue *q, const struct cede_queue_request *request,
                               struct cede_queue_ticket *ticket)
{
    struct cede_queue_ticket unwanted;
    if (!q || !request || (unsigned)request->cls >= CLASS_COUNT ||
        request->prefer > q->config.devices)
        return -EINVAL;
    pthread_mutex_lock(&q->lock);
    int r = q->shut ? -ESHUTDOWN
                    : queue_submit(q, request, ticket ? ticket : &unwanted, cede_clock_now_ns());
    pthread_mutex_unlock(&q->lock);
    return r;
}

/* A waiting request has been taken out. */
static void queue_cancelled(struct cede_queue *q, uint64_t ticket)
{
    queue_report_end(q, ticket);
    q->s.waiting--;
    q->s.cancelled++;
}

CEDE_API int cede_queue_cancel(struct cede_queue *q, uint64_t ticket)
{
    if (!q)
        return -EINVAL;
    pthread_mutex_lock(&q->lock);
    int r = cede_requests_cancel(q->requests, ticket);
    if (r == 0)
        queue_cancelled(q, ticket);
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
    b->model = first->model;
    b->shape = first->shape;
    for (uint32_t i = 0; i < n; i++) {
        const struct request *w = &q->out[i];
        b->ticket[i] = w->id;
        b->user[i] = w->user;
        b->urgent |= w->deadline_ns != TIME_NEVER &&
                     now + run_ns + q->config.urgent_us * NSEC_PER_USEC > w->deadline_ns;
    }
    b->id = l->batch = ++q->batches;
    b->device = device;
    b->n = n;
    b->expected_us = run_ns / NSEC_PER_USEC;
    l->start_ns = now;
    q->s.waiting -= n;
    q->s.running += n;
    q->s.batches++;
}

static int queue_try_next(struct cede_queue *q, unsigned device, uint64_t now,
                          struct cede_queue_batch *b, uint64_t *wake_ns)
{
    uint32_t n = CEDE_QUEUE_BATCH_MAX;
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
    uint64_t end = time_after(now, timeout_us, NSEC_PER_USEC);
    int r;
    b->n = 0;
    q->inside++;
    while ((r = queue_try_next(q, device, now, b, &wake_ns)) == -EAGAIN || r == -EBUSY) {
        if (now >= end) {
            b->retry_us = wake_ns == TIME_NEVER
                              ? UINT64_MAX
                              : (wake_ns - now + NSEC_PER_USEC - 1) / NSEC_PER_USEC;
            r = timeout_us ? -ETIMEDOUT : -EAGAIN;
            break;
        }
        uint64_t until = min_u64(wake_ns, end);
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

static void queue_end_batch(struct cede_queue *q, unsigned device, uint64_t now, bool failed)
{
    struct queue_lane *l = &q->lanes[device];
    struct request w;
    uint32_t n = 0;
    for (; cede_requests_end(q->requests, device, &w); n++) {
        queue_report_end(q, w.id);
        q->s.running--;
        q->s.failed += failed;
        if (failed)
            continue;
        q->s.ended++;
        q->s.late += now > w.deadline_ns;
        cede_estimate_add(&q->latency, now - w.arrival_ns);
    }
    q->s.busy_us += (now - l->start_ns) / NSEC_PER_USEC;
    if (!failed)
        cede_run_times_learn(q->times, cede_run_times_key(w.model, w.shape), n, now - l->start_ns);
    l->batch = 0;
    if (l->waiters)
        pthread_cond_signal(&l->changed);
}

CEDE_API int cede_queue_done(struct cede_queue *q, const struct cede_queue_batch *b, int failed)
{
    if (!q || !b)
        return -EINVAL;
    pthread_mutex_lock(&q->lock);
    bool runs = b->id && b->device < q->config.devices && q->lanes[b->device].batch == b->id;
    if (runs)
        queue_end_batch(q, b->device, cede_clock_now_ns(), failed != 0);
    pthread_mutex_unlock(&q->lock);
    return runs ? 0 : -ENOENT;
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
    struct request w;
    int r = -ENOENT;
    if (!q || !user)
        return -EINVAL;
    pthread_mutex_lock(&q->lock);
    if (!q->shut) {
        r = -EBUSY;
    } else if (cede_requests_reclaim(q->requests, &w)) {
        *user = w.user;
        queue_cancelled(q, w.id);
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
    for (uint32_t i = 0; i < q->nreported; i++)
        queue_report_end(q, i); /* without effect on those that have ended */
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
    out->p50_us = cede_estimate_get(&q->latency, 0.5, 0) / NSEC_PER_USEC;
    out->p99_us = cede_estimate_get(&q->latency, 0.99, 0) / NSEC_PER_USEC;
    pthread_mutex_unlock(&q->lock);
    return 0;
}
