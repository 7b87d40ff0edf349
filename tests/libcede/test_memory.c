/* A GPU's memory by libcede on stand-ins for libcuda and libnvidia-ml with 1000 bytes, of which 100
 * are the reserve. Needs their folders in LD_LIBRARY_PATH. CEDE_MEMORY_SECONDS=60: how long threads
 * allocate at random. */
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cede/memory.h"
#include "fake_gpu/fake_gpu.h"
#include "fixture.h"

#define STACK ((size_t)1 << 20)

static struct fake_cuda *cuda;
static struct fake_nvml *nvml;
static struct fake_memory *gpu;

static struct cede_memory *m;

static int begin_test(void **unused)
{
    m = OPEN(memory, .polling_us = 1000);
    return 0;
}

/* Nothing is left on the GPU, and nothing was called in a way that it may not be. */
static void close_memory(void)
{
    OK(cede_memory_close(m));
    m = NULL;
    OK(cuda->allocated | cuda->streams | cuda->contexts | cuda->pushed | cuda->bad);
    OK(gpu->allocated_bytes);
}

static int end_test(void **unused)
{
    if (m)
        close_memory();
    gpu->others = 0;
    return 0;
}

static struct cede_memory_statistics stats(void)
{
    return STATS(memory, m);
}

/* What an allocation from r, or from no reservation, returns. */
static int try_allocate(const struct cede_reservation *r, uint64_t bytes)
{
    uint64_t address;
    return cede_memory_allocate(m, r, bytes, 0, &address);
}

static uint64_t allocate(const struct cede_reservation *r, uint64_t bytes)
{
    uint64_t address;
    OK(cede_memory_allocate(m, r, bytes, 0, &address));
    return address;
}

static struct cede_reservation reserve(uint64_t bytes)
{
    struct cede_reservation r;
    OK(cede_memory_reserve(m, bytes, 0, &r));
    assert_int_equal(r.bytes, bytes);
    return r;
}

/* Longer ago than what is known of them may be old. */
static void others_have(uint64_t bytes)
{
    gpu->others = bytes;
    usleep(3000);
}

TEST_WITH(room_is_what_others_leave, begin_test, end_test)
{
    HAS(stats(), (has_gpu, true), (reserve_bytes, 100));
    assert_int_equal(cede_memory_can_allocate(m, 900), 1);
    OK(cede_memory_can_allocate(m, 901));
    const uint64_t a = allocate(NULL, 300);
    const struct cede_reservation r = reserve(200);
    assert_int_equal(stats().available_bytes, 400);
    OK(cede_memory_can_allocate(m, 401));
    others_have(150);
    assert_int_equal(try_allocate(NULL, 300), -ENOMEM);
    allocate(NULL, 250);
    assert_int_equal(cede_memory_allocate(m, NULL, 901, CEDE_TIMEOUT_FOREVER, &(uint64_t){0}),
                     -ENOMEM);
    HAS(stats(), (allocations, 2), (allocated_bytes, 550));
    OK(cede_memory_free(m, a));
    assert_int_equal(cede_memory_free(m, a), -ENOENT);
    assert_int_equal(try_allocate(&(struct cede_reservation){0}, 1), -ESTALE);
    allocate(NULL, 300);
    close_memory(); /* frees what is left */
    assert_int_equal(cede_memory_release(&r), -ESTALE);
}

TEST_WITH(no_such_gpu, begin_test, end_test)
{
    const struct cede_memory_config c = CONFIG(memory, .device = 2);
    struct cede_memory *none = (void *)1;
    assert_int_equal(cede_memory_open(&c, &none), -ENODEV);
    assert_null(none);
    assert_int_equal(cuda->contexts, 1);
    none = OPEN(memory, .device = 2, .total_bytes = 1000);
    assert_int_equal(cede_memory_allocate(none, NULL, 1, 0, &(uint64_t){0}), -ENODEV);
    assert_string_equal(cede_error_text(),
                        "cede_memory_allocate: no GPU was found: only reservations work");
    cede_memory_close(none);
}

