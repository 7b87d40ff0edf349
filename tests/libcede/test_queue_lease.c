/* A queue's batches and their leases: how many run at a time, what a waiting thread takes when
 * there is room, and that every lease is released. Without a GPU. Waits for states, asserts no
 * times. */
#include "cede/queue.h"

#include "fixture.h"
#include "libcede/owner.h"

static struct cede_queue_batch batch[4];

/* Those of a test. */
static struct cede_pool *pool;
static struct cede_queue *queue;

static void open_both(unsigned streams, enum cede_queue_policy policy)
{
    pool = OPEN(pool, .flags = CEDE_POOL_NO_GPU, .max_concurrent_streams = streams,
                .max_total_occupancy = 0.9, .unknown_occupancy = 0, .age_us = 1000000000);
    queue = OPEN(queue, .pool = pool, .policy = policy, .batch_max = 1);
}

/* No lease is left then, but those that a test holds. */
static void close_both(unsigned held)
{
    cede_queue_close(queue);
    HAS(pool_stats(pool, 0), (active, held), (waiting, 0));
    cede_pool_close(pool);
}

static void add(uint32_t model, enum cede_class cls)
{
    struct cede_queue_request r = {.model = model, .cls = cls};
    OK(cede_queue_submit(queue, &r, NULL));
}

static int next(struct cede_queue_batch *b)
{
    return cede_queue_next(queue, 0, 0, b);
}

static void done(struct cede_queue_batch *b)
{
    OK(cede_queue_done(queue, b, 0));
}

static void *takes_batch(void *arg)
{
    return (void *)(intptr_t)cede_queue_next(queue, 0, CEDE_TIMEOUT_FOREVER, arg);
}

/* The program may ask the queue for its figures when the pressure changes. */
static void asks_the_queue(void *arg, enum cede_pressure now)
{
    STATS(queue, queue);
    ++*(unsigned *)arg;
}

/* 900 bytes of room; requests of 400 take it in batches of two, then one. pooled: with leases. */
static void batches_have_room(bool pooled)
{
    struct cede_shape shape = {.memory_bytes = 901};
    unsigned changes = 0;
    struct cede_memory *memory = OPEN(memory, .flags = CEDE_MEMORY_NO_GPU, .total_bytes = 1000,
                                      .on_pressure = asks_the_queue, .arg = &changes);
    pool = pooled ? OPEN(pool, .flags = CEDE_POOL_NO_GPU, .max_concurrent_streams = 4) : NULL;
    queue = OPEN(queue, .pool = pool, .memory = &memory, .batches = 4, .batch_max = 8,
                 .batch_wait_us = 0);
    assert_int_equal(cede_queue_set_lease(queue, 1, NULL, &shape), -ENOMEM);
    assert_non_null(strstr(cede_error_text(), "memory_bytes is 901: give at most "));
    shape.memory_bytes = 400;
    OK(cede_queue_set_lease(queue, 1, NULL, &shape));
    for (int i = 0; i < 3; i++)
        add(1, CEDE_NORMAL);
    assert_int_equal(next(&batch[0]), 0);
    assert_int_equal(batch[0].n, 2); /* three never have room */
    assert_int_equal(batch[0].room.bytes, 800);
    assert_int_equal(batch[0].lane, 0);
    assert_int_equal(batch[0].lease.opaque[0] != 0, pooled);
    assert_int_equal(next(&batch[1]), -EAGAIN);
    const pthread_t thread = start(takes_batch, &batch[1]);
    UNTIL(STATS(memory, memory).waiting);
    done(&batch[0]);
    OK(result_of(thread));
    assert_int_equal(batch[1].n, 1);
    assert_int_equal(batch[1].room.bytes, 400);
    add(1, CEDE_NORMAL);
    assert_int_equal(next(&batch[2]), 0); /* beside it */
    assert_int_equal(batch[1].lane + batch[2].lane, 1);
    done(&batch[2]);
    done(&batch[1]);
    assert_true(changes >= 4); /* up and down, twice at least */
    add(1, CEDE_NORMAL);
    assert_int_equal(next(&batch[2]), 0);
    cede_queue_close(queue); /* with what still runs */
    HAS(STATS(memory, memory), (reservations, 0), (waiting, 0));
    cede_memory_close(memory);
    if (pooled)
        cede_pool_close(pool);
}

TEST(batches_have_room_with_leases_and_without)
{
    batches_have_room(true);
    batches_have_room(false);
}

/* Queue and pool with one handle: a batch's lease is no further request. */
TEST(a_request_is_reported_once)
{
    const struct cede_queue_request due = {.deadline_us = 60 * S};
    cede_handle *c;
    OK(cede_connect(&c));
    pool = OPEN(pool, .flags = CEDE_POOL_NO_GPU | CEDE_POOL_REPORT_ALL, .client = c);
    queue = OPEN(queue, .batch_max = 1, .client = c, .pool = pool);
    OK(cede_queue_submit(queue, &due, NULL));
    assert_int_equal(next(&batch[0]), 0);
    done(&batch[0]);
    assert_string_equal(reported(c), "1 begun, 1 ended, 1 due, 1 met");
    close_both(0);
    cede_close(c);
}

