/* Sets of requests for the tests of their order and of batches, and devices that run them. */
#ifndef CEDE_TESTS_LIBCEDE_PURE_SETS_H
#define CEDE_TESTS_LIBCEDE_PURE_SETS_H

#include <errno.h>
#include <stdlib.h>

#include "libcede/pure/requests.h"
#include "libcede/pure/times.h"

#define POLICIES 4U
#define SET_MAX  20000U
#define DEVICES  2U

/* With these settings and else such ones; the request is for any device. */
#define QUEUE(...)                                                                                 \
    ({                                                                                             \
        struct cede_queue_config queue_ = {.policy = CEDE_QUEUE_EDF, .k = 16, .devices = 1};       \
        queue_.batches = 1, queue_.capacity = MAX, queue_.urgent_us = 1000;                        \
        EACH(CONFIG_SET, queue_, __VA_ARGS__)                                                      \
        queue_;                                                                                    \
    })
#define REQUESTS(...) make_requests(QUEUE(__VA_ARGS__))
#define REQUEST(...)                                                                               \
    ({                                                                                             \
        struct request request_ = {.preferred = SLOT_NONE};                                        \
        EACH(CONFIG_SET, request_, __VA_ARGS__)                                                    \
        request_;                                                                                  \
    })

static inline struct requests *make_requests(struct cede_queue_config c)
{
    struct requests *r = NULL;
    OK(cede_requests_new(&c, REQUESTS_PREFER_NS, &r));
    return r;
}

static inline struct cede_queue_ticket submit(struct requests *r, struct request q, uint64_t now_ns)
{
    struct cede_queue_ticket t;
    int code = cede_requests_submit(r, &q, now_ns, &t);
    assert_true(code == 0 ? t.id != 0 : code == -EBUSY && t.id == 0 && t.device == CEDE_ANY_DEVICE);
    return t;
}

/* The size of the batch that has ended. */
static inline uint32_t end_batch(struct requests *r, uint32_t device)
{
    struct request q;
    uint32_t n = 0;
    while (cede_requests_end(r, device, &q))
        n++;
    return n;
}

/* A batch of one: the policy's choice. */
static inline int next_one(struct requests *r, uint32_t device, uint64_t now_ns,
                           struct request *out)
{
    uint32_t n = 1;
    uint32_t slot;
    uint64_t wake_ns;
    return cede_requests_next_batch(r, device, now_ns, out, &n, &slot, &wake_ns);
}

static inline int by_arrival(const void *a, const void *b)
{
    const struct request *x = a, *y = b;
    return (x->arrival_ns > y->arrival_ns) - (x->arrival_ns < y->arrival_ns);
}

static struct request set[SET_MAX];
static int64_t late[SET_MAX]; /* end - deadline; INT64_MIN: refused */

/* In order of arrival. */
static inline void sort_set(uint32_t n)
{
    qsort(set, n, sizeof(*set), by_arrival);
}

struct outcome {
    uint32_t ran, late, refused, batches;
    uint64_t end_ns, busy_ns[DEVICES];
};

/* A device and its batch. */
struct simulated {
    struct request out[CEDE_QUEUE_BATCH_MAX];
    uint32_t n;
    uint64_t end_ns, wake_ns;
};

static inline void end_simulated(struct requests *r, uint32_t device, struct simulated *d,
                                 struct outcome *o)
{
    for (uint32_t k = 0; k < d->n; k++) {
        int64_t by = (int64_t)(d->end_ns - d->out[k].deadline_ns);
        late[(struct request *)d->out[k].user - set] = by;
        o->late += d->end_ns > d->out[k].deadline_ns;
    }
    o->ran += d->n;
    o->end_ns = d->end_ns;
    assert_int_equal(end_batch(r, device), d->n);
    d->n = 0;
}

static inline void begin_simulated(struct requests *r, uint32_t device, uint64_t now, uint32_t most,
                                   struct simulated *d, struct outcome *o)
{
    uint32_t n = most, slot;
    int e = cede_requests_next_batch(r, device, now, d->out, &n, &slot, &d->wake_ns);
    assert_true(e == 0 ? n > 0 : e == -EAGAIN && d->wake_ns > now);
    if (e)
        return;
    const uint64_t run_ns = d->out[0].run_ns + (n - 1) * d->out[0].each_ns;
    d->n = n;
    d->end_ns = now + run_ns;
    o->busy_ns[device] += run_ns;
    o->batches++;
    for (uint32_t k = 1; k < n; k++)
        assert_true(d->out[k].shape == d->out[0].shape);
    assert_true(n == 1 || n <= d->out[0].batch_max);
}

/* Runs set[0..n), in order of arrival, for exactly their estimates, `most` in a batch. */
static inline struct outcome simulate(struct cede_queue_config p, uint64_t prefer_ns, uint32_t n,
                                      uint32_t most)
{
    static struct simulated devices[DEVICES];
    struct outcome o = {0};
    struct requests *r;
    p.capacity = n; /* room for more costs time, most of it under sanitizers */
    OK(cede_requests_new(&p, prefer_ns, &r));
    memset(devices, 0, sizeof(devices));
    for (uint32_t i = 0, guard = 0;; guard++) {
        assert_true(guard < 20 * SET_MAX); /* it never spins without getting on */
        uint64_t now = i < n ? set[i].arrival_ns : TIME_NEVER;
        for (uint32_t d = 0; d < p.devices; d++)
            now = min_u64(now, devices[d].n ? devices[d].end_ns : devices[d].wake_ns);
        if (now == TIME_NEVER)
            break;
        for (uint32_t d = 0; d < p.devices; d++) {
            if (devices[d].n && devices[d].end_ns == now)
                end_simulated(r, d, &devices[d], &o);
        }
        for (; i < n && set[i].arrival_ns == now; i++) {
            late[i] = INT64_MIN;
            set[i].user = &set[i];
            o.refused += submit(r, set[i], now).device == CEDE_ANY_DEVICE;
        }
        for (uint32_t d = 0; d < p.devices; d++) {
            if (!devices[d].n)
                begin_simulated(r, d, now, most, &devices[d], &o);
        }
    }
    cede_requests_free(r);
    return o;
}

#endif
