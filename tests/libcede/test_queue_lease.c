/* A queue's batches and their leases: how many run at a time, what a waiting thread takes when
 * there is room, and that every lease is released. Without a GPU. Waits for states, asserts no
 * times. */
#include "cede/queue.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "libcede/owner.h"
#include "pools.h"

static struct cede_queue_batch batch[4];

static struct cede_queue *open_queue(struct cede_pool *p, enum cede_queue_policy policy)
{
    struct cede_queue_config c;
    struct cede_queue *q;
    cede_queue_defaults(&c);
    c.pool = p;
    c.policy = policy;
    c.batch_max = 1;
    assert_int_equal(cede_queue_open(&c, &q), 0);
    return q;
}

static struct cede_pool *open_pool(unsigned streams)
{
    struct cede_pool_config c;
    struct cede_pool *p;
    cede_pool_defaults(&c);
    c.flags = CEDE_POOL_NO_GPU;
    c.max_concurrent_streams = streams;
    c.max_total_occupancy = 0.9;
    c.unknown_occupancy = 0;
    c.age_ms = 1000000;
    assert_int_equal(cede_pool_open(&c, &p), 0);
    return p;
}

static void add(struct cede_queue *q, uint32_t model, enum cede_class cls)
{
    struct cede_queue_request r = {.model = model, .cls = cls};
    assert_int_equal(cede_queue_submit(q, &r, NULL), 0);
}

static struct cede_pool_statistics figures(struct cede_pool *p)
{
    struct cede_pool_statistics s;
    assert_int_equal(cede_pool_get_statistics(p, 0, &s, sizeof(s)), 0);
    return s;
}

static void until_waiting(struct cede_pool *p, unsigned n)
{
    while (figures(p).waiting != n)
        usleep(200);
}

/* Queue and pool with one handle: a batch's lease is no further request. */
static void a_request_is_reported_once(void **state)
{
    struct cede_pool_config pc;
    struct cede_queue_config qc;
    struct cede_queue_request due = {.deadline_us = 60000000};
    struct cede_statistics s;
    struct cede_queue *q;
    cede_pool_defaults(&pc);
    cede_queue_defaults(&qc);
    assert_int_equal(cede_connect(&pc.cede), 0);
    pc.flags = CEDE_POOL_NO_GPU | CEDE_POOL_REPORT_ALL;
    qc.batch_max = 1;
    qc.cede = pc.cede;
    assert_int_equal(cede_pool_open(&pc, &qc.pool), 0);
    assert_int_equal(cede_queue_open(&qc, &q), 0);
    assert_int_equal(cede_queue_submit(q, &due, NULL), 0);
    assert_int_equal(cede_queue_next(q, 0, 0, &batch[0]), 0);
    assert_int_equal(cede_queue_done(q, &batch[0], 0), 0);
    assert_int_equal(cede_get_statistics(pc.cede, &s, sizeof(s)), 0);
    assert_int_equal(s.begun, 1);
    assert_int_equal(s.ended, 1);
    assert_int_equal(s.deadlines_met, 1);
    cede_queue_close(q);
    cede_pool_close(qc.pool);
    cede_close(pc.cede);
}

static void as_many_as_the_pool_has_room_for(void **state)
{
    struct cede_pool *p = open_pool(2);
    struct cede_queue *q = open_queue(p, CEDE_FIFO);
    for (uint32_t i = 0; i < 3; i++)
        add(q, i, CEDE_NORMAL);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(cede_queue_next(q, 0, CEDE_FOREVER, &batch[i]), 0);
        assert_int_equal(batch[i].model, i);
        assert_true(batch[i].lease.opaque[0] != 0);
        assert_int_equal(figures(p).active, i + 1);
    }
    assert_int_equal(cede_queue_next(q, 0, 0, &batch[2]), -EAGAIN);
    assert_int_equal(batch[2].n, 0);
    assert_true(batch[2].retry_us > 0 && batch[2].retry_us != UINT64_MAX);
    assert_int_equal(cede_queue_next(q, 0, 1000, &batch[2]), -ETIMEDOUT);
    assert_int_equal(cede_queue_done(q, &batch[0], 0), 0);
    assert_int_equal(cede_queue_done(q, &batch[0], 0), -ENOENT);
    assert_int_equal(figures(p).active, 1);
    assert_int_equal(cede_queue_next(q, 0, 0, &batch[2]), 0);
    assert_int_equal(batch[2].model, 2);
    assert_int_equal(cede_queue_done(q, &batch[2], 1), 0);
    assert_int_equal(figures(p).active, 1);
    cede_queue_close(q); /* with batch 1 */
    assert_int_equal(figures(p).active, 0);
    cede_pool_close(p);
}

