/* libcede's queue: order, refusals, batches, learning, ends; threads. The decisions have tests of
 * their own in virtual time (tests/libcede/pure); no wall-clock time is asserted here. */
#include "cede/queue.h"

#include <stdatomic.h>
#include <unistd.h>

#include "pools.h"

#define MS 1000ULL /* us */

static struct cede_queue_batch batch; /* 2 KB */

static struct cede_queue_config plain(enum cede_queue_policy policy)
{
    struct cede_queue_config c;
    cede_queue_defaults(&c);
    c.policy = policy;
    c.batch_max = 1;
    return c;
}

static struct cede_queue *open_queue(const struct cede_queue_config *c)
{
    struct cede_queue *q;
    OK(cede_queue_open(c, &q));
    return q;
}

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

/* Model of the next batch, which is then done. */
static uint32_t next_model(struct cede_queue *q)
{
    OK(cede_queue_next(q, 0, 0, &batch));
    assert_ptr_equal(batch.user[0], &batch.user[batch.model]);
    OK(cede_queue_done(q, &batch, 0));
    return batch.model;
}

TEST(order)
{
    static const uint32_t expected[][4] = {
        [CEDE_FIFO] = {0, 1, 2, 3},
        [CEDE_PRIORITY] = {2, 1, 0, 3},
        [CEDE_EDF] = {3, 0, 2, 1},
        [CEDE_LAXITY] = {3, 2, 1, 0}, /* 3 has less than urgent_us to spare */
    };
    for (unsigned p = 0; p < 4; p++) {
        struct cede_queue_config c = plain((enum cede_queue_policy)p);
        c.urgent_us = 3600000 * MS;
        struct cede_queue *q = open_queue(&c);
        add(q, 0, CEDE_BATCH, 0x2000000 * MS);
        add(q, 1, CEDE_NORMAL, 0x8000000 * MS);
        add(q, 2, CEDE_LATENCY, 0x4000000 * MS);
        add(q, 3, CEDE_BATCH, 1000000 * MS);
        for (unsigned i = 0; i < 4; i++)
            assert_int_equal(next_model(q), expected[p][i]);
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
    struct cede_queue_config c = plain(CEDE_FIFO);
    struct cede_queue_ticket t;
    c.devices = 3;
    struct cede_queue *q = open_queue(&c);
    for (unsigned i = 0; i < 4; i++) {
        const struct cede_queue_request r = {.device = device[i]};
        OK(cede_queue_submit(q, &r, &t));
        assert_int_equal(t.device, where[i]);
    }
    cede_queue_close(q);
}

/* As with all defaults: what is 0 is the class that nobody asked to change. */
TEST(a_zeroed_request_is_of_class_normal)
{
    const struct cede_queue_request zeroed = {.user = &batch.user[0]};
    struct cede_queue_config c = plain(CEDE_PRIORITY);
    struct cede_queue *q = open_queue(&c);
    add(q, 2, CEDE_BATCH, 0);
    OK(cede_queue_submit(q, &zeroed, NULL));
    add(q, 1, CEDE_LATENCY, 0);
    assert_int_equal(next_model(q), 1);
    assert_int_equal(next_model(q), 0);
    assert_int_equal(next_model(q), 2);
    cede_queue_close(q);
}

TEST(refusals)
{
    struct cede_queue_config c = plain(CEDE_EDF);
    struct cede_queue_statistics s;
    c.admit = 1;
    c.expected_us = 1000000 * MS; /* against which this test's own time is nothing */
    c.capacity = 2;
    struct cede_queue *q = open_queue(&c);
    add(q, 0, CEDE_NORMAL, 1900000 * MS);
    assert_int_equal(refused(q, 900000 * MS), CEDE_QUEUE_ALONE);
    assert_int_equal(refused(q, 1950000 * MS), CEDE_QUEUE_BEHIND);
    assert_int_equal(refused(q, 1500000 * MS), CEDE_QUEUE_OTHERS);
    add(q, 1, CEDE_NORMAL, 0);
    assert_int_equal(refused(q, 0), CEDE_QUEUE_FULL);
    assert_non_null(strstr(cede_queue_text(CEDE_QUEUE_OTHERS), "admitted"));
    assert_string_equal(cede_queue_text((enum cede_queue_answer)77), "unknown");
    next_model(q); /* and it learns that model 0 takes next to nothing */
    struct cede_queue_request r = {.deadline_us = 10000 * MS};
    struct cede_queue_ticket t;
    OK(cede_queue_submit(q, &r, &t));
    OK(cede_queue_get_statistics(q, &s, sizeof(s)));
    assert_int_equal(s.alone + s.behind * 10 + s.others * 100 + s.full * 1000, 1111);
    HAS(s, (submitted, 3), (ended, 1), (waiting, 2), (late, 0));
    assert_true(s.p50_us <= s.p99_us);
    cede_queue_close(q);
}

TEST(a_failed_batch_teaches_nothing)
{
    struct cede_queue_config c = plain(CEDE_EDF);
    c.admit = 1;
    c.expected_us = 1000000 * MS;
    struct cede_queue *q = open_queue(&c);
    add(q, 0, CEDE_NORMAL, 0);
    OK(cede_queue_next(q, 0, 0, &batch));
    OK(cede_queue_done(q, &batch, 1));
    add(q, 0, CEDE_NORMAL, 0); /* so that the queue is not idle */
    assert_int_equal(refused(q, 10000 * MS), CEDE_QUEUE_ALONE);
    cede_queue_close(q);
}

/* A batch was slow once: the first of a thread that loads its kernels, say. */
TEST(a_slow_batch_does_not_refuse_for_ever)
{
    struct cede_queue_config c = plain(CEDE_EDF);
    struct cede_queue_request r = {.deadline_us = 20000};
    struct cede_queue_ticket t;
    unsigned tries = 0;
    c.admit = 1;
    c.expected_us = 1;
    struct cede_queue *q = open_queue(&c);
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
    struct cede_queue_config c;
    cede_queue_defaults(&c);
    c.batch_max = 4;
    c.batch_wait_us = 1000000 * MS;
    struct cede_queue *q = open_queue(&c);
    for (uint32_t i = 0; i < 3; i++)
        add(q, 0, CEDE_NORMAL, 0);
    add(q, 1, CEDE_NORMAL, 0); /* another model does not join */
    assert_int_equal(cede_queue_next(q, 0, 0, &batch), -EAGAIN);
    assert_true(batch.retry_us > 0 && batch.retry_us <= (cede_timeout)(1000000 * MS));
    assert_int_equal(cede_queue_next(q, 0, 1, &batch), -ETIMEDOUT);
    add(q, 0, CEDE_NORMAL, 0);
    OK(cede_queue_next(q, 0, CEDE_TIMEOUT_FOREVER, &batch));
    HAS(batch, (n, 4), (model, 0));
    assert_int_equal(cede_queue_next(q, 0, 0, &batch), -EAGAIN); /* the device is taken */
    OK(cede_queue_set_model(q, 2, 8, 0, 1000));
    cede_queue_close(q);
    q = open_queue(&c);
    OK(cede_queue_set_model(q, 2, 8, 1, 1000));
    add(q, 2, CEDE_NORMAL, 0);
    OK(cede_queue_next(q, 0, CEDE_TIMEOUT_FOREVER, &batch)); /* no other request comes */
    assert_int_equal(batch.n, 1);
    cede_queue_close(q);
}

TEST(tickets)
{
    struct cede_queue_config c = plain(CEDE_FIFO);
    struct cede_queue *q = open_queue(&c);
    uint64_t a = add(q, 0, CEDE_NORMAL, 0), b = add(q, 1, CEDE_NORMAL, 0);
    OK(cede_queue_next(q, 0, 0, &batch));
    assert_true(batch.ticket[0] == a);
    assert_int_equal(cede_queue_cancel(q, a), -EBUSY);
    OK(cede_queue_cancel(q, b));
    assert_int_equal(cede_queue_cancel(q, b), -ENOENT);
    assert_int_equal(cede_queue_cancel(q, UINT64_MAX), -ENOENT);
    struct cede_queue_batch wrong = batch;
    wrong.id++;
    assert_int_equal(cede_queue_done(q, &wrong, 0), -ENOENT);
    wrong.device = 9;
    assert_int_equal(cede_queue_done(q, &wrong, 0), -ENOENT);
    OK(cede_queue_done(q, &batch, 0));
    assert_int_equal(cede_queue_done(q, &batch, 0), -ENOENT);
    assert_int_equal(cede_queue_cancel(q, a), -ENOENT);
    uint64_t again = add(q, 0, CEDE_NORMAL, 0); /* in the same place, another ticket */
    assert_true(again != a && again != b);
    cede_queue_close(q);
}

TEST(requests_are_reported)
{
    struct cede_queue_config c = plain(CEDE_EDF);
    OK(cede_connect(&c.cede));
    struct cede_queue *q = open_queue(&c);
    add(q, 0, CEDE_NORMAL, 1000000 * MS);
    add(q, 1, CEDE_NORMAL, 0);
    next_model(q);
    assert_string_equal(reported(c.cede), "2 begun, 1 ended, 1 due, 1 met");
    next_model(q);
    /* What fails, is cancelled or still waits at the end was not served in time. */
    struct cede_queue_request soon = {.deadline_us = 1000000 * MS};
    struct cede_queue_ticket t;
    OK(cede_queue_submit(q, &soon, NULL));
    OK(cede_queue_next(q, 0, 0, &batch));
    OK(cede_queue_done(q, &batch, 1));
    OK(cede_queue_submit(q, &soon, &t));
    OK(cede_queue_cancel(q, t.id));
    OK(cede_queue_submit(q, &soon, NULL));
    cede_queue_close(q);
    assert_string_equal(reported(c.cede), "5 begun, 5 ended, 4 due, 1 met");
    cede_close(c.cede);
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
        struct cede_queue_config c;
        struct cede_queue_statistics stats;
        bool early = round % 2;
        void *user;
        memset(given, 0, sizeof(given));
        memset(admitted, 0, sizeof(admitted));
        atomic_store(&stop, false);
        cede_queue_defaults(&c);
        c.policy = (enum cede_queue_policy)(round / 2);
        c.devices = 2;
        c.admit = round >= 4;
        c.capacity = 64;
        c.batch_max = 4;
        c.batch_wait_us = 100;
        c.expected_us = 10;
        shared = open_queue(&c);
        start_threads(w, WORKERS, worker);
        start_threads(s, SUBMITTERS, submitter);
        if (early) {
            do
                cede_queue_get_statistics(shared, &stats, sizeof(stats));
            while (!stats.submitted && usleep(100) == 0);
            cede_queue_shutdown(shared);
            atomic_store(&stop, true);
        }
        join_threads(s, SUBMITTERS, 0);
        do {
            cede_queue_get_statistics(shared, &stats, sizeof(stats));
        } while (!early && stats.waiting && usleep(100) == 0);
        cede_queue_shutdown(shared);
        assert_int_equal(join_threads(w, WORKERS, -ESHUTDOWN), WORKERS);
        while (cede_queue_reclaim(shared, &user) == 0)
            atomic_fetch_add((atomic_uint *)user, 1);
        cede_queue_get_statistics(shared, &stats, sizeof(stats));
        assert_int_equal(stats.waiting + stats.running, 0);
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
