/* Scopes of libcede: every task ends, the first failure counts, nothing is left behind (the
 * sanitizers see to memory and threads). */
#include <stdatomic.h>
#include <unistd.h>

#include "cede/memory.h"
#include "cede/queue.h"
#include "cede/scope.h"
#include "pools.h"

static atomic_int begun, ended;
static struct cede_pool *pool;

static int begin_test(void **state)
{
    struct cede_pool_config c = no_gpu(0, 2);
    begun = ended = 0;
    return cede_pool_open(&c, &pool);
}

/* No test may leave a lease. */
static int end_test(void **state)
{
    struct cede_pool_statistics s;
    int r = cede_pool_get_statistics(pool, 0, &s, sizeof(s));
    cede_pool_close(pool);
    return r || s.active || s.waiting ? -1 : 0;
}

static struct cede_scope *open_scope(struct cede_scope *parent, unsigned threads, int64_t us)
{
    struct cede_scope *s;
    assert_int_equal(cede_scope_open(&s, parent, threads, us), 0);
    return s;
}

static void ends(struct cede_scope *s, int result)
{
    assert_int_equal(cede_scope_join(s), result);
    assert_int_equal(cede_scope_close(s), result);
}

static int count(struct cede_scope *s, void *arg)
{
    begun++;
    ended++;
    return 0;
}

static int fails(struct cede_scope *s, void *arg)
{
    begun++;
    return (int)(intptr_t)arg;
}

static int until_cancelled(struct cede_scope *s, void *arg)
{
    begun++;
    while (!cede_scope_cancelled(s))
        usleep(100);
    ended++;
    return arg ? -EIO : 0; /* too late to be the first */
}

/* A scope without threads, in which the second of twelve tasks fails. */
static struct cede_scope *second_fails(void)
{
    struct cede_scope *s = open_scope(NULL, 0, CEDE_TIMEOUT_FOREVER);
    begun = 0;
    cede_scope_fork(s, count, NULL);
    cede_scope_fork(s, fails, (void *)(intptr_t)-EBADMSG);
    for (int i = 0; i < 10; i++)
        cede_scope_fork(s, count, NULL);
    return s;
}

TEST_WITH(all_run_with_any_number_of_threads, begin_test, end_test)
{
    for (unsigned threads = 0; threads < 5; threads++) {
        struct cede_scope *s = open_scope(NULL, threads, CEDE_TIMEOUT_FOREVER);
        begun = 0;
        for (int i = 0; i < 100; i++)
            assert_int_equal(cede_scope_fork(s, count, NULL), 0);
        assert_int_equal(cede_scope_join(s), 0);
        assert_int_equal(begun, 100);
        assert_int_equal(cede_scope_fork(s, count, NULL), -EBUSY);
        assert_int_equal(cede_scope_join(s), 0);
        assert_int_equal(cede_scope_close(s), 0);
    }
    struct cede_scope *s = open_scope(NULL, 3, CEDE_TIMEOUT_FOREVER);
    assert_int_equal(cede_scope_close(s), -ECANCELED); /* never joined */
}

TEST_WITH(the_first_failure_cancels_the_rest, begin_test, end_test)
{
    struct cede_scope *s = open_scope(NULL, 2, CEDE_TIMEOUT_FOREVER);
    assert_int_equal(cede_scope_fork(s, until_cancelled, s), 0);
    assert_int_equal(cede_scope_fork(s, fails, (void *)(intptr_t)-EBADMSG), 0);
    assert_int_equal(cede_scope_join(s), -EBADMSG);
    assert_true(cede_scope_cancelled(s));
    assert_int_equal(cede_scope_close(s), -EBADMSG);
    assert_int_equal(begun, 2);

    s = second_fails();
    assert_int_equal(cede_scope_close(s), -ECANCELED); /* never joined: no task begins */
    assert_int_equal(begun, 0);

    s = second_fails(); /* in the join alone: in order */
    assert_int_equal(cede_scope_join(s), -EBADMSG);
    assert_int_equal(begun, 2);
    assert_int_equal(cede_scope_fork(s, count, NULL), -EBUSY);
    assert_int_equal(cede_scope_close(s), -EBADMSG);
}