/* ---- waiting --------------------------------------------------------------------------------- */

struct wish {
    uint64_t bytes, address;
};

static void *wait_for_room(void *arg)
{
    struct wish *w = arg;
    return (void *)(intptr_t)cede_memory_allocate(m, NULL, w->bytes, 60 * S, &w->address);
}

/* The large one is first in line: small ones that would fit come after it. */
TEST_WITH(in_order_of_arrival, begin_test, end_test)
{
    struct wish large = {.bytes = 800}, small = {.bytes = 50};
    const uint64_t a = allocate(NULL, 300);
    pthread_t t[2] = {start(wait_for_room, &large)};
    UNTIL(stats().waiting == 1);
    OK(cede_memory_can_allocate(m, 50));
    t[1] = start(wait_for_room, &small);
    UNTIL(stats().waiting == 2);
    OK(cede_memory_free(m, a));
    assert_int_equal(join_threads(t, 2, 0), 2);
    assert_int_equal(stats().waited, 2);
}

/* Nobody here frees anything: only looking at the driver shows that another process did. */
TEST_WITH(others_make_room, begin_test, end_test)
{
    struct wish w = {.bytes = 500};
    gpu->others = 800;
    const pthread_t t = start(wait_for_room, &w);
    UNTIL(stats().waiting);
    gpu->others = 0;
    OK(result_of(t));
}

/* The driver says that there is room and then has none, as when another process was faster. */
TEST_WITH(the_driver_refuses, begin_test, end_test)
{
    uint64_t a;
    gpu->fail_allocations = 3;
    OK(cede_memory_allocate(m, NULL, 500, 60 * S, &a));
    assert_int_equal(gpu->fail_allocations, 0);
    assert_int_equal(stats().promised_bytes, 0);
    gpu->fail_allocations = 1 << 20;
    assert_int_equal(cede_memory_allocate(m, NULL, 300, 20000, &a), -ENOMEM);
    assert_int_equal(try_allocate(NULL, 300), -ENOMEM);
    assert_non_null(strstr(stats().error, "cannot allocate memory on GPU 0: "
                                          "CUDA_ERROR_OUT_OF_MEMORY (2)"));
    gpu->fail_allocations = 0;
    assert_int_equal(stats().reservations, 0);
}

TEST_WITH(closed_in_a_child, begin_test, end_test)
{
    const struct cede_reservation r = reserve(100);
    pid_t child = fork();
    if (child == 0) {
        struct cede_memory *own;
        _exit(cede_memory_can_allocate(m, 1) != -ESHUTDOWN || cede_memory_release(&r) != -ESTALE ||
              cede_memory_open(NULL, &own) != 0 || cede_memory_can_allocate(own, 900) != 1);
    }
    child_ends_well(child);
    OK(cede_memory_release(&r));
}

TEST_WITH(allocations_from_a_reservation, begin_test, end_test)
{
    const struct cede_reservation r = reserve(500), other = reserve(300);
    const uint64_t a = allocate(&r, 400);
    assert_int_equal(try_allocate(&r, 201), -ENOMEM);
    const uint64_t b = allocate(&r, 200); /* 100 more than reserved */
    assert_int_equal(stats().promised_bytes, 300);
    OK(cede_memory_release(&other));
    OK(cede_memory_free(m, a));
    assert_int_equal(stats().promised_bytes, 300);
    gpu->fail_allocations = 1;
    assert_int_equal(try_allocate(&r, 300), -ENOMEM);
    assert_int_equal(stats().promised_bytes, 300);
    OK(cede_memory_release(&r));
    assert_int_equal(try_allocate(&r, 1), -ESTALE);
    assert_int_equal(stats().allocated_bytes, 200);
    OK(cede_memory_free(m, b));
    assert_int_equal(cede_memory_can_allocate(m, 900), 1);
}

/* ---- pressure and who has it ----------------------------------------------------------------- */

