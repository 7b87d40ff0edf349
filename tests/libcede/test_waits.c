/* libcede: every function that waits takes the same time-outs. If its thread is cancelled
 * (pthread_cancel) the wait goes on, nothing stays locked, and the thread ends where it would next.
 */
#include <time.h>

#include "base/util.h"
#include "cede/graph.h"
#include "cede/memory.h"
#include "cede/queue.h"
#include "cede/scope.h"
#include "cede/slice.h"
#include "cede/step.h"
#include "fixture.h"

#define SHORT_US 20000

static struct cede_pool *pool;
static struct cede_memory *memory;
static struct cede_queue *queue;
static struct cede_scope *scope;
static struct cede_graph *graph;
static struct cede_step_loop *loop;
static struct cede_lease held;
static struct cede_reservation room;
static _Atomic bool may_end;

/* ---- functions of the program, which run until they may end ---------------------------------- */

static int task(struct cede_scope *s, void *arg)
{
    UNTIL(may_end);
    return 0;
}

static int step_of_graph(void *arg, void *stream, unsigned n)
{
    return task(NULL, NULL);
}

static int step_of_loop(void *arg, struct cede_step *s)
{
    return task(NULL, NULL);
}

static int slice(void *arg, uint64_t first, uint64_t count, void *stream)
{
    return 0;
}

static void take_all(void)
{
    OK(cede_acquire(pool, 0, NULL, NULL, 0, &held));
    OK(cede_memory_reserve(memory, 100, CEDE_TIMEOUT_NOW, &room));
}

/* Room for one lease and for 100 bytes, both taken, and a queue without requests. */
static int set_up(void **state)
{
    const struct cede_graph_config eager = CONFIG(graph, .flags = CEDE_GRAPH_EAGER);
    pool = OPEN(pool, .flags = CEDE_POOL_NO_GPU, .max_concurrent_streams = 1, .displace = 0,
                .block_timeout_us = SHORT_US, .age_us = 3600 * S);
    memory = OPEN(memory, .flags = CEDE_MEMORY_NO_GPU, .total_bytes = 100, .reserve_fraction = 0,
                  .block_timeout_us = SHORT_US);
    queue = OPEN(queue);
    loop = OPEN(step, .flags = CEDE_STEP_NO_GPU, .schedule = step_of_loop, .launch = step_of_loop,
                .finish = step_of_loop);
    OK(cede_graph_open(&eager, step_of_graph, NULL, &graph));
    OK(cede_scope_open(&scope, NULL, 2, CEDE_TIMEOUT_FOREVER));
    OK(cede_scope_fork(scope, task, NULL));
    take_all();
    return 0;
}

static int tear_down(void **state)
{
    cede_queue_close(queue);
    cede_graph_close(graph);
    return cede_scope_close(scope) ?: cede_step_close(loop);
}

/* ---- functions that wait --------------------------------------------------------------------- */

static int by_acquire(cede_timeout t)
{
    struct cede_lease l;
    return cede_acquire(pool, 0, NULL, NULL, t, &l) ?: cede_release(&l);
}

static int by_memory_reserve(cede_timeout t)
{
    struct cede_reservation r;
    return cede_memory_reserve(memory, 10, t, &r) ?: cede_memory_release(&r);
}

static int by_memory_allocate(cede_timeout t)
{
    uint64_t address;
    return cede_memory_allocate(memory, NULL, 10, t, &address);
}

static int by_memory_acquire(cede_timeout t)
{
    const struct cede_shape shape = {.memory_bytes = 10};
    struct cede_lease l;
    struct cede_reservation r;
    return cede_memory_acquire(memory, pool, NULL, &shape, NULL, 0, t, &l, &r);
}

static int by_queue_next(cede_timeout t)
{
    static _Thread_local struct cede_queue_batch b;
    return cede_queue_next(queue, 0, t, &b) ?: cede_queue_done(queue, &b, 0);
}

static int by_scope_open(cede_timeout t)
{
    struct cede_scope *s;
    OK(cede_scope_open(&s, NULL, 0, t));
    int r = cede_scope_cancelled(s) ? -ETIMEDOUT : 0;
    cede_scope_close(s);
    return r;
}

static int by_scope_join(cede_timeout t)
{
    return cede_scope_join(scope);
}

static int by_graph_launch(cede_timeout t)
{
    return cede_graph_launch(graph, NULL, 1, NULL);
}

static int by_step_once(cede_timeout t)
{
    return cede_step_once(loop);
}

static int by_step_join(cede_timeout t)
{
    uint64_t id;
    return cede_step_join(loop, NULL, NULL, t, &id);
}

static int by_job_acquire(cede_timeout t)
{
    return cede_job_acquire(NULL, t);
}