TEST(as_many_as_the_pool_has_room_for)
{
    open_both(2, CEDE_QUEUE_FIFO);
    for (uint32_t i = 0; i < 3; i++)
        add(i, CEDE_NORMAL);
    for (uint32_t i = 0; i < 2; i++) {
        OK(cede_queue_next(queue, 0, CEDE_TIMEOUT_FOREVER, &batch[i]));
        assert_int_equal(batch[i].model, i);
        assert_true(batch[i].lease.opaque[0] != 0);
        assert_int_equal(pool_stats(pool, 0).active, i + 1);
    }
    assert_int_equal(next(&batch[2]), -EAGAIN);
    assert_int_equal(batch[2].n, 0);
    assert_true(batch[2].retry_us > 0 && batch[2].retry_us != CEDE_TIMEOUT_FOREVER);
    assert_int_equal(cede_queue_next(queue, 0, 1000, &batch[2]), -ETIMEDOUT);
    done(&batch[0]);
    assert_int_equal(cede_queue_done(queue, &batch[0], 0), -ENOENT);
    assert_int_equal(pool_stats(pool, 0).active, 1);
    assert_int_equal(next(&batch[2]), 0);
    assert_int_equal(batch[2].model, 2);
    OK(cede_queue_done(queue, &batch[2], 1));
    assert_int_equal(pool_stats(pool, 0).active, 1);
    close_both(0); /* with batch 1 */
}

TEST(as_many_as_occupancy_allows)
{
    const struct cede_shape shape = {.blocks = 4, .memory_bytes = 1};
    open_both(8, CEDE_QUEUE_FIFO);
    OK(cede_pool_occupancy(pool, "gemm", 0.4));
    OK(cede_queue_set_lease(queue, 0, "gemm", &shape));
    for (int i = 0; i < 3; i++)
        add(0, CEDE_NORMAL);
    assert_int_equal(next(&batch[0]), 0);
    assert_int_equal(next(&batch[1]), 0);
    assert_int_equal(next(&batch[2]), -EAGAIN); /* 1.2 is more than 0.9 */
    done(&batch[1]);
    assert_int_equal(next(&batch[2]), 0);
    add(1, CEDE_NORMAL);
    assert_int_equal(next(&batch[1]), 0);
    close_both(0);
}

static void refuses(int r, unsigned model, const char *kernel, const char *words)
{
    assert_int_equal(cede_queue_set_lease(queue, model, kernel, NULL), r);
    assert_non_null(strstr(cede_error_text(), words));
}

/* Where it is said, and not in the thread that asks for a batch. */
TEST(what_can_never_be_leased_is_refused_at_once)
{
    open_both(8, CEDE_QUEUE_FIFO);
    refuses(-ENOENT, 0, "gem", "'gem': register it first");
    add(0, CEDE_NORMAL);
    assert_int_equal(next(&batch[0]), 0); /* as by default */
    OK(cede_pool_kernel(pool, "conv", &batch));
    refuses(-EINVAL, 0, "conv", "'conv' is without threads");
    OK(cede_pool_occupancy(pool, "gem", 0.4));
    OK(cede_queue_set_lease(queue, 0, "gem", NULL));
    assert_string_equal(cede_error_text(), "");
    done(&batch[0]);
    close_both(0);
}

static void *takes_lease(void *arg)
{
    const struct cede_shape s = {.priority = 1};
    return (void *)(intptr_t)cede_acquire(pool, 0, NULL, &s, CEDE_TIMEOUT_FOREVER, arg);
}

/* A batch of class batch waits behind another thread of priority 1. A request of class latency
 * comes: the queue asks for its lease anew, runs that request, and the other thread is next. False:
 * the pool had room before the queue had asked. */
static bool the_queue_is_first(unsigned wait_us)
{
    struct cede_lease held, other;
    void *failed;
    open_both(1, CEDE_QUEUE_PRIORITY);
    OK(cede_acquire(pool, 0, NULL, NULL, 0, &held));
    const pthread_t b = start(takes_lease, &other);
    until_waiting(pool, 1);
    add(0, CEDE_BATCH);
    const pthread_t a = start(takes_batch, &batch[0]);
    until_waiting(pool, 2);
    add(1, CEDE_LATENCY);
    usleep(wait_us);
    until_waiting(pool, 2);
    OK(cede_release(&held));
    int seen = 0; /* whose thread has ended, and so has the lease */
    UNTIL((seen = pthread_tryjoin_np(a, &failed) == 0   ? 1
                  : pthread_tryjoin_np(b, &failed) == 0 ? 2
                                                        : 0));
    assert_null(failed);
    bool first = seen == 1 && batch[0].model == 1;
    if (seen == 2) {
        OK(cede_release(&other));
        OK(result_of(a));
    }
    done(&batch[0]);
    if (seen == 1) {
        OK(result_of(b));
        OK(cede_release(&other));
    }
    close_both(0);
    return first;
}