TEST_WITH(somebody_cancels, begin_test, end_test)
{
    struct cede_scope *s = open_scope(NULL, 1, CEDE_TIMEOUT_FOREVER);
    cede_scope_fork(s, until_cancelled, s);
    while (!begun)
        usleep(100);
    cede_scope_cancel(s);
    assert_int_equal(cede_scope_fork(s, count, NULL), -ECANCELED);
    assert_int_equal(cede_scope_close(s), -ECANCELED);
    assert_int_equal(ended, 1);
}

TEST_WITH(the_deadline_is_for_all, begin_test, end_test)
{
    struct cede_scope *s = open_scope(NULL, 1, 100000);
    cede_scope_fork(s, until_cancelled, s);
    cede_scope_fork(s, until_cancelled, s);
    for (int i = 0; i < 100; i++)
        cede_scope_fork(s, count, NULL);
    ends(s, -ETIMEDOUT);
    assert_int_equal(begun, 2);
    assert_int_equal(ended, 2);
    s = open_scope(NULL, 0, 100000);
    begun = 0;
    assert_int_equal(cede_scope_fork(s, count, NULL), 0);
    while (!cede_scope_cancelled(s))
        usleep(1000);
    ends(s, -ETIMEDOUT); /* too late to begin */
    assert_int_equal(begun, 0);
    s = open_scope(NULL, 1, 0);
    assert_int_equal(cede_scope_fork(s, count, NULL), -ETIMEDOUT);
    ends(s, 0); /* nothing was asked, nothing is late */
}

static int spread(struct cede_scope *s, void *arg)
{
    intptr_t depth = (intptr_t)arg;
    begun++;
    int r = 0;
    for (int i = 0; depth > 0 && !r && i < 3; i++)
        r = cede_scope_fork(s, spread, (void *)(depth - 1));
    return r;
}

TEST_WITH(tasks_add_tasks, begin_test, end_test)
{
    for (unsigned threads = 0; threads < 4; threads++) {
        struct cede_scope *s = open_scope(NULL, threads, CEDE_TIMEOUT_FOREVER);
        begun = 0;
        assert_int_equal(cede_scope_fork(s, spread, (void *)(intptr_t)4), 0);
        assert_int_equal(cede_scope_join(s), 0);
        assert_int_equal(begun, 1 + 3 + 9 + 27 + 81);
        cede_scope_close(s);
    }
}

/* ---- scopes in scopes ------------------------------------------------------------------------ */

/* What a nested scope with n such tasks returns. */
static int run_inner(struct cede_scope *s, int n, cede_task task, void *arg)
{
    struct cede_scope *inner;
    if (cede_scope_open(&inner, s, 1, CEDE_TIMEOUT_FOREVER))
        return -ENOMEM;
    for (int i = 0; i < n; i++)
        cede_scope_fork(inner, task, arg);
    int r = cede_scope_join(inner);
    cede_scope_close(inner);
    return r;
}

static int nested(struct cede_scope *s, void *arg)
{
    intptr_t depth = (intptr_t)arg;
    return run_inner(s, 3, depth > 0 ? nested : count, (void *)(depth - 1));
}

TEST_WITH(scopes_lie_in_scopes, begin_test, end_test)
{
    struct cede_scope *s = open_scope(NULL, 2, CEDE_TIMEOUT_FOREVER);
    for (int i = 0; i < 3; i++)
        cede_scope_fork(s, nested, (void *)(intptr_t)2);
    ends(s, 0);
    assert_int_equal(ended, 81);
}

static int nested_wait(struct cede_scope *s, void *arg)
{
    return run_inner(s, 1, until_cancelled, s);
}

TEST_WITH(an_outer_failure_reaches_the_inner, begin_test, end_test)
{
    struct cede_scope *s = open_scope(NULL, 2, CEDE_TIMEOUT_FOREVER);
    cede_scope_fork(s, nested_wait, NULL);
    while (!begun)
        usleep(100);
    cede_scope_fork(s, fails, (void *)(intptr_t)-EDOM);
    ends(s, -EDOM);
    assert_int_equal(ended, 1);
    s = open_scope(NULL, 1, 100000);
    cede_scope_fork(s, nested_wait, NULL);
    ends(s, -ETIMEDOUT);
}

static int joins_outer(struct cede_scope *s, void *arg)
{
    struct cede_scope *outer = arg;
    begun += cede_scope_join(outer) == -EDEADLK;
    begun += cede_scope_close(outer) == -EDEADLK;
    return 0;
}

