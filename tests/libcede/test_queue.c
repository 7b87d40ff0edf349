/* libcede's queue: order, refusals, batches, learning, ends; threads. The decisions have tests of
 * their own in virtual time (tests/libcede/pure); no wall-clock time is asserted here. */
#include "cede/queue.h"

#include <stdatomic.h>

#include "fixture.h"

#define MS 1000ULL /* us */

static struct cede_queue_batch batch; /* 2 KB */

#define QUEUE(...) OPEN(queue, .batch_max = 1, ##__VA_ARGS__)

static uint64_t add(struct cede_queue *q, uint32_t model, enum cede_class cls, uint64_t deadline_us)
{
    struct cede_queue_request r = {
        .model = model, .cls = cls, .deadline_us = deadline_us, .user = &batch.user[model]};
    struct cede_queue_ticket t;
    OK(cede_queue_submit(q, &r, &t));
    assert_true(t.answer == CEDE_QUEUE_RUNS || t.answer == CEDE_QUEUE_WAITS);
    return t.id;
}

static enum cede_queue_answer refused(struct cede_queue *q, uint64_t deadline_us)
{
    struct cede_queue_request r = {.deadline_us = deadline_us};
    struct cede_queue_ticket t;
    assert_int_equal(cede_queue_submit(q, &r, &t), -EBUSY);
    assert_int_equal(t.id, 0);
    return t.answer;
}

/* The next batch, which is then done. */
static void run_next(struct cede_queue *q, int failed)
{
    OK(cede_queue_next(q, 0, 0, &batch));
    assert_ptr_equal(batch.user[0], &batch.user[batch.model]);
    OK(cede_queue_done(q, &batch, failed));
}

TEST(order)
{
    static const uint32_t expected[][4] = {
        [CEDE_QUEUE_FIFO] = {0, 1, 2, 3},
        [CEDE_QUEUE_PRIORITY] = {2, 1, 0, 3}, /* 1 is of class normal, as nobody said otherwise */
        [CEDE_QUEUE_EDF] = {3, 0, 2, 1},
        [CEDE_QUEUE_LAXITY] = {3, 2, 1, 0}, /* 3 has less than urgent_us to spare */
    };
    for (unsigned p = 0; p < 4; p++) {
        struct cede_queue *q =
            QUEUE(.policy = (enum cede_queue_policy)p, .urgent_us = 3600000 * MS);
        add(q, 0, CEDE_BATCH, 0x2000000 * MS);
        add(q, 1, (enum cede_class)0, 0x8000000 * MS);
        add(q, 2, CEDE_LATENCY, 0x4000000 * MS);
        add(q, 3, CEDE_BATCH, 1000000 * MS);
        for (unsigned i = 0; i < 4; i++) {
            run_next(q, 0);
            assert_int_equal(batch.model, expected[p][i]);
        }
        assert_int_equal(cede_queue_next(q, 0, 0, &batch), -EAGAIN);
        assert_true(batch.retry_us == CEDE_TIMEOUT_FOREVER);
        cede_queue_close(q);
    }
}

/* Devices count from 0, and a request that names none goes to the one with the least to do. */
TEST(the_preferred_device)
{
    static const int device[] = {0, 0, CEDE_ANY_DEVICE, CEDE_PREFER_DEVICE(2)};
    static const unsigned where[] = {0, 1, 2, 2};
    struct cede_queue_ticket t;
    struct cede_queue *q = QUEUE(.devices = 3);
    for (unsigned i = 0; i < 4; i++) {
        const struct cede_queue_request r = {.device = device[i]};
        OK(cede_queue_submit(q, &r, &t));
        assert_int_equal(t.device, where[i]);
    }
    cede_queue_close(q);
}

