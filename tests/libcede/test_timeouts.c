/* libcede: every function that waits takes the same time-outs. */
#include <time.h>

#include "cede/memory.h"
#include "cede/queue.h"
#include "cede/scope.h"
#include "cede/slice.h"
#include "cede/step.h"
#include "pools.h"

#define SHORT_US 20000

static struct cede_pool *pool;
static struct cede_memory *memory;
static struct cede_queue *queue;
static struct cede_step_loop *loop;

static int nothing_step(void *arg, struct cede_step *s)
{
    return 0;
}

static int nothing_slice(void *arg, uint64_t first, uint64_t count, void *stream)
{
    return 0;
}

/* Room for one lease and for 100 bytes, both taken, and a queue without requests. */
static int set_up(void **state)
{
    static struct cede_lease held;
    static struct cede_reservation room;
    pool = OPEN(pool, .flags = CEDE_POOL_NO_GPU, .max_concurrent_streams = 1, .displace = 0,
                .block_timeout_us = SHORT_US);
    memory = OPEN(memory, .flags = CEDE_MEMORY_NO_GPU, .total_bytes = 100, .reserve_fraction = 0,
                  .block_timeout_us = SHORT_US);
    queue = OPEN(queue);
    loop = OPEN(step, .flags = CEDE_STEP_NO_GPU, .schedule = nothing_step, .launch = nothing_step,
                .finish = nothing_step);
    return cede_acquire(pool, 0, NULL, NULL, 0, &held) ||
           cede_memory_reserve(memory, 100, CEDE_TIMEOUT_NOW, &room);
}

static int tear_down(void **state)
{
    cede_queue_close(queue);
    return cede_step_close(loop);
}

/* ---- the functions that wait ----------------------------------------------------------------- */

static int by_acquire(cede_timeout t)
{
    struct cede_lease l;
    return cede_acquire(pool, 0, NULL, NULL, t, &l);
}

static int by_memory_reserve(cede_timeout t)
{
    struct cede_reservation r;
    return cede_memory_reserve(memory, 10, t, &r);
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
    return cede_queue_next(queue, 0, t, &b);
}

static int by_scope_open(cede_timeout t)
{
    struct cede_scope *s;
    OK(cede_scope_open(&s, NULL, 0, t));
    int r = cede_scope_cancelled(s) ? -ETIMEDOUT : 0;
    cede_scope_close(s);
    return r;
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

static int by_slice(cede_timeout t, size_t at)
{
    struct cede_slice_progress progress = {0};
    struct cede_slice_config c =
        CONFIG(slice, .flags = CEDE_SLICE_NO_GPU, .count = 1, .launch = nothing_slice);
    memcpy((char *)&c + at, &t, sizeof(t));
    return cede_slice_run(&c, &progress);
}

static int by_slice_timeout(cede_timeout t)
{
    return by_slice(t, offsetof(struct cede_slice_config, timeout_us));
}

static int by_slice_patience(cede_timeout t)
{
    return by_slice(t, offsetof(struct cede_slice_config, patience_us));
}

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
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        assert_int_equal(calls[i].call(CEDE_TIMEOUT_NOW), calls[i].now);
        uint64_t began = now_us();
        assert_int_equal(calls[i].call(CEDE_TIMEOUT_DEFAULT), calls[i].by_default);
        assert_true(!calls[i].waits || now_us() - began >= SHORT_US);
    }
    assert_int_equal(by_queue_next(CEDE_TIMEOUT_NOW), -EAGAIN);
    assert_int_equal(by_queue_next(1), -ETIMEDOUT);
}

/* ---- for ever -------------------------------------------------------------------------------- */

static const struct waiting {
    int (*call)(cede_timeout t);
    cede_timeout timeout;
} waits[] = {
    {by_acquire, CEDE_TIMEOUT_FOREVER},
    {by_memory_reserve, CEDE_TIMEOUT_FOREVER},
    {by_queue_next, CEDE_TIMEOUT_FOREVER},
    {by_queue_next, CEDE_TIMEOUT_DEFAULT},
};
enum { WAITS = sizeof(waits) / sizeof(waits[0]) };

static void *wait_for(void *arg)
{
    const struct waiting *w = arg;
    return (void *)(intptr_t)w->call(w->timeout);
}

/* They wait past every default until what they wait on is closed. Last, as it closes all. */
TEST(for_ever)
{
    pthread_t threads[WAITS];
    for (size_t i = 0; i < WAITS; i++)
        threads[i] = start(wait_for, &waits[i]);
    usleep(5 * SHORT_US);
    cede_queue_shutdown(queue);
    OK(cede_pool_close(pool));
    OK(cede_memory_close(memory));
    assert_int_equal(join_threads(threads, WAITS, -ESHUTDOWN), WAITS);
}

int main(void)
{
    return test_run(set_up, tear_down);
}