static void as_many_as_occupancy_allows(void **state)
{
    struct cede_pool *p = open_pool(8);
    struct cede_queue *q = open_queue(p, CEDE_FIFO);
    const struct cede_shape shape = {.blocks = 4, .memory_bytes = 1};
    assert_int_equal(cede_pool_occupancy(p, "gemm", 0.4), 0);
    assert_int_equal(cede_queue_set_lease(q, 0, "gemm", &shape), 0);
    assert_int_equal(cede_queue_set_lease(q, 1, "unknown", NULL), 0);
    assert_int_equal(cede_queue_set_lease(q, 0, "", NULL), -EINVAL);
    assert_int_equal(cede_queue_set_lease(q, CEDE_QUEUE_MODELS, "gemm", NULL), -EINVAL);
    for (int i = 0; i < 3; i++)
        add(q, 0, CEDE_NORMAL);
    assert_int_equal(cede_queue_next(q, 0, 0, &batch[0]), 0);
    assert_int_equal(cede_queue_next(q, 0, 0, &batch[1]), 0);
    assert_int_equal(cede_queue_next(q, 0, 0, &batch[2]), -EAGAIN); /* 1.2 is more than 0.9 */
    assert_int_equal(cede_queue_done(q, &batch[1], 0), 0);
    assert_int_equal(cede_queue_next(q, 0, 0, &batch[2]), 0);
    add(q, 1, CEDE_NORMAL);
    assert_int_equal(cede_queue_next(q, 0, 0, &batch[1]), -ENOENT); /* and the request waits on */
    assert_int_equal(cede_queue_set_lease(q, 1, NULL, NULL), 0);
    assert_int_equal(cede_queue_next(q, 0, 0, &batch[1]), 0);
    cede_queue_close(q);
    cede_pool_close(p);
}

struct worker {
    struct cede_queue *q;
    struct cede_pool *p;
    int result;
    struct cede_queue_batch b;
    struct cede_lease lease;
};

static void *take_batch(void *arg)
{
    struct worker *w = arg;
    w->result = cede_queue_next(w->q, 0, CEDE_FOREVER, &w->b);
    return NULL;
}

static void *take_lease(void *arg)
{
    struct worker *w = arg;
    const struct cede_shape s = {.priority = 1};
    w->result = cede_acquire(w->p, 0, NULL, &s, CEDE_NO_TIMEOUT, &w->lease);
    return NULL;
}

/* A batch of class batch waits behind another thread of priority 1. A request of class latency
 * comes: the queue asks for its lease anew, runs that request, and the other thread is next. False:
 * the pool had room before the queue had asked. */
static bool the_queue_is_first(unsigned wait_us)
{
    struct cede_pool *p = open_pool(1);
    struct worker w = {.q = open_queue(p, CEDE_PRIORITY)}, other = {.p = p};
    struct cede_lease held;
    pthread_t a, b;
    assert_int_equal(cede_try_acquire(p, 0, NULL, NULL, &held), 0);
    assert_int_equal(pthread_create(&b, NULL, take_lease, &other), 0);
    until_waiting(p, 1);
    add(w.q, 0, CEDE_BATCH);
    assert_int_equal(pthread_create(&a, NULL, take_batch, &w), 0);
    until_waiting(p, 2);
    add(w.q, 1, CEDE_LATENCY);
    usleep(wait_us);
    until_waiting(p, 2);
    assert_int_equal(cede_release(&held), 0);
    int seen = 0; /* whose thread has ended, and so has the lease */
    while (!seen) {
        usleep(200);
        seen = pthread_tryjoin_np(a, NULL) == 0 ? 1 : pthread_tryjoin_np(b, NULL) == 0 ? 2 : 0;
    }
    bool first = seen == 1 && w.b.model == 1;
    if (seen == 2)
        assert_int_equal(cede_release(&other.lease), 0);
    if (seen == 2)
        pthread_join(a, NULL);
    assert_int_equal(w.result, 0);
    assert_int_equal(cede_queue_done(w.q, &w.b, 0), 0);
    if (seen == 1) {
        pthread_join(b, NULL);
        assert_int_equal(cede_release(&other.lease), 0);
    }
    assert_int_equal(other.result, 0);
    cede_queue_close(w.q);
    cede_pool_close(p);
    return first;
}

static void the_most_urgent_request_has_the_lease(void **state)
{
    unsigned wait_us = 1000;
    while (!the_queue_is_first(wait_us)) {
        wait_us *= 2;
        assert_true(wait_us < 10000000);
    }
}

static void shut_down_while_waiting(void **state)
{
    struct cede_pool *p = open_pool(1);
    struct worker w = {.q = open_queue(p, CEDE_EDF)};
    struct cede_lease held;
    pthread_t a;
    void *user;
    assert_int_equal(cede_try_acquire(p, 0, NULL, NULL, &held), 0);
    add(w.q, 0, CEDE_BATCH);
    assert_int_equal(pthread_create(&a, NULL, take_batch, &w), 0);
    until_waiting(p, 1);
    cede_queue_shutdown(w.q);
    pthread_join(a, NULL);
    assert_int_equal(w.result, -ESHUTDOWN);
    assert_int_equal(figures(p).waiting, 0);
    assert_int_equal(cede_queue_reclaim(w.q, &user), 0);
    assert_int_equal(cede_queue_reclaim(w.q, &user), -ENOENT);
    cede_queue_close(w.q);
    assert_int_equal(figures(p).active, 1);
    cede_pool_close(p);
}

