/* Leases of libcede without a GPU: threads that wait and release, and everything that can be done
 * wrong with a lease. */
#include <stdatomic.h>
#include <unistd.h>

#include "fixture.h"

static struct cede_pool *open_pool(unsigned devices, unsigned streams)
{
    return OPEN(pool, .flags = CEDE_POOL_NO_GPU, .devices = devices,
                .max_concurrent_streams = streams);
}

TEST(defaults_are_what_they_are_said_to_be)
{
    const struct cede_pool_config c = CONFIG(pool);
    assert_true(c.max_total_occupancy == 2 && c.unknown_occupancy == 0.25);
    HAS(c, (max_concurrent_streams, 16), (urgent_us, 1000), (target_utilization_percent, 100),
        (displace, 2), (utilization_polling_us, 200000), (block_timeout_us, 5000000),
        (stream_timeout_us, 1000000));
    assert_true(c.memory_reserve_fraction == 0.1);
}

TEST(a_lease_ends_once)
{
    struct cede_pool *p = open_pool(1, 2), *q;
    struct cede_lease a, b, first, garbage;
    memset(&garbage, 0xA5, sizeof(garbage));
    OK(cede_acquire(p, CEDE_ANY_DEVICE, NULL, NULL, 0, &a));
    assert_null(a.stream);
    first = a;
    assert_int_equal(a.device, 0);
    OK(cede_acquire(p, 0, NULL, NULL, 0, &b));
    assert_int_equal(cede_acquire(p, 0, NULL, NULL, 0, &garbage), -EAGAIN);
    assert_int_equal(cede_release(&garbage), -ESTALE);
    OK(cede_release(&a));
    assert_int_equal(cede_release(&a), -ESTALE);
    struct cede_lease again;
    OK(cede_acquire(p, 0, NULL, NULL, 0, &again)); /* in the same slot */
    assert_int_equal(cede_release(&a), -ESTALE);
    assert_int_equal(pool_stats(p, 0).active, 2);
    OK(cede_pool_close(p));
    q = open_pool(1, 2); /* in the same place */
    assert_ptr_equal(p, q);
    OK(cede_acquire(q, 0, NULL, NULL, 0, &a));
    assert_int_equal(cede_release(&b), -ESTALE);
    assert_int_equal(cede_release(&again), -ESTALE);
    assert_int_equal(cede_release(&first), -ESTALE);
    assert_int_equal(pool_stats(q, 0).active, 1);
    OK(cede_pool_close(q));
}

TEST(a_missing_stream_ends_a_wait_for_ever)
{
    struct cede_lease l;
    struct cede_pool *p = OPEN(pool, .flags = CEDE_POOL_NO_GPU, .max_concurrent_streams = 2,
                               .streams = 1, .stream_timeout_us = 10000, .age_us = 3600 * S);
    OK(cede_acquire(p, 0, NULL, NULL, 0, &l));
    assert_int_equal(cede_acquire(p, 0, NULL, NULL, CEDE_TIMEOUT_FOREVER, &l), -ETIMEDOUT);
    HAS(pool_stats(p, 0), (timed_out, 1), (waiting, 0));
    OK(cede_pool_close(p));
}

/* A waiting lease displaces once its slack is gone, though nothing else happens then; those that it
 * displaces see that until it ends. */
TEST(a_waiting_lease_displaces_in_time)
{
    struct cede_shape due = {.due_us = 20000};
    struct cede_lease a, b, none = {.device = 0};
    struct cede_pool *p =
        OPEN(pool, .flags = CEDE_POOL_NO_GPU, .max_concurrent_streams = 1, .displace = 1);
    OK(cede_acquire(p, 0, NULL, NULL, 0, &a));
    OK(cede_lease_wanted(&a));
    assert_int_equal(cede_acquire(p, 0, NULL, &due, 0, &b), -EAGAIN); /* it has time yet */
    OK(cede_acquire(p, 0, NULL, &due, 60 * S, &b));
    assert_true(b.urgent);
    HAS(pool_stats(p, 0), (displaced, 1), (active, 2));
    assert_int_equal(cede_lease_wanted(&a), 1);
    OK(cede_lease_wanted(&b));
    OK(cede_lease_wanted(NULL));
    OK(cede_lease_wanted(&none));
    OK(cede_release(&b));
    OK(cede_lease_wanted(&a));
    due.due_us = 1;
    OK(cede_acquire(p, 0, NULL, &due, 0, &b)); /* a try displaces too */
    assert_int_equal(cede_acquire(p, 0, NULL, &due, 0, &none), -EAGAIN);
    OK(cede_pool_close(p));
    OK(cede_lease_wanted(&a));
}