TEST(the_most_urgent_request_has_the_lease)
{
    unsigned wait_us = 1000;
    while (!the_queue_is_first(wait_us)) {
        wait_us *= 2;
        assert_true(wait_us < 10000000);
    }
}

TEST(shut_down_while_waiting)
{
    struct cede_lease held;
    void *user;
    open_both(1, CEDE_QUEUE_EDF);
    OK(cede_acquire(pool, 0, NULL, NULL, 0, &held));
    add(0, CEDE_BATCH);
    const pthread_t a = start(takes_batch, &batch[0]);
    until_waiting(pool, 1);
    cede_queue_shutdown(queue); /* what waits may still come out */
    until_waiting(pool, 1);
    OK(cede_queue_reclaim(queue, &user));
    assert_int_equal(result_of(a), -ESHUTDOWN);
    assert_int_equal(pool_stats(pool, 0).waiting, 0);
    assert_int_equal(cede_queue_reclaim(queue, &user), -ENOENT);
    close_both(1);
}

TEST(a_pool_that_is_closed)
{
    open_both(1, CEDE_QUEUE_EDF);
    add(0, CEDE_NORMAL);
    assert_int_equal(next(&batch[0]), 0);
    add(0, CEDE_NORMAL);
    cede_pool_close(pool);
    assert_int_equal(next(&batch[1]), -ESHUTDOWN);
    assert_non_null(strstr(cede_error_text(), "pool or memory is closed: stop asking"));
    done(&batch[0]);
    cede_queue_close(queue);
    for (int pooled = 0; pooled < 2; pooled++) {
        struct cede_memory *m = OPEN(memory, .flags = CEDE_MEMORY_NO_GPU, .total_bytes = 1000);
        pool = OPEN(pool, .flags = CEDE_POOL_NO_GPU);
        queue = pooled ? OPEN(queue, .pool = pool) : OPEN(queue, .memory = &m);
        pthread_t t = start(takes_batch, &batch[0]);
        usleep(1000); /* it is idle there */
        OK(pooled ? cede_pool_close(pool) : cede_memory_close(m));
        assert_int_equal(result_of(t), -ESHUTDOWN);
        assert_int_equal(cede_queue_submit(queue, &(struct cede_queue_request){0}, NULL),
                         -ESHUTDOWN);
        cede_queue_close(queue);
        OK(pooled ? cede_memory_close(m) : cede_pool_close(pool));
    }
}

#define REQUESTS 2000

static void *work(void *arg)
{
    struct cede_queue_batch b;
    intptr_t r;
    while ((r = cede_queue_next(queue, 0, CEDE_TIMEOUT_FOREVER, &b)) == 0) {
        if (pool_stats(pool, 0).active > 3 || cede_queue_done(queue, &b, 0))
            abort();
    }
    return (void *)r;
}

/* Six threads, three leases: all requests run, no thread is left behind. */
TEST(threads)
{
    pthread_t t[6];
    open_both(3, CEDE_QUEUE_PRIORITY);
    start_threads(t, 6, work);
    for (uint32_t i = 0; i < REQUESTS;) {
        struct cede_queue_request r = {.model = i % 3, .cls = (enum cede_class)((int)(i % 3) - 1)};
        i += cede_queue_submit(queue, &r, NULL) == 0;
    }
    UNTIL(STATS(queue, queue).ended == REQUESTS);
    cede_queue_shutdown(queue);
    assert_int_equal(join_threads(t, 6, -ESHUTDOWN), 6);
    close_both(0);
}

static struct cede_queue *shut_now; /* NULL: none */

/* In place of libcede's own (--wrap): between a lease and its batch. */
typeof(cede_lease_acquire) __real_cede_lease_acquire, __wrap_cede_lease_acquire;
int __wrap_cede_lease_acquire(struct cede_pool *p, struct lease_owner *owner, int device,
                              const char *kernel, const struct cede_shape *shape,
                              cede_timeout timeout_us, struct cede_lease *out)
{
    int r = __real_cede_lease_acquire(p, owner, device, kernel, shape, timeout_us, out);
    if (shut_now)
        cede_queue_shutdown(shut_now);
    return r;
}

TEST(shut_down_while_a_lease_comes)
{
    open_both(1, CEDE_QUEUE_FIFO);
    add(0, CEDE_NORMAL);
    shut_now = queue;
    OK(cede_queue_next(queue, 0, CEDE_TIMEOUT_FOREVER, &batch[0]));
    shut_now = NULL;
    done(&batch[0]);
    assert_int_equal(cede_queue_next(queue, 0, CEDE_TIMEOUT_FOREVER, &batch[0]), -ESHUTDOWN);
    close_both(0);
}