static int joins_outer_from_inner(struct cede_scope *s, void *arg)
{
    return run_inner(s, 1, joins_outer, s);
}

TEST_WITH(a_task_cannot_join_what_it_is_in, begin_test, end_test)
{
    struct cede_scope *s = open_scope(NULL, 1, CEDE_TIMEOUT_FOREVER);
    cede_scope_fork(s, joins_outer, s);
    cede_scope_fork(s, joins_outer_from_inner, NULL);
    ends(s, 0);
    assert_int_equal(begun, 4);
}

/* Else nobody could tell whether the scope is closed. */
TEST_WITH(a_task_cannot_fail_as_if_it_had_joined, begin_test, end_test)
{
    struct cede_scope *s = open_scope(NULL, 0, CEDE_TIMEOUT_FOREVER);
    cede_scope_fork(s, fails, (void *)(intptr_t)-EDEADLK);
    ends(s, -EIO);
}

static void *join_it(void *arg)
{
    return (void *)(intptr_t)cede_scope_join(arg);
}

TEST_WITH(two_may_join, begin_test, end_test)
{
    struct cede_scope *s = open_scope(NULL, 1, CEDE_TIMEOUT_FOREVER);
    pthread_t t[2];
    void *r[2];
    cede_scope_fork(s, until_cancelled, s);
    for (int i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, join_it, s);
    while (!begun)
        usleep(100);
    cede_scope_cancel(s);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], &r[i]);
    assert_int_equal((intptr_t)r[0], -ECANCELED);
    assert_int_equal((intptr_t)r[1], -ECANCELED);
    cede_scope_close(s);
}

/* ---- leases ---------------------------------------------------------------------------------- */

static int takes_and_keeps(struct cede_scope *s, void *arg)
{
    struct cede_lease l;
    int r = cede_acquire(pool, 0, NULL, NULL, CEDE_TIMEOUT_FOREVER, &l);
    begun += r == 0;
    return r;
}

static int waits_for_a_lease(struct cede_scope *s, void *arg)
{
    struct cede_lease l;
    begun++;
    int r = cede_acquire(pool, 0, NULL, NULL, CEDE_TIMEOUT_FOREVER, &l);
    ended += r == (int)(intptr_t)arg;
    return 0;
}

static int fails_once_both_wait(struct cede_scope *s, void *arg)
{
    while (pool_stats(pool, 0).waiting < 2)
        usleep(100);
    return -EDOM;
}

TEST_WITH(leases_end_with_their_scope, begin_test, end_test)
{
    struct cede_lease own;
    assert_int_equal(cede_acquire(pool, 0, NULL, NULL, 0, &own), 0);
    struct cede_scope *s = open_scope(NULL, 2, CEDE_TIMEOUT_FOREVER);
    cede_scope_fork(s, takes_and_keeps, NULL);
    assert_int_equal(cede_scope_join(s), 0);
    assert_int_equal(pool_stats(pool, 0).active, 1); /* the one without a scope */
    cede_scope_close(s);
    struct cede_lease other;

    assert_int_equal(cede_acquire(pool, 0, NULL, NULL, 0, &other), 0);
    s = open_scope(NULL, 3, CEDE_TIMEOUT_FOREVER);
    begun = 0;
    cede_scope_fork(s, waits_for_a_lease, (void *)(intptr_t)-ECANCELED);
    cede_scope_fork(s, waits_for_a_lease, (void *)(intptr_t)-ECANCELED);
    cede_scope_fork(s, fails_once_both_wait, NULL);
    ends(s, -EDOM);
    assert_int_equal(ended, 2);

    s = open_scope(NULL, 1, 100000);
    ended = 0;
    cede_scope_fork(s, waits_for_a_lease, (void *)(intptr_t)-ETIMEDOUT);
    assert_int_equal(cede_scope_join(s), -ETIMEDOUT);
    assert_int_equal(ended, 1);
    assert_int_equal(cede_scope_close(s), -ETIMEDOUT);
    assert_int_equal(cede_release(&other), 0);
    assert_int_equal(cede_release(&own), 0);
}

/* Whatever a task waits for, it stops waiting with its scope, and nothing is left behind. */
static struct cede_queue *queue;
static struct cede_memory *memory;