/* With a handle leases with a deadline are requests, from asking to release, however they end. One
 * that timed out has met no deadline; a try in vain is no request. */
TEST(leases_with_a_deadline_are_reported)
{
    struct cede_shape due = {.due_us = 60 * S};
    struct cede_lease a, b;
    cede_handle *c;
    OK(cede_connect(&c));
    struct cede_pool *p =
        OPEN(pool, .flags = CEDE_POOL_NO_GPU, .max_concurrent_streams = 1, .client = c);
    OK(cede_acquire(p, 0, NULL, NULL, 0, &a));
    assert_string_equal(reported(c), "0 begun, 0 ended, 0 due, 0 met");
    assert_int_equal(cede_acquire(p, 0, NULL, &due, 1000, &b), -ETIMEDOUT);
    assert_int_equal(cede_acquire(p, 0, NULL, &due, 0, &b), -EAGAIN);
    assert_string_equal(reported(c), "1 begun, 1 ended, 1 due, 0 met");
    OK(cede_release(&a));
    OK(cede_acquire(p, 0, NULL, &due, 0, &a));
    assert_string_equal(reported(c), "2 begun, 1 ended, 1 due, 0 met");
    OK(cede_release(&a));
    assert_string_equal(reported(c), "2 begun, 2 ended, 2 due, 1 met");
    OK(cede_acquire(p, 0, NULL, &due, 0, &a));
    OK(cede_pool_close(p));
    assert_string_equal(reported(c), "3 begun, 3 ended, 3 due, 2 met");
    p = OPEN(pool, .flags = CEDE_POOL_NO_GPU | CEDE_POOL_REPORT_ALL, .client = c);
    OK(cede_acquire(p, 0, NULL, NULL, S, &a));
    OK(cede_release(&a));
    assert_string_equal(reported(c), "4 begun, 4 ended, 3 due, 2 met");
    OK(cede_pool_close(p));
    cede_close(c);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 8, ROUNDS = 400, LIMIT = 3 };

static struct cede_pool *shared;
static atomic_int running[2], most, got, late;

static void *hammer(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    struct cede_shape s = {.priority = (int)(uintptr_t)arg % 3};
    for (int i = 0; i < ROUNDS; i++) {
        struct cede_lease l;
        int64_t timeout = rand_r(&seed) % 8 ? 30 * S : rand_r(&seed) % 100;
        int r = cede_acquire(shared, rand_r(&seed) % 2, NULL, &s, timeout, &l);
        if (r) {
            late += r == -ETIMEDOUT || r == -EAGAIN;
            continue;
        }
        int n = ++running[l.device];
        if (n > most)
            most = n;
        if (rand_r(&seed) % 4 == 0)
            usleep((unsigned)rand_r(&seed) % 50);
        running[l.device]--;
        got += cede_release(&l) == 0;
    }
    return NULL;
}

TEST(never_more_than_the_limit_and_none_lost)
{
    pthread_t t[THREADS];
    shared = open_pool(2, LIMIT);
    got = late = most = 0;
    start_threads(t, THREADS, hammer);
    assert_int_equal(join_threads(t, THREADS, 0), THREADS);
    assert_int_equal(got + late, THREADS * ROUNDS);
    assert_true(got > THREADS * ROUNDS / 2);
    assert_true(most >= 2 && most <= LIMIT);
    assert_int_equal(pool_stats(shared, 0).started + pool_stats(shared, 1).started, got);
    assert_int_equal(pool_stats(shared, 0).active + pool_stats(shared, 1).waiting, 0);
    OK(cede_pool_close(shared));
}

static struct cede_lease disputed;
static atomic_int released;

static void *release(void *arg)
{
    int r = cede_release(&disputed);
    released += r == 0;
    return (void *)(intptr_t)r;
}

TEST(of_many_releases_one_counts)
{
    shared = open_pool(1, 1);
    for (int i = 0; i < 50; i++) {
        pthread_t t[4];
        released = 0;
        OK(cede_acquire(shared, 0, NULL, NULL, 0, &disputed));
        start_threads(t, 4, release);
        assert_int_equal(join_threads(t, 4, -ESTALE), 3);
        assert_int_equal(released, 1);
    }
    OK(cede_pool_close(shared));
}
