/* Leases of libcede on stand-ins for libcuda and libnvidia-ml: streams, occupancy, memory and
 * utilization. Needs their folder in LD_LIBRARY_PATH. */
#include "fake_gpu/fake_gpu.h"
#include "fixture.h"

static struct fake_cuda *cuda;
static struct fake_nvml *nvml;

static struct cede_pool *open_pool(unsigned target_utilization)
{
    return OPEN(pool, .max_total_occupancy = 0.9, .utilization_polling_us = 1000,
                .target_utilization_percent = target_utilization);
}

/* Everything that was made is gone, and nothing was called in a way that it may not be. */
static void close_pool(struct cede_pool *p)
{
    OK(cede_pool_close(p));
    OK(cuda->streams | cuda->contexts | cuda->bad);
}

/* What asking for one on this GPU alone returns; `got` is it. */
static struct cede_lease got;

static int ask(struct cede_pool *p, int device, const char *kernel, const struct cede_shape *s)
{
    return cede_acquire(p, CEDE_ONLY_DEVICE(device), kernel, s, 0, &got);
}

TEST(streams_are_kept_and_have_priorities)
{
    struct cede_pool *p = open_pool(100);
    struct cede_lease a, b, c;
    struct cede_shape high = {.priority = 3}, too_high = {.priority = 99}, due = {.due_us = 1};
    int made = cuda->streams_made;
    HAS(pool_stats(p, 1), (devices, 2), (has_gpu, true));
    OK(cede_acquire(p, 1, NULL, NULL, 0, &a));
    assert_int_equal(a.device, 1);
    assert_non_null(a.stream);
    assert_int_equal(cuda->last_priority, 0);
    OK(cede_acquire(p, 1, NULL, NULL, 0, &b));
    assert_ptr_not_equal(a.stream, b.stream);
    OK(cede_release(&a));
    OK(cede_acquire(p, 1, NULL, NULL, 0, &c));
    assert_ptr_equal(a.stream, c.stream);
    assert_int_equal(cuda->streams_made - made, 2);
    OK(cede_acquire(p, 0, NULL, &high, 0, &a));
    assert_int_equal(cuda->last_priority, -3);
    OK(cede_acquire(p, 0, NULL, &too_high, 0, &a));
    assert_int_equal(cuda->last_priority, -5);
    cuda->last_priority = 0;
    OK(cede_release(&a));
    OK(cede_acquire(p, 0, NULL, &due, 0, &b));
    assert_true(b.urgent);
    assert_ptr_equal(b.stream, a.stream); /* the highest too */
    assert_int_equal(cuda->contexts, 2);
    close_pool(p); /* with leases out */
    assert_int_equal(cede_release(&c), -ESTALE);
}

TEST(errno_is_the_programs)
{
    struct cede_lease l;
    errno = EDOM;
    struct cede_pool *p = open_pool(100);
    assert_int_equal(errno, EDOM);
    OK(cede_acquire(p, 1, NULL, NULL, 0, &l));
    assert_int_equal(errno, EDOM);
    close_pool(p);
    assert_int_equal(errno, EDOM);
}