TEST(refusals)
{
    /* Against this time the test's own is nothing. */
    struct cede_queue *q = QUEUE(.admit = 1, .expected_us = 1000000 * MS, .capacity = 2);
    add(q, 0, CEDE_NORMAL, 1900000 * MS);
    assert_int_equal(refused(q, 900000 * MS), CEDE_QUEUE_ALONE);
    assert_int_equal(refused(q, 1950000 * MS), CEDE_QUEUE_BEHIND);
    assert_int_equal(refused(q, 1500000 * MS), CEDE_QUEUE_OTHERS);
    add(q, 1, CEDE_NORMAL, 0);
    assert_int_equal(refused(q, 0), CEDE_QUEUE_FULL);
    assert_non_null(strstr(cede_queue_text(CEDE_QUEUE_OTHERS), "admitted"));
    assert_string_equal(cede_queue_text((enum cede_queue_answer)77), "unknown");
    run_next(q, 0); /* and it learns that model 0 takes next to nothing */
    add(q, 0, CEDE_NORMAL, 10000 * MS);
    HAS(STATS(queue, q), (alone, 1), (behind, 1), (others, 1), (full, 1), (submitted, 3),
        (ended, 1), (waiting, 2), (late, 0));
    assert_true(STATS(queue, q).p50_us <= STATS(queue, q).p99_us);
    cede_queue_close(q);
}

TEST(a_failed_batch_teaches_nothing)
{
    struct cede_queue *q = QUEUE(.admit = 1, .expected_us = 1000000 * MS);
    add(q, 0, CEDE_NORMAL, 0);
    run_next(q, 1);
    add(q, 0, CEDE_NORMAL, 0); /* so that the queue is not idle */
    assert_int_equal(refused(q, 10000 * MS), CEDE_QUEUE_ALONE);
    cede_queue_close(q);
}

/* A batch was slow once: the first of a thread that loads its kernels, say. */
TEST(a_slow_batch_does_not_refuse_for_ever)
{
    struct cede_queue_request r = {.deadline_us = 20000};
    struct cede_queue_ticket t;
    struct cede_queue *q = QUEUE(.admit = 1, .expected_us = 1);
    unsigned tries = 0;
    add(q, 0, CEDE_NORMAL, 0);
    OK(cede_queue_next(q, 0, 0, &batch));
    usleep(40000);
    OK(cede_queue_done(q, &batch, 0));
    add(q, 1, CEDE_NORMAL, 0); /* else the queue is idle, and takes it at once */
    assert_int_equal(refused(q, 20000), CEDE_QUEUE_ALONE);
    while (tries++ < 1000 && cede_queue_submit(q, &r, &t) == -EBUSY)
        assert_int_equal(t.answer, CEDE_QUEUE_ALONE);
    assert_in_range(tries, 2, 999);
    cede_queue_close(q);
}

TEST(batches)
{
    struct cede_queue *q = OPEN(queue, .batch_max = 4, .batch_wait_us = 1000000 * MS);
    for (uint32_t i = 0; i < 4; i++)
        add(q, i == 3, CEDE_NORMAL, 0); /* another model does not join */
    assert_int_equal(cede_queue_next(q, 0, 0, &batch), -EAGAIN);
    assert_true(batch.retry_us > 0 && batch.retry_us <= (cede_timeout)(1000000 * MS));
    assert_int_equal(cede_queue_next(q, 0, 1, &batch), -ETIMEDOUT);
    add(q, 0, CEDE_NORMAL, 0);
    OK(cede_queue_next(q, 0, CEDE_TIMEOUT_FOREVER, &batch));
    HAS(batch, (n, 4), (model, 0));
    assert_int_equal(cede_queue_next(q, 0, 0, &batch), -EAGAIN); /* the device is taken */
    OK(cede_queue_set_model(q, 2, 8, 0, 1000));
    cede_queue_close(q);
    q = OPEN(queue, .batch_max = 4, .batch_wait_us = 1000000 * MS);
    OK(cede_queue_set_model(q, 2, 8, 1, 1000));
    add(q, 2, CEDE_NORMAL, 0);
    OK(cede_queue_next(q, 0, CEDE_TIMEOUT_FOREVER, &batch)); /* no other request comes */
    assert_int_equal(batch.n, 1);
    cede_queue_close(q);
}

TEST(requests_are_reported)
{
    cede_handle *c;
    OK(cede_connect(&c));
    struct cede_queue *q = QUEUE(.client = c);
    add(q, 0, CEDE_NORMAL, 1000000 * MS);
    add(q, 1, CEDE_NORMAL, 0);
    run_next(q, 0);
    assert_string_equal(reported(c), "2 begun, 1 ended, 1 due, 1 met");
    run_next(q, 0);
    /* What fails, is cancelled or still waits at the end was not served in time. */
    add(q, 0, CEDE_NORMAL, 1000000 * MS);
    run_next(q, 1);
    OK(cede_queue_cancel(q, add(q, 0, CEDE_NORMAL, 1000000 * MS)));
    add(q, 0, CEDE_NORMAL, 1000000 * MS);
    cede_queue_close(q);
    assert_string_equal(reported(c), "5 begun, 5 ended, 4 due, 1 met");
    cede_close(c);
}