struct noted {
    enum cede_pressure v[8];
    unsigned n;
    uint64_t cache;
};

static void note_pressure(void *arg, enum cede_pressure now)
{
    struct noted *p = arg;
    p->v[p->n++] = now;
    if (now == CEDE_PRESSURE_CRITICAL && p->cache) {
        uint64_t a = p->cache;
        p->cache = 0;
        OK(cede_memory_free(m, a));
    }
}

TEST_WITH(pressure_is_reported, NULL, end_test)
{
    struct noted p = {.n = 0};
    m = OPEN(memory, .polling_us = 1000, .on_pressure = note_pressure, .arg = &p);
    assert_int_equal(cede_memory_pressure(m), CEDE_PRESSURE_LOW);
    p.cache = allocate(NULL, 200);
    others_have(500);
    assert_int_equal(cede_memory_pressure(m), CEDE_PRESSURE_HIGH);
    others_have(650);
    cede_memory_pressure(m); /* and the callback frees its cache */
    others_have(650);
    assert_int_equal(cede_memory_pressure(m), CEDE_PRESSURE_LOW);
    assert_true(p.n >= 3);
    assert_int_equal(p.v[0], CEDE_PRESSURE_HIGH);
    assert_int_equal(p.v[1], CEDE_PRESSURE_CRITICAL);
    assert_int_equal(p.v[p.n - 1], CEDE_PRESSURE_LOW);
}

TEST_WITH(who_has_it, begin_test, end_test)
{
    struct cede_memory_user u[2];
    char text[800], small[10];
    const struct fake_process there[] = {
        {1, 5ULL << 30}, {999999999, UINT64_MAX}, {(unsigned)getpid(), 1ULL << 30}};
    memcpy(nvml->process, there, sizeof(there));
    nvml->processes = 3;
    assert_int_equal(cede_memory_users(m, u, 2), 3);
    assert_true(u[0].ours && u[0].pid == getpid() && u[0].bytes == 1ULL << 30 && u[0].name[0]);
    assert_true(!u[1].ours && u[1].pid == 999999999 && !u[1].name[0]);
    OK(cede_memory_text(m, text, sizeof(text)));
    assert_non_null(strstr(text, "GPU 0: there is room for "));
    assert_non_null(strstr(text, ", this process) has 1.00 GiB, a process (pid 999999999) has an "
                                 "unknown amount, "));
    assert_non_null(strstr(text, "(pid 1) has 5.00 GiB"));
    OK(cede_memory_text(m, small, sizeof(small)));
    assert_string_equal(small, "GPU 0: th");
    nvml->processes = 0;
}

/* ---- leases ---------------------------------------------------------------------------------- */

static const struct cede_shape of_gemm = {.blocks = 4, .threads = 32};
static struct cede_pool *pool;
static struct cede_lease lease;
static struct cede_reservation room;

/* Sets both if it succeeds. */
static int acquire(const char *kernel)
{
    return cede_memory_acquire(m, pool, kernel, &of_gemm, NULL, 0, 0, &lease, &room);
}

static void give_back(void)
{
    OK(cede_release(&lease));
    OK(cede_memory_release(&room));
}

TEST_WITH(leases_learn_their_need, begin_test, end_test)
{
    pool = OPEN(pool, .target_utilization_percent = 100, .max_concurrent_streams = 1);
    OK(cede_pool_occupancy(pool, "gemm", 0.1));
    OK(acquire("gemm"));
    assert_int_equal(lease.device, 0);
    assert_int_equal(room.bytes, 0);
    const uint64_t a = allocate(&room, 500);
    OK(cede_memory_free(m, allocate(&room, 100)));
    assert_int_equal(acquire("gemm"), -EAGAIN); /* what was reserved for it comes back */
    assert_int_equal(stats().reservations, 1);
    OK(cede_memory_free(m, a));
    give_back();
    assert_int_equal(cede_memory_need(m, "gemm", &of_gemm), 600);
    OK(cede_memory_need(m, "conv", &of_gemm));
    OK(acquire("gemm"));
    assert_int_equal(room.bytes, 600);
    assert_int_equal(acquire("gemm"), -ENOMEM);
    assert_int_equal(acquire("none"), -ENOENT);
    assert_int_equal(stats().promised_bytes, 600);
    give_back();
    OK(cede_pool_close(pool));
}