TEST(occupancy_is_asked_once_and_counts)
{
    struct cede_pool *p = open_pool(100);
    struct cede_shape s = {.threads = 256}, small = {.threads = 256, .blocks = 2};
    int asked = cuda->occupancy_asked;
    /* 2 of the 4 blocks of 256 threads that an SM could have; 2 of all 16: 1/8 */
    OK(cede_pool_kernel(p, "half", (void *)2));
    OK(ask(p, 0, "half", &s));
    assert_true(pool_stats(p, 0).occupancy == 0.5);
    assert_int_equal(ask(p, 0, "half", &s), -EAGAIN);
    OK(ask(p, 0, "half", &small));
    assert_true(pool_stats(p, 0).occupancy == 0.625);
    OK(cede_acquire(p, 0, "half", &s, 0, &got)); /* rather 0, but 1 has room */
    assert_int_equal(got.device, 1);
    assert_int_equal(cuda->occupancy_asked - asked, 1);
    OK(cede_pool_kernel(p, "half", (void *)2));
    OK(ask(p, 0, "half", &small));
    assert_int_equal(cuda->occupancy_asked - asked, 1);
    small.shared_bytes = 100;
    OK(ask(p, 0, "half", &small));
    assert_int_equal(cuda->occupancy_asked - asked, 2);
    OK(cede_pool_kernel(p, "half", (void *)1));
    OK(ask(p, 1, "half", &small));
    assert_int_equal(cuda->occupancy_asked - asked, 3);

    assert_int_equal(cede_acquire(p, 0, "unheard-of", &s, 0, &got), -ENOENT);
    assert_int_equal(cede_acquire(p, 0, "half", NULL, 0, &got), -EINVAL);
    small.shared_bytes = 2000;
    assert_int_equal(cede_acquire(p, 0, "half", &small, 0, &got), -EIO);
    assert_non_null(strstr(pool_stats(p, 0).error, "2000 bytes"));
    int (*push)(void *) = (int (*)(void *))(uintptr_t)find("libcuda.so.1", "cuCtxPushCurrent_v2");
    int (*pop)(void **) = (int (*)(void **))(uintptr_t)find("libcuda.so.1", "cuCtxPopCurrent_v2");
    void *second = (char *)find("libcuda.so.1", "fake_contexts") + 1, *was;
    push(second);
    OK(cede_pool_kernel(p, "of the second", (void *)(16 + 2)));
    pop(&was);
    assert_int_equal(cede_acquire(p, 1, "of the second", &s, 0, &got), -EAGAIN);
    assert_int_equal(cuda->bad, 0);
    OK(cede_pool_occupancy(p, "by share", 0.8));
    assert_int_equal(ask(p, 0, "by share", NULL), -EAGAIN);
    close_pool(p);
}

static void *others_end(void *arg)
{
    usleep(20000);
    cuda->free_bytes = 900;
    nvml->percent[0] = 50;
    return NULL;
}

TEST(memory_counts)
{
    struct cede_pool *p = open_pool(100);
    const struct cede_shape most = {.memory_bytes = 800}, more = {.memory_bytes = 101},
                            rest = {.memory_bytes = 100};
    OK(ask(p, 0, NULL, &most));
    assert_int_equal(ask(p, 0, NULL, &more), -EAGAIN);
    OK(ask(p, 0, NULL, &rest));
    close_pool(p);
}

/* What another program has, or gives back while a lease waits, counts. */
TEST(memory_of_other_programs_counts)
{
    struct cede_pool *p = open_pool(100); /* polls each ms */
    const struct cede_shape some = {.memory_bytes = 300};
    cuda->free_bytes = 350;
    OK(ask(p, 0, NULL, &some));
    const struct cede_lease a = got;
    assert_int_equal(ask(p, 0, NULL, &some), -EAGAIN);
    OK(cede_release(&a));
    cuda->free_bytes = 200; /* not even alone */
    usleep(2000);
    assert_int_equal(ask(p, 0, NULL, &some), -EAGAIN);
    const pthread_t t = start(others_end, NULL);
    OK(cede_acquire(p, CEDE_ONLY_DEVICE(0), NULL, &some, CEDE_TIMEOUT_FOREVER, &got));
    result_of(t);
    cuda->free_bytes = 1000;
    close_pool(p);
}

static void profile_is(struct cede_pool *p, const char *kernel, double least, double most,
                       unsigned blocks, enum cede_limit limit)
{
    struct cede_profile f;
    OK(cede_pool_profile(p, kernel, &(struct cede_shape){.threads = 256}, &f, sizeof(f)));
    assert_true(f.occupancy >= least && f.occupancy <= most);
    HAS(f, (registers, limit ? cuda->registers : 0), (shared_bytes, limit ? cuda->static_bytes : 0),
        (blocks_per_sm, blocks), (limit, limit));
}