static int by_slice(cede_timeout timeout, cede_timeout patience)
{
    struct cede_slice_progress progress = {0};
    const struct cede_slice_config c =
        CONFIG(slice, .flags = CEDE_SLICE_NO_GPU, .count = 1, .launch = slice,
               .timeout_us = timeout, .patience_us = patience);
    return cede_slice_run(&c, &progress);
}

static int by_slice_timeout(cede_timeout t)
{
    return by_slice(t, CEDE_TIMEOUT_DEFAULT);
}

static int by_slice_patience(cede_timeout t)
{
    return by_slice(CEDE_TIMEOUT_DEFAULT, t);
}

/* ---- cancelled ------------------------------------------------------------------------------- */

static _Atomic bool began, came_back;

static void *calls_and_ends(void *call)
{
    began = true;
    came_back = ((int (*)(cede_timeout))(uintptr_t)call)(60 * S) == 0;
    pthread_testcancel();
    return NULL;
}

/* A lock that the thread left behind would stop this program: not for ever. */
TEST(a_cancelled_thread_comes_back)
{
    static int (*const in[])(cede_timeout) = {by_scope_join /* first: its task has to run */,
                                              by_graph_launch,
                                              by_step_once,
                                              by_acquire,
                                              by_memory_reserve,
                                              by_queue_next};
    const struct cede_queue_request request = {.cls = CEDE_NORMAL, .deadline_us = 1};
    alarm(60);
    for (size_t i = 0; i < ARRAY_SIZE(in); i++) {
        came_back = began = may_end = false;
        const pthread_t t = start(calls_and_ends, (void *)(uintptr_t)in[i]);
        UNTIL(began);
        usleep(20000); /* in the wait, or on the way to it */
        OK(pthread_cancel(t));
        usleep(20000);
        may_end = true;
        if (in[i] == by_acquire)
            OK(cede_release(&held));
        if (in[i] == by_memory_reserve)
            OK(cede_memory_release(&room));
        if (in[i] == by_queue_next)
            OK(cede_queue_submit(queue, &request, NULL));
        assert_ptr_equal(result_of(t), PTHREAD_CANCELED);
        assert_true(came_back);
    }
    alarm(0);
    OK(cede_graph_launch(graph, NULL, 1, NULL));
    OK(pool_stats(pool, 0).active);
    take_all();
}

/* ---- time-outs ------------------------------------------------------------------------------- */

/* now, by_default: what it returns if it may not wait, and with the default. waits: the default is
 * SHORT_US. */
static const struct {
    int (*call)(cede_timeout t);
    int now, by_default;
    bool waits;
} calls[] = {
    {by_acquire, -EAGAIN, -ETIMEDOUT, true},
    {by_memory_reserve, -ENOMEM, -ENOMEM, true},
    {by_memory_acquire, -ENOMEM, -ENOMEM, true},
    {by_memory_allocate, -ENODEV, -ENODEV, false},
    {by_scope_open, -ETIMEDOUT, 0, false},
    {by_step_join, 0, 0, false},
    {by_job_acquire, 0, 0, false},
    {by_slice_timeout, -ETIMEDOUT, 0, false},
    {by_slice_patience, 0, 0, false},
};

static uint64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

TEST(now_and_the_default)
{
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        assert_int_equal(calls[i].call(CEDE_TIMEOUT_NOW), calls[i].now);
        uint64_t began_us = now_us();
        assert_int_equal(calls[i].call(CEDE_TIMEOUT_DEFAULT), calls[i].by_default);
        assert_true(!calls[i].waits || now_us() - began_us >= SHORT_US);
    }
    assert_int_equal(by_queue_next(CEDE_TIMEOUT_NOW), -EAGAIN);
    assert_int_equal(by_queue_next(1), -ETIMEDOUT);
}

static const struct waiting {
    int (*call)(cede_timeout t);
    cede_timeout timeout;
} waits[] = {
    {by_acquire, CEDE_TIMEOUT_FOREVER},        {by_acquire, 60 * S},
    {by_memory_reserve, CEDE_TIMEOUT_FOREVER}, {by_queue_next, CEDE_TIMEOUT_FOREVER},
    {by_queue_next, CEDE_TIMEOUT_DEFAULT},
};

static void *wait_for(void *arg)
{
    const struct waiting *w = arg;
    return (void *)(intptr_t)w->call(w->timeout);
}

/* They wait past every default until what they wait on is closed. Last, as it closes all. */
TEST(for_ever)
{
    pthread_t threads[ARRAY_SIZE(waits)];
    for (size_t i = 0; i < ARRAY_SIZE(waits); i++)
        threads[i] = start(wait_for, &waits[i]);
    usleep(5 * SHORT_US);
    cede_queue_shutdown(queue);
    OK(cede_pool_close(pool));
    OK(cede_memory_close(memory));
    assert_int_equal(join_threads(threads, ARRAY_SIZE(waits), -ESHUTDOWN), ARRAY_SIZE(waits));
}

int main(void)
{
    return test_run(set_up, tear_down);
}