TEST_WITH(ranges_are_there_first, begin_test, end_test)
{
    static const struct cede_range ranges[] = {
        {4096, 300, CEDE_RANGE_READ_MOSTLY | CEDE_RANGE_PREFER_DEVICE}, {4096, 700, 0}, {0, 10, 0}};
    /* No room for the second beside the first; the driver refuses the third. */
    static const char *const skipped[] = {"",
                                          "a range of 700 bytes: the GPU has no room for it now",
                                          "a range of 10 bytes: cannot prefetch a range"};
    pool = OPEN(pool, .flags = CEDE_POOL_NO_GPU);
    int synchronized = gpu->synchronized;
    gpu->prefetched = 0;
    for (unsigned n = 1; n <= 3; n++) {
        OK(cede_memory_acquire(m, pool, NULL, NULL, ranges, n, 0, &lease, &room));
        assert_int_equal(gpu->prefetched, 300 * n);
        HAS(stats(), (prefetched_ranges, n), (prefetched_bytes, 300 * n),
            (skipped_ranges, n * (n - 1) / 2));
        assert_int_equal(strncmp(stats().skipped, skipped[n - 1], strlen(skipped[n - 1])), 0);
        assert_int_equal(stats().skipped[0] != '\0', n > 1);
        give_back();
        assert_int_equal(stats().promised_bytes, 0);
    }
    close_memory();
    cuda->unmanaged = 1;
    begin_test(NULL);
    OK(cede_memory_acquire(m, pool, NULL, NULL, ranges, 1, 0, &lease, &room));
    cuda->unmanaged = 0;
    assert_int_equal(gpu->prefetched, 900);
    assert_non_null(strstr(stats().skipped, "no concurrent managed access"));
    give_back();
    assert_int_equal(gpu->advised, 1 << 1 | 1 << 3);
    assert_int_equal(gpu->synchronized, synchronized + 3);
    OK(cede_pool_close(pool));
    assert_true(!gpu->old_calls == !getenv("CEDE_FAKE_OLD"));
}

/* ---- closed while threads are in calls ------------------------------------------------------- */

static void *wait_for_lease(void *arg)
{
    const struct cede_range range = {4096, 300, 0};
    struct cede_lease l;
    struct cede_reservation r;
    return (void *)(intptr_t)cede_memory_acquire(m, pool, NULL, NULL, &range, 1, 60 * S, &l, &r);
}

static void *closes(void *arg)
{
    return (void *)(intptr_t)cede_memory_close(m);
}

/* What a thread keeps for its range would be room for another thread, which has gone with its stack
 * by then. */
TEST_WITH(room_is_given_to_no_thread_that_has_gone, begin_test, NULL)
{
    struct cede_lease held;
    pthread_attr_t attr;
    pthread_t asking;
    void *stack =
        mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    assert_ptr_not_equal(stack, MAP_FAILED);
    pool = OPEN(pool, .flags = CEDE_POOL_NO_GPU, .max_concurrent_streams = 1);
    OK(cede_acquire(pool, CEDE_ANY_DEVICE, NULL, NULL, 0, &held));
    const pthread_t leasing = start(wait_for_lease, NULL);
    until_waiting(pool, 1);
    OK(pthread_attr_init(&attr));
    OK(pthread_attr_setstack(&attr, stack, STACK));
    OK(pthread_create(&asking, &attr, wait_for_room, &(struct wish){.bytes = 900}));
    UNTIL(stats().waiting);
    const pthread_t closer = start(closes, NULL);
    assert_int_equal(result_of(asking), -ESHUTDOWN);
    OK(munmap(stack, STACK));
    OK(cede_release(&held));
    assert_int_equal(result_of(leasing), -ESHUTDOWN);
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
    return (void *)(intptr_t)cede_memory_pressure(m);
}