/* ---- threads --------------------------------------------------------------------------------- */

#define WORKERS    3
#define SUBMITTERS 4
#define REQUESTS   2000

static struct cede_queue *shared;
static atomic_uint given[SUBMITTERS][REQUESTS]; /* how often each came back */
static atomic_uint admitted[SUBMITTERS][REQUESTS];
static atomic_bool stop;

static void *worker(void *arg)
{
    struct cede_queue_batch *b = calloc(1, sizeof(*b));
    int r;
    while ((r = cede_queue_next(shared, (unsigned)(uintptr_t)arg % 2, CEDE_TIMEOUT_FOREVER, b)) ==
           0) {
        for (uint32_t i = 0; i < b->n; i++)
            atomic_fetch_add((atomic_uint *)b->user[i], 1);
        cede_queue_done(shared, b, b->n == 3);
    }
    free(b);
    return (void *)(intptr_t)r;
}

static void *submitter(void *arg)
{
    unsigned me = (unsigned)(uintptr_t)arg - 1, seed = me;
    for (unsigned i = 0; i < REQUESTS && !atomic_load(&stop); i++) {
        struct cede_queue_ticket t;
        struct cede_queue_request r = {.model = (uint32_t)rand_r(&seed) % 3,
                                       .shape = (uint64_t)rand_r(&seed) % 2,
                                       .cls = (enum cede_class)(rand_r(&seed) % 3 - 1),
                                       .deadline_us = (uint64_t)rand_r(&seed) % 5000,
                                       .user = &given[me][i]};
        if (cede_queue_submit(shared, &r, &t) != 0)
            continue;
        atomic_store(&admitted[me][i], 1);
        if (i % 7 == 0 && cede_queue_cancel(shared, t.id) == 0)
            atomic_fetch_add(&given[me][i], 1);
    }
    return NULL;
}

/* Every admitted request comes back exactly once: run, cancelled or, where the queue is shut
 * down under load, reclaimed. */
TEST(nothing_is_lost)
{
    for (unsigned round = 0; round < 8; round++) {
        pthread_t w[WORKERS], s[SUBMITTERS];
        const bool early = round % 2;
        void *user;
        memset(given, 0, sizeof(given));
        memset(admitted, 0, sizeof(admitted));
        atomic_store(&stop, false);
        shared = OPEN(queue, .policy = (enum cede_queue_policy)(round / 2), .devices = 2,
                      .admit = round >= 4, .capacity = 64, .batch_max = 4, .batch_wait_us = 100,
                      .expected_us = 10);
        start_threads(w, WORKERS, worker);
        start_threads(s, SUBMITTERS, submitter);
        if (early) {
            UNTIL(STATS(queue, shared).submitted);
            cede_queue_shutdown(shared);
            atomic_store(&stop, true);
        }
        join_threads(s, SUBMITTERS, 0);
        UNTIL(early || !STATS(queue, shared).waiting);
        cede_queue_shutdown(shared);
        assert_int_equal(join_threads(w, WORKERS, -ESHUTDOWN), WORKERS);
        while (cede_queue_reclaim(shared, &user) == 0)
            atomic_fetch_add((atomic_uint *)user, 1);
        const struct cede_queue_statistics stats = STATS(queue, shared);
        OK(stats.waiting + stats.running);
        assert_int_equal(stats.submitted, stats.ended + stats.failed + stats.cancelled);
        assert_true(stats.submitted > 0);
        for (unsigned i = 0; i < SUBMITTERS; i++) {
            for (unsigned k = 0; k < REQUESTS; k++) {
                if (atomic_load(&given[i][k]) != atomic_load(&admitted[i][k]))
                    fail_msg("round %u: %u of %u came back %u times", round, k, i, given[i][k]);
            }
        }
        cede_queue_close(shared);
    }
}

int main(void)
{
    char dir[] = "/tmp/cede-test-queue-XXXXXX";
    if (!mkdtemp(dir))
        return 1;
    setenv("CEDE_DIR", dir, 1); /* no daemon there */
    int r = test_run(NULL, NULL);
    rmdir(dir);
    return r;
}
