/* Scopes of libcede: every task ends, the first failure counts, nothing is left behind (the
 * sanitizers see to memory and threads). */
#include <stdatomic.h>

#include "cede/memory.h"
#include "cede/queue.h"
#include "cede/scope.h"
#include "fixture.h"

static atomic_int begun, ended;
static struct cede_pool *pool;

static int begin_test(void **state)
{
    pool = OPEN(pool, .flags = CEDE_POOL_NO_GPU, .max_concurrent_streams = 2);
    begun = ended = 0;
    return 0;
}

/* No test may leave a lease. */
static int end_test(void **state)
{
    const struct cede_pool_statistics s = pool_stats(pool, 0);
    cede_pool_close(pool);
    return s.active || s.waiting ? -1 : 0;
}

static struct cede_scope *open_scope(unsigned threads, int64_t us)
{
    struct cede_scope *s;
    OK(cede_scope_open(&s, NULL, threads, us));
    begun = ended = 0;
    return s;
}

static void fork_all(struct cede_scope *s, int n, cede_task task, intptr_t arg)
{
    for (int i = 0; i < n; i++)
        OK(cede_scope_fork(s, task, (void *)arg));
}

static void ends(struct cede_scope *s, int result)
{
    assert_int_equal(cede_scope_join(s), result);
    assert_int_equal(cede_scope_close(s), result);
}

/* ---- tasks ----------------------------------------------------------------------------------- */

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
    struct cede_scope *s = open_scope(0, CEDE_TIMEOUT_FOREVER);
    fork_all(s, 1, count, 0);
    fork_all(s, 1, fails, -EBADMSG);
    fork_all(s, 10, count, 0);
    return s;
}

TEST_WITH(all_run_with_any_number_of_threads, begin_test, end_test)
{
    for (unsigned threads = 0; threads < 5; threads++) {
        struct cede_scope *s = open_scope(threads, CEDE_TIMEOUT_FOREVER);
        fork_all(s, 100, count, 0);
        OK(cede_scope_join(s));
        assert_int_equal(begun, 100);
        assert_int_equal(cede_scope_fork(s, count, NULL), -EBUSY);
        ends(s, 0);
    }
    assert_int_equal(cede_scope_close(open_scope(3, CEDE_TIMEOUT_FOREVER)), -ECANCELED);
}

TEST_WITH(the_first_failure_cancels_the_rest, begin_test, end_test)
{
    struct cede_scope *s = open_scope(2, CEDE_TIMEOUT_FOREVER);
    fork_all(s, 1, until_cancelled, (intptr_t)s);
    fork_all(s, 1, fails, -EBADMSG);
    assert_int_equal(cede_scope_join(s), -EBADMSG);
    assert_true(cede_scope_cancelled(s));
    ends(s, -EBADMSG);
    assert_int_equal(begun, 2);

    assert_int_equal(cede_scope_close(second_fails()), -ECANCELED); /* never joined */
    assert_int_equal(begun, 0);

    s = second_fails(); /* in the join alone: in order */
    ends(s, -EBADMSG);
    assert_int_equal(begun, 2);
}

TEST_WITH(somebody_cancels, begin_test, end_test)
{
    struct cede_scope *s = open_scope(1, CEDE_TIMEOUT_FOREVER);
    fork_all(s, 1, until_cancelled, 0);
    UNTIL(begun);
    cede_scope_cancel(s);
    assert_int_equal(cede_scope_fork(s, count, NULL), -ECANCELED);
    assert_int_equal(cede_scope_close(s), -ECANCELED);
    assert_int_equal(ended, 1);
}

TEST_WITH(the_deadline_is_for_all, begin_test, end_test)
{
    struct cede_scope *s = open_scope(1, 100000);
    fork_all(s, 2, until_cancelled, 0);
    fork_all(s, 100, count, 0);
    ends(s, -ETIMEDOUT);
    assert_true(begun == 2 && ended == 2);
    s = open_scope(0, 100000);
    fork_all(s, 1, count, 0);
    UNTIL(cede_scope_cancelled(s));
    ends(s, -ETIMEDOUT); /* too late to begin */
    assert_int_equal(begun, 0);
    s = open_scope(1, 0);
    assert_int_equal(cede_scope_fork(s, count, NULL), -ECANCELED);
    ends(s, -ETIMEDOUT);
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
        struct cede_scope *s = open_scope(threads, CEDE_TIMEOUT_FOREVER);
        fork_all(s, 1, spread, 4);
        ends(s, 0);
        assert_int_equal(begun, 1 + 3 + 9 + 27 + 81);
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
    struct cede_scope *s = open_scope(2, CEDE_TIMEOUT_FOREVER);
    fork_all(s, 3, nested, 2);
    ends(s, 0);
    assert_int_equal(ended, 81);
}

static int nested_wait(struct cede_scope *s, void *arg)
{
    return run_inner(s, 1, until_cancelled, s);
}

