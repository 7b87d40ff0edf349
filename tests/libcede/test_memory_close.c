/* Closing a handle of a GPU's memory while other threads are in calls on it, on the stand-ins of
 * test_memory.c. */
#include <sys/mman.h>

#include "cede/memory.h"
#include "fake_gpu/fake_gpu.h"
#include "fake_gpu/find.h"
#include "pools.h"

#define STACK ((size_t)1 << 20)

static struct cede_memory *memory;
static struct cede_pool *pool;

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

/* What a thread keeps for its range would be room for another thread, which has gone with its stack
 * by then. */
TEST(room_is_given_to_no_thread_that_has_gone)
{
    struct cede_lease held;
    pthread_attr_t attr;
    pthread_t room;
    void *stack =
        mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    assert_ptr_not_equal(stack, MAP_FAILED);
    pool = OPEN(pool, .flags = CEDE_POOL_NO_GPU, .max_concurrent_streams = 1);
    OK(cede_acquire(pool, CEDE_ANY_DEVICE, NULL, NULL, 0, &held));
    memory = OPEN(memory, .polling_us = 1000);
    const pthread_t lease = start(wait_for_lease, NULL);
    until_waiting(pool, 1);
    OK(pthread_attr_init(&attr));
    OK(pthread_attr_setstack(&attr, stack, STACK));
    OK(pthread_create(&room, &attr, wait_for_room, NULL));
    UNTIL(STATS(memory, memory).waiting);
    const pthread_t closer = start(close_memory, NULL);
    assert_int_equal(result_of(room), -ESHUTDOWN);
    OK(munmap(stack, STACK));
    OK(cede_release(&held));
    assert_int_equal(result_of(lease), -ESHUTDOWN);
    OK(result_of(closer));
    OK(pool_stats(pool, 0).active);
    OK(cede_pool_close(pool));
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
    errno = EDOM;
    memory = OPEN(memory, .polling_us = 1000, .on_pressure = while_it_is_closed);
    assert_int_equal(errno, EDOM); /* whatever the driver does */
    gpu->others = 950;
    usleep(3000); /* what the driver said is too old then */
    const pthread_t t = start(notice_pressure, NULL);
    UNTIL(inside);
    OK(cede_memory_close(memory));
    closed = true;
    assert_int_equal(result_of(t), CEDE_PRESSURE_CRITICAL);
    assert_false(late);
    gpu->others = 0;
}