static void a_pool_that_is_closed(void **state)
{
    struct cede_pool *p = open_pool(1);
    struct cede_queue *q = open_queue(p, CEDE_EDF), *none;
    struct cede_queue_config c;
    cede_queue_defaults(&c);
    c.pool = p;
    c.devices = 2;
    assert_int_equal(cede_queue_open(&c, &none), -EINVAL);
    add(q, 0, CEDE_NORMAL);
    assert_int_equal(cede_queue_next(q, 0, 0, &batch[0]), 0);
    add(q, 0, CEDE_NORMAL);
    cede_pool_close(p);
    assert_int_equal(cede_queue_next(q, 0, 0, &batch[1]), -ESHUTDOWN);
    assert_int_equal(cede_queue_done(q, &batch[0], 0), 0);
    c.devices = 1;
    assert_int_equal(cede_queue_open(&c, &none), -EINVAL);
    cede_queue_close(q);
}

#define REQUESTS 2000

static void *work(void *arg)
{
    struct worker *w = arg;
    struct cede_pool_statistics s;
    struct cede_queue_batch b;
    while ((w->result = cede_queue_next(w->q, 0, CEDE_FOREVER, &b)) == 0) {
        s = figures(w->p);
        if (s.active > 3 || cede_queue_done(w->q, &b, 0))
            abort();
    }
    return NULL;
}

/* Six threads, three leases: all requests run, no thread is left behind. */
static void threads(void **state)
{
    struct cede_pool *p = open_pool(3);
    struct worker w[6];
    pthread_t t[6];
    struct cede_queue *q = open_queue(p, CEDE_PRIORITY);
    for (unsigned i = 0; i < 6; i++) {
        w[i] = (struct worker){.q = q, .p = p};
        assert_int_equal(pthread_create(&t[i], NULL, work, &w[i]), 0);
    }
    for (uint32_t i = 0; i < REQUESTS;) {
        struct cede_queue_request r = {.model = i % 3, .cls = (enum cede_class)(i % 3)};
        i += cede_queue_submit(q, &r, NULL) == 0;
    }
    struct cede_queue_statistics s;
    do
        cede_queue_get_statistics(q, &s, sizeof(s));
    while (s.ended < REQUESTS);
    cede_queue_shutdown(q);
    for (unsigned i = 0; i < 6; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(w[i].result, -ESHUTDOWN);
    }
    assert_int_equal(figures(p).active, 0);
    assert_int_equal(figures(p).waiting, 0);
    cede_queue_close(q);
    cede_pool_close(p);
}

static struct cede_queue *shut_now; /* NULL: none */

/* In place of libcede's own (--wrap): between a lease and its batch. */
int __real_cede_lease_acquire(struct cede_pool *p, const struct lease_owner *owner, int device,
                              const char *kernel, const struct cede_shape *shape,
                              int64_t timeout_us, struct cede_lease *out);
int __wrap_cede_lease_acquire(struct cede_pool *p, const struct lease_owner *owner, int device,
                              const char *kernel, const struct cede_shape *shape,
                              int64_t timeout_us, struct cede_lease *out);
int __wrap_cede_lease_acquire(struct cede_pool *p, const struct lease_owner *owner, int device,
                              const char *kernel, const struct cede_shape *shape,
                              int64_t timeout_us, struct cede_lease *out)
{
    int r = __real_cede_lease_acquire(p, owner, device, kernel, shape, timeout_us, out);
    if (shut_now)
        cede_queue_shutdown(shut_now);
    return r;
}

/* No batch is handed out then, as cede_queue_close() could free the queue under it. */
static void shut_down_while_a_lease_comes(void **state)
{
    struct cede_pool *p = open_pool(1);
    struct cede_queue *q = open_queue(p, CEDE_FIFO);
    void *user;
    add(q, 0, CEDE_NORMAL);
    shut_now = q;
    assert_int_equal(cede_queue_next(q, 0, CEDE_FOREVER, &batch[0]), -ESHUTDOWN);
    shut_now = NULL;
    assert_int_equal(figures(p).started, 1);
    assert_int_equal(figures(p).active, 0);
    assert_int_equal(cede_queue_reclaim(q, &user), 0);
    cede_queue_close(q);
    cede_pool_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_reported_once),
        cmocka_unit_test(as_many_as_the_pool_has_room_for),
        cmocka_unit_test(as_many_as_occupancy_allows),
        cmocka_unit_test(the_most_urgent_request_has_the_lease),
        cmocka_unit_test(shut_down_while_waiting),
        cmocka_unit_test(shut_down_while_a_lease_comes),
        cmocka_unit_test(a_pool_that_is_closed),
        cmocka_unit_test(threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
