/* Closing a handle of a GPU's memory while other threads are in calls on it, on the stand-ins of
 * test_memory.c. */
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cede/memory.h"
#include "fake_gpu/fake_gpu.h"
#include "fake_gpu/find.h"
#include "pools.h"

#define STACK ((size_t)1 << 20)

static struct cede_memory *memory;
static struct cede_pool *pool;

static struct cede_memory_config config(void)
{
    struct cede_memory_config c;
    cede_memory_defaults(&c);
    c.polling_us = 1000;
    return c;
}

static void *wait_for_room(void *arg)
{
    uint64_t address;
    return (void *)(intptr_t)cede_memory_allocate(memory, NULL, 900, 60 * S, &address);
}

static void *wait_for_lease(void *arg)
{
    const struct cede_range range = {4096, 300, 0};
    struct cede_lease l;
    struct cede_reservation r;
    return (void *)(intptr_t)cede_memory_acquire(memory, pool, NULL, NULL, &range, 1, 60 * S, &l,
                                                 &r);
}

static void *close_memory(void *arg)
{
    return (void *)(intptr_t)cede_memory_close(memory);
}

static int result_of(pthread_t t)
{
    void *r;
    assert_int_equal(pthread_join(t, &r), 0);
    return (int)(intptr_t)r;
}

/* What a thread keeps for its range would be room for another thread, which has gone with its stack
 * by then. */
TEST(room_is_given_to_no_thread_that_has_gone)
{
    const struct cede_memory_config c = config();
    const struct cede_pool_config one = no_gpu(1, 1);
    struct cede_memory_statistics s;
    struct cede_lease held;
    pthread_attr_t attr;
    pthread_t lease, room, closer;
    void *stack =
        mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    assert_ptr_not_equal(stack, MAP_FAILED);
    pool = open_configured(&one);
    assert_int_equal(cede_acquire(pool, CEDE_ANY_DEVICE, NULL, NULL, 0, &held), 0);
    assert_int_equal(cede_memory_open(&c, &memory), 0);
    assert_int_equal(pthread_create(&lease, NULL, wait_for_lease, NULL), 0);
    while (!pool_stats(pool, 0).waiting)
        sched_yield();
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstack(&attr, stack, STACK), 0);
    assert_int_equal(pthread_create(&room, &attr, wait_for_room, NULL), 0);
    do {
        sched_yield();
        assert_int_equal(cede_memory_get_statistics(memory, &s, sizeof(s)), 0);
    } while (!s.waiting);
    assert_int_equal(pthread_create(&closer, NULL, close_memory, NULL), 0);
    assert_int_equal(result_of(room), -ESHUTDOWN);
    assert_int_equal(munmap(stack, STACK), 0);
    assert_int_equal(cede_release(&held), 0);
    assert_int_equal(result_of(lease), -ESHUTDOWN);
    assert_int_equal(result_of(closer), 0);
    assert_int_equal(pool_stats(pool, 0).active, 0);
    assert_int_equal(cede_pool_close(pool), 0);
    pthread_attr_destroy(&attr);
}

static _Atomic bool inside, closed, late;

static void while_it_is_closed(void *arg, enum cede_pressure now)
{
    inside = true;
    for (int i = 0; i < 50 && !closed; i++)
        usleep(1000);
    late = closed;
}

static void *notice_pressure(void *arg)
{
    return (void *)(intptr_t)cede_memory_pressure(memory);
}

/* on_pressure is called without a lock; what it uses may be freed once the handle is closed. */
TEST(closing_waits_for_on_pressure)
{
    struct fake_memory *gpu = find("libcuda.so.1", "fake_memory");
    struct cede_memory_config c = config();
    pthread_t t;
    c.on_pressure = while_it_is_closed;
    errno = EDOM;
    assert_int_equal(cede_memory_open(&c, &memory), 0);
    assert_int_equal(errno, EDOM); /* whatever the driver does */
    gpu->others = 950;
    usleep(3000); /* what the driver said is too old then */
    assert_int_equal(pthread_create(&t, NULL, notice_pressure, NULL), 0);
    while (!inside)
        sched_yield();
    assert_int_equal(cede_memory_close(memory), 0);
    closed = true;
    assert_int_equal(result_of(t), CEDE_PRESSURE_CRITICAL);
    assert_false(late);
    gpu->others = 0;
}