TEST_WITH(an_outer_failure_reaches_the_inner, begin_test, end_test)
{
    struct cede_scope *s = open_scope(2, CEDE_TIMEOUT_FOREVER);
    fork_all(s, 1, nested_wait, 0);
    UNTIL(begun);
    fork_all(s, 1, fails, -EDOM);
    ends(s, -EDOM);
    assert_int_equal(ended, 1);
    s = open_scope(1, 100000);
    fork_all(s, 1, nested_wait, 0);
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
    struct cede_scope *s = open_scope(1, CEDE_TIMEOUT_FOREVER);
    fork_all(s, 1, joins_outer, (intptr_t)s);
    fork_all(s, 1, joins_outer_from_inner, 0);
    ends(s, 0);
    assert_int_equal(begun, 4);
    s = open_scope(0, CEDE_TIMEOUT_FOREVER); /* nor fail as if it had: is the scope closed? */
    fork_all(s, 1, fails, -EDEADLK);
    ends(s, -EIO);
}

static void *join_it(void *arg)
{
    return (void *)(intptr_t)cede_scope_join(arg);
}

TEST_WITH(two_may_join, begin_test, end_test)
{
    struct cede_scope *s = open_scope(1, CEDE_TIMEOUT_FOREVER);
    fork_all(s, 1, until_cancelled, 0);
    const pthread_t t[2] = {start(join_it, s), start(join_it, s)};
    UNTIL(begun);
    usleep(10000); /* in their waits, or on the way to them */
    cede_scope_cancel(s);
    assert_int_equal(join_threads(t, 2, -ECANCELED), 2);
    cede_scope_close(s);
}

/* ---- what tasks wait for --------------------------------------------------------------------- */

static struct cede_queue *queue;
static struct cede_memory *memory;

static int takes_and_keeps(struct cede_scope *s, void *arg)
{
    struct cede_lease l;
    return cede_acquire(pool, 0, NULL, NULL, CEDE_TIMEOUT_FOREVER, &l);
}

/* For a lease, a batch or room, in vain. */
static int waits(struct cede_scope *s, void *what)
{
    static _Thread_local struct cede_queue_batch b;
    struct cede_lease l;
    struct cede_reservation r;
    begun++;
    ended += -ECANCELED == (!what ? cede_acquire(pool, 0, NULL, NULL, CEDE_TIMEOUT_FOREVER, &l)
                            : what == &queue
                                ? cede_queue_next(queue, 0, CEDE_TIMEOUT_FOREVER, &b)
                                : cede_memory_reserve(memory, 100, CEDE_TIMEOUT_FOREVER, &r));
    return 0;
}

static int fails_once_all_wait(struct cede_scope *s, void *arg)
{
    UNTIL(begun == 4 && STATS(memory, memory).waiting && pool_stats(pool, 0).waiting == 2);
    usleep(1000);
    return -EDOM;
}

/* Whatever a task waits for, it stops waiting with its scope, and nothing is left behind. */
TEST_WITH(all_that_waits_ends_with_its_scope, begin_test, end_test)
{
    struct cede_reservation all;
    struct cede_lease lease[2];
    memory = OPEN(memory, .flags = CEDE_MEMORY_NO_GPU, .total_bytes = 1000);
    queue = OPEN(queue, .memory = &memory);
    OK(cede_memory_reserve(memory, 850, 0, &all));
    OK(cede_acquire(pool, 0, NULL, NULL, 0, &lease[0]));
    struct cede_scope *s = open_scope(2, CEDE_TIMEOUT_FOREVER);
    fork_all(s, 1, takes_and_keeps, 0);
    OK(cede_scope_join(s));
    assert_int_equal(pool_stats(pool, 0).active, 1); /* the one without a scope */
    cede_scope_close(s);
    OK(cede_acquire(pool, 0, NULL, NULL, 0, &lease[1]));
    for (int late = 0; late < 2; late++) {
        s = open_scope(4, late ? 50000 : CEDE_TIMEOUT_FOREVER);
        fork_all(s, 2, waits, 0);
        fork_all(s, 1, waits, (intptr_t)&queue);
        fork_all(s, 1, waits, (intptr_t)&memory);
        if (!late)
            fork_all(s, 1, fails_once_all_wait, 0);
        assert_int_equal(cede_scope_join(s), late ? -ETIMEDOUT : -EDOM);
        assert_int_equal(ended, 4);
        cede_scope_close(s);
        assert_int_equal(STATS(memory, memory).waiting + pool_stats(pool, 0).waiting, 0);
        assert_int_equal(STATS(memory, memory).reservations, 1);
    }
    OK(cede_release(&lease[0]));
    OK(cede_release(&lease[1]));
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
            open_scope(seed % 5, seed % 3 ? CEDE_TIMEOUT_FOREVER : (int64_t)(seed % 7) * 300);
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