static int waits_for_a_batch(struct cede_scope *s, void *arg)
{
    static _Thread_local struct cede_queue_batch b;
    begun++;
    ended += cede_queue_next(queue, 0, CEDE_TIMEOUT_FOREVER, &b) == (int)(intptr_t)arg;
    return 0;
}

static int waits_for_room(struct cede_scope *s, void *arg)
{
    struct cede_reservation r;
    begun++;
    ended += cede_memory_reserve(memory, 100, CEDE_TIMEOUT_FOREVER, &r) == (int)(intptr_t)arg;
    return 0;
}

static int fails_once_all_wait(struct cede_scope *s, void *arg)
{
    struct cede_memory_statistics m;
    do
        assert_int_equal(cede_memory_get_statistics(memory, &m, sizeof(m)), 0);
    while (begun < 3 || !m.waiting || !pool_stats(pool, 0).waiting);
    usleep(1000);
    return -EDOM;
}

TEST_WITH(all_that_waits_ends_with_its_scope, begin_test, end_test)
{
    static const cede_task waits[] = {waits_for_a_lease, waits_for_a_batch, waits_for_room};
    struct cede_memory_config mc;
    struct cede_queue_config qc;
    struct cede_reservation all;
    struct cede_memory_statistics m;
    struct cede_lease lease[2];
    cede_memory_defaults(&mc);
    mc.flags = CEDE_MEMORY_NO_GPU;
    mc.total_bytes = 1000;
    assert_int_equal(cede_memory_open(&mc, &memory), 0);
    assert_int_equal(cede_memory_reserve(memory, 850, 0, &all), 0);
    cede_queue_defaults(&qc);
    qc.memory = &memory;
    assert_int_equal(cede_queue_open(&qc, &queue), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(cede_acquire(pool, 0, NULL, NULL, 0, &lease[i]), 0);
    for (int late = 0; late < 2; late++) {
        struct cede_scope *s = open_scope(NULL, 3, late ? 50000 : CEDE_TIMEOUT_FOREVER);
        begun = ended = 0;
        for (int i = 0; i < 3; i++)
            cede_scope_fork(s, waits[i], (void *)(intptr_t)(late ? -ETIMEDOUT : -ECANCELED));
        if (!late)
            cede_scope_fork(s, fails_once_all_wait, NULL);
        assert_int_equal(cede_scope_join(s), late ? -ETIMEDOUT : -EDOM);
        assert_int_equal(ended, 3);
        cede_scope_close(s);
        assert_int_equal(cede_memory_get_statistics(memory, &m, sizeof(m)), 0);
        assert_int_equal(m.waiting + pool_stats(pool, 0).waiting, 0);
        assert_int_equal(m.reservations, 1);
    }
    for (int i = 0; i < 2; i++)
        cede_release(&lease[i]);
    cede_queue_close(queue);
    cede_memory_close(memory);
}

/* ---- any mix --------------------------------------------------------------------------------- */

static int something(struct cede_scope *s, void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    struct cede_lease l;
    begun++;
    int what = rand_r(&seed) % 40;
    if (what == 0)
        return -EIO;
    if (what == 1)
        cede_scope_cancel(s);
    if (what < 8)
        cede_scope_fork(s, something, (void *)(uintptr_t)rand_r(&seed));
    if (what == 8)
        return nested(s, NULL);
    int r = cede_acquire(pool, 0, NULL, NULL, rand_r(&seed) % 300, &l);
    if (!r && what % 2)
        cede_release(&l);
    return 0;
}

TEST_WITH(join_always_returns, begin_test, end_test)
{
    unsigned ok = 0, bad = 0;
    for (unsigned seed = 1; seed <= 150; seed++) {
        struct cede_scope *s =
            open_scope(NULL, seed % 5, seed % 3 ? CEDE_TIMEOUT_FOREVER : (int64_t)(seed % 7) * 300);
        for (unsigned i = 0; i < seed % 30; i++)
            cede_scope_fork(s, something, (void *)(uintptr_t)(seed * 100 + i));
        int r = cede_scope_join(s);
        assert_true(r == 0 || r == -EIO || r == -ECANCELED || r == -ETIMEDOUT);
        ok += r == 0;
        bad += r != 0;
        cede_scope_close(s);
    }
    assert_true(ok > 10 && bad > 10);
}