/* on_pressure is called without a lock; what it uses may be freed once the handle is closed. */
TEST_WITH(closing_waits_for_on_pressure, NULL, end_test)
{
    errno = EDOM;
    m = OPEN(memory, .polling_us = 1000, .on_pressure = while_it_is_closed);
    assert_int_equal(errno, EDOM); /* whatever the driver does */
    others_have(950);
    const pthread_t t = start(notice_pressure, NULL);
    UNTIL(inside);
    close_memory();
    closed = true;
    assert_int_equal(result_of(t), CEDE_PRESSURE_CRITICAL);
    assert_false(late);
}

/* ---- many threads ---------------------------------------------------------------------------- */

static _Atomic bool over;
static _Atomic uint64_t done, in_vain;

/* A random number of the thread's own. */
static unsigned draw(unsigned *seed, unsigned below)
{
    *seed = *seed * 1103515245 + 12345;
    return (*seed >> 8) % below;
}

static void *at_random(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    uint64_t a[4] = {0};
    while (!over) {
        unsigned i = draw(&seed, 4), bytes = 1 + draw(&seed, draw(&seed, 16) ? 60 : 600);
        struct cede_reservation r;
        int64_t timeout = draw(&seed, 4) ? 2000 : 0;
        if (a[i]) {
            if (cede_memory_free(m, a[i]))
                return NULL;
            a[i] = 0;
        } else if (draw(&seed, 3)) {
            int code = cede_memory_allocate(m, NULL, bytes, timeout, &a[i]);
            if (code && code != -ENOMEM)
                return NULL;
            a[i] = code ? 0 : a[i];
            in_vain += code != 0;
        } else if (cede_memory_reserve(m, bytes, timeout, &r) == 0) {
            if (draw(&seed, 2) && cede_memory_allocate(m, &r, bytes, 0, &a[i]))
                return NULL;
            if (cede_memory_release(&r))
                return NULL;
        }
        done++;
    }
    for (int i = 0; i < 4; i++) {
        if (a[i] && cede_memory_free(m, a[i]))
            return NULL;
    }
    return (void *)1;
}

TEST_WITH(sums_are_right, begin_test, end_test)
{
    const char *wanted = getenv("CEDE_MEMORY_SECONDS");
    time_t end = time(NULL) + (wanted ? atoi(wanted) : 2);
    pthread_t t[64];
    struct cede_memory_statistics s;
    over = false;
    gpu->refused = 0;
    start_threads(t, 64, at_random);
    while (time(NULL) < end) {
        uint64_t others = gpu->others;
        usleep(1000);
        s = stats();
        assert_true(s.allocated_bytes + s.promised_bytes <= 900);
        gpu->others = others < 90 ? others + 1 : 0; /* within the reserve */
    }
    over = true;
    assert_int_equal(join_threads(t, 64, 1), 64);
    s = stats();
    OK(s.allocations + s.reservations + s.waiting + s.allocated_bytes + s.promised_bytes);
    OK(gpu->allocated_bytes);
    OK(gpu->refused); /* never was more given out than there was */
    gpu->others = 0;
    print_message("%llu operations, %llu without room; %llu waited, %llu us at most\n",
                  (unsigned long long)done, (unsigned long long)in_vain,
                  (unsigned long long)s.waited, (unsigned long long)s.longest_wait_us);
    assert_true(done > 100);
    assert_int_equal(cede_memory_can_allocate(m, 900), 1);
}

int main(void)
{
    cuda = find("libcuda.so.1", "fake_cuda");
    gpu = find("libcuda.so.1", "fake_memory");
    nvml = find("libnvidia-ml.so.1", "fake_nvml");
    return test_run(NULL, NULL);
}