/* Registers and static shared memory are the kernel's own; the scarcest counts. */
TEST(registers_and_shared_memory_count)
{
    struct cede_pool *p = open_pool(100);
    const struct cede_shape s = {.threads = 256};
    cuda->registers = 128; /* 2 blocks of 32768: all */
    OK(cede_pool_kernel(p, "registers", (void *)2));
    OK(ask(p, 0, "registers", &s));
    assert_true(pool_stats(p, 0).occupancy == 1);
    profile_is(p, "registers", 1, 1, 2, CEDE_LIMIT_REGISTERS);
    cuda->registers = 16;
    /* and 1024 that the driver takes: 25000 of 100000, by blocks of 128 */
    cuda->static_bytes = 23976;
    OK(cede_pool_kernel(p, "shared", (void *)3));
    OK(ask(p, 1, "shared", &s));
    assert_true(pool_stats(p, 1).occupancy > 0.75 && pool_stats(p, 1).occupancy < 0.76);
    profile_is(p, "shared", 0.75, 0.76, 3, CEDE_LIMIT_SHARED);
    OK(cede_pool_occupancy(p, "said", 0.5));
    profile_is(p, "said", 0.5, 0.5, 0, CEDE_LIMIT_UNKNOWN);
    cuda->static_bytes = 0;
    close_pool(p);
}

static void *prefers_the_first(void *pool)
{
    struct cede_lease l;
    int r = cede_acquire(pool, 0, NULL, NULL, CEDE_TIMEOUT_FOREVER, &l);
    intptr_t device = l.device;
    return (void *)(r ? (intptr_t)r : cede_release(&l) ? -1 : device);
}

/* A lease that waits for the first of two GPUs has the second as soon as that is free, with a
 * stream there. */
TEST(work_is_stolen_by_the_gpu_that_is_free)
{
    struct cede_pool *p = OPEN(pool, .max_concurrent_streams = 1);
    struct cede_lease a, b;
    OK(cede_acquire(p, 0, NULL, NULL, 0, &a));
    OK(cede_acquire(p, 1, NULL, NULL, 0, &b));
    const pthread_t t = start(prefers_the_first, p);
    UNTIL(pool_stats(p, 0).waiting + pool_stats(p, 1).waiting);
    unsigned waits_for = pool_stats(p, 1).waiting; /* loads are equal */
    OK(cede_release(waits_for ? &a : &b));
    int device = (int)result_of(t);
    assert_int_equal(device, waits_for ? 0 : 1);
    assert_int_equal(pool_stats(p, 0).stolen + pool_stats(p, 1).stolen, 1);
    assert_int_equal(pool_stats(p, device).stolen, 1);
    close_pool(p);
}

static void *has_the_second_twice(void *pool)
{
    struct cede_lease l, first;
    if (cede_acquire(pool, 1, NULL, NULL, 0, &l) || cede_release(&l) ||
        cede_acquire(pool, CEDE_ANY_DEVICE, NULL, NULL, 0, &l) || l.device != 1 ||
        cede_acquire(pool, CEDE_ANY_DEVICE, NULL, NULL, 0, &first) || first.device != 0)
        return (void *)1; /* the last: the loads are not equal */
    return cede_release(&l) || cede_release(&first) ? (void *)1 : NULL;
}

TEST(a_thread_has_its_gpu_again)
{
    struct cede_pool *p = open_pool(100);
    OK(result_of(start(has_the_second_twice, p)));
    OK(cede_acquire(p, CEDE_ANY_DEVICE, NULL, NULL, 0, &got));
    assert_int_equal(got.device, 0); /* the other thread's is not this one's */
    close_pool(p);
}

/* All 16 and 2 more: their streams are given back, too. */
TEST(displacing_leases_have_streams)
{
    struct cede_pool *p = OPEN(pool, .max_concurrent_streams = 2, .unknown_occupancy = 0);
    struct cede_shape due = {.due_us = 1};
    struct cede_lease l[5];
    for (int twice = 0; twice < 2; twice++) {
        for (int i = 0; i < 4; i++)
            OK(cede_acquire(p, CEDE_ONLY_DEVICE(0), NULL, &due, 0, &l[i]));
        assert_int_equal(cuda->last_priority, -5);
        assert_int_equal(cede_acquire(p, CEDE_ONLY_DEVICE(0), NULL, &due, 0, &l[4]), -EAGAIN);
        assert_int_equal(pool_stats(p, 0).displaced, 2 + 2 * twice);
        for (int i = 0; i < 4; i++)
            OK(cede_release(&l[i]));
    }
    assert_int_equal(cuda->streams, 4);
    close_pool(p);
}

TEST(without_a_stream_there_is_no_lease)
{
    struct cede_pool *p = open_pool(100);
    struct cede_lease a;
    cuda->fail_streams = 1;
    assert_int_equal(cede_acquire(p, 0, NULL, NULL, 0, &a), -EIO);
    assert_non_null(strstr(cede_error_text(), "CUDA_ERROR_OUT_OF_MEMORY"));
    assert_non_null(strstr(pool_stats(p, 0).error, "CUDA_ERROR_OUT_OF_MEMORY"));
    assert_int_equal(pool_stats(p, 0).active, 0);
    cuda->fail_streams = 0;
    OK(cede_acquire(p, 0, NULL, NULL, 0, &a));
    close_pool(p);
}

TEST(utilization_is_looked_at)
{
    struct cede_pool *p = open_pool(80);
    nvml->percent[0] = 95;
    OK(ask(p, 0, NULL, NULL));
    assert_int_equal(ask(p, 0, NULL, NULL), -EAGAIN);
    assert_int_equal(pool_stats(p, 0).utilization_percent, 95);
    OK(cede_acquire(p, 0, NULL, NULL, 0, &got));
    assert_int_equal(got.device, 1);
    const pthread_t t = start(others_end, NULL);
    OK(cede_acquire(p, CEDE_ONLY_DEVICE(0), NULL, NULL, CEDE_TIMEOUT_FOREVER, &got));
    result_of(t);
    cuda->free_bytes = 1000;
    assert_int_equal(pool_stats(p, 0).utilization_percent, 50);
    close_pool(p);
    int asked = nvml->asked;
    p = open_pool(100);
    OK(ask(p, 0, NULL, NULL));
    OK(ask(p, 0, NULL, NULL));
    assert_int_equal(nvml->asked, asked);
    assert_int_equal(pool_stats(p, 0).utilization_percent, -1);
    close_pool(p);
}

static int opens_its_own(const struct cede_lease *parents)
{
    struct cede_pool_config c = no_gpu(50, 0);
    struct cede_pool *p;
    struct cede_lease a;
    if (cede_pool_open(&c, &p) != -EINVAL)
        return 1;
    c.max_concurrent_streams = 1;
    if (cede_pool_open(&c, &p) != 0 || pool_stats(p, 0).has_gpu)
        return 2;
    if (cede_acquire(p, 49, NULL, NULL, 0, &a) || a.stream || cede_release(&a))
        return 3;
    return cede_release(parents) == -ESTALE ? 0 : 4;
}

/* A child begins anew: nothing of its parent's pools, above all not their GPUs, gets into its own.
 */
TEST(a_child_inherits_nothing)
{
    struct cede_pool *p = open_pool(100);
    struct cede_lease a;
    OK(cede_acquire(p, 0, NULL, NULL, 0, &a));
    pid_t child = fork();
    if (child == 0)
        _exit(opens_its_own(&a));
    child_ends_well(child);
    OK(cede_release(&a));
    close_pool(p);
}

int main(void)
{
    cuda = find("libcuda.so.1", "fake_cuda");
    cuda->free_bytes = 1000;
    nvml = find("libnvidia-ml.so.1", "fake_nvml");
    return test_run(NULL, NULL);
}
