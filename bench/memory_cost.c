/* What cede/memory.h costs and brings on a GPU: (1) time to first use of managed memory that the
 * host has, by faults, and prefetched with a lease; (2) threads that allocate and free at random:
 * the sums have to be right; (3) each call, compared with the driver's. A table on standard output,
 * and one JSON file.
 *
 * usage: bench_memory_cost [--json FILE] [--seconds N] [--rounds N] [--mib N]
 * Exit status 0, 1 (a figure is missing or a sum is wrong), 77 (no GPU). */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/symbols.h"
#include "bench/cost.h"
#include "bench/kernels.h"
#include "cede/memory.h"

#define THREADS    64
#define ROUNDS_MAX 99
#define CALLS      200
#define SCATTER    2654435769ULL /* odd: each word once; neighbours are far apart */
#define MIB        (1ULL << 20)

#define BENCH_CALLS(X)                                                                             \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(version, "cuDriverGetVersion", (int *v))                                                     \
    X(device, "cuDeviceGet", (int *d, int ordinal))                                                \
    X(name, "cuDeviceGetName", (char *s, int n, int d))                                            \
    X(retain, "cuDevicePrimaryCtxRetain", (void **c, int d))                                       \
    X(push, "cuCtxPushCurrent_v2", (void *c))                                                      \
    X(info, "cuMemGetInfo_v2", (size_t * available, size_t * all))                                 \
    X(alloc, "cuMemAlloc_v2", (unsigned long long *p, size_t n))                                   \
    X(dealloc, "cuMemFree_v2", (unsigned long long p))

#define TOUCH_CALLS(X)                                                                             \
    X(managed, "cuMemAllocManaged", (unsigned long long *p, size_t n, unsigned flags))             \
    X(module, "cuModuleLoadData", (void **m, const void *image))                                   \
    X(function, "cuModuleGetFunction", (void **f, void *m, const char *s))                         \
    X(launch, "cuLaunchKernel",                                                                    \
      (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,      \
       unsigned shared, void *s, void **params, void **extra))                                     \
    X(sync, "cuStreamSynchronize", (void *s))

static struct driver {
#define X(field, symbol, args) int(*field) args;
    BENCH_CALLS(X)
    TOUCH_CALLS(X)
#undef X
} cu;
#define X(field, symbol, args) {symbol, offsetof(struct driver, field)},
static const struct symbol bench_symbols[] = {BENCH_CALLS(X)}, touch_symbols[] = {TOUCH_CALLS(X)};
#undef X

static unsigned seconds = 20, rounds = 5;
static uint64_t touched_bytes = 1024 * MIB;
static struct cede_memory *memory;
static FILE *json;
static bool failed;

static void complain(const char *what, int r)
{
    fprintf(stderr, "memory_cost: %s: %d\n", what, r);
    failed = true;
}

/* ---- (1) first use --------------------------------------------------------------------------- */

struct first_use {
    double granted[ROUNDS_MAX], kernel[ROUNDS_MAX], total[ROUNDS_MAX];
    unsigned n;
};

/* Managed memory whose pages the host has. */
static volatile uint64_t *host_pages(void)
{
    unsigned long long p = 0;
    int r = cu.managed(&p, touched_bytes, 1);
    if (r) {
        complain("cuMemAllocManaged", r);
        return NULL;
    }
    volatile uint64_t *words = (volatile uint64_t *)(uintptr_t)p;
    for (uint64_t i = 0; i < touched_bytes / 8; i++)
        words[i] = i;
    return words;
}

static bool as_expected(const volatile uint64_t *words, uint64_t passes)
{
    for (uint64_t i = 0; i < touched_bytes / 8; i += 4099) {
        if (words[i] != i + passes)
            return false;
    }
    return true;
}

static int touch(void *kernel, volatile uint64_t *words, uint64_t step, void *stream)
{
    uint64_t at = (uint64_t)(uintptr_t)words, n = touched_bytes / 8;
    void *params[] = {&at, &n, &step};
    int r = cu.launch(kernel, 1024, 1, 1, 256, 1, 1, 0, stream, params, NULL);
    return r ? r : cu.sync(stream);
}

/* One use with a lease, which brings the pages or leaves them to be faulted in. */
static void use_once(struct cede_pool *pool, void *kernel, uint64_t step, bool prefetch,
                     struct first_use *out)
{
    volatile uint64_t *words = host_pages();
    const struct cede_range range = {(uint64_t)(uintptr_t)words, touched_bytes, 0};
    struct cede_lease lease;
    struct cede_reservation room;
    if (!words)
        return;
    uint64_t t = monotonic_ns();
    int r = cede_memory_acquire(memory, pool, NULL, NULL, &range, prefetch ? 1 : 0, 10000000,
                                &lease, &room);
    double granted = cost_ms_since(t);
    if (r) {
        complain("cede_memory_acquire", r);
    } else {
        uint64_t k = monotonic_ns();
        r = touch(kernel, words, step, lease.stream);
        out->kernel[out->n] = cost_ms_since(k);
        out->total[out->n] = cost_ms_since(t);
        out->granted[out->n++] = granted;
        if (r || !as_expected(words, 1))
            complain("the kernel did not do its work", r);
        cede_release(&lease);
        cede_memory_release(&room);
    }
    cu.dealloc((unsigned long long)(uintptr_t)words);
}

static void print_use(const char *order, const char *how, struct first_use *u, bool last)
{
    fprintf(json, "    {\"order\":\"%s\",\"by\":\"%s\",\"total_ms\":[", order, how);
    for (unsigned i = 0; i < u->n; i++)
        fprintf(json, "%s%.3f", i ? "," : "", u->total[i]);
    double total = cost_median(u->total, u->n), granted = cost_median(u->granted, u->n),
           kernel = cost_median(u->kernel, u->n);
    fprintf(json,
            "],\"median_total_ms\":%.3f,\"median_granted_ms\":%.3f,\"median_kernel_ms\":%.3f}%s\n",
            total, granted, kernel, last ? "" : ",");
    printf("%-10s %-12s %12.2f %12.2f %12.2f\n", order, how, granted, kernel, total);
}

static void first_use(void)
{
    static const struct {
        const char *name;
        uint64_t step;
    } orders[] = {{"in order", 1}, {"scattered", SCATTER}};
    static struct first_use faults, fetched;
    struct cede_pool_config c;
    struct cede_pool *pool = NULL;
    struct cede_memory_statistics s;
    void *module, *kernel;
    size_t available = 0, all;
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    cede_pool_defaults(&c);
    c.target_utilization_percent = 100;
    cu.info(&available, &all);
    const char *missing = symbols_find(lib, touch_symbols, ARRAY_SIZE(touch_symbols), &cu);
    if (missing || available < 4 * touched_bytes) { /* never more managed memory than is free */
        printf("first use: skipped: %s\n", missing ? missing : "too little memory is free");
        fprintf(json, "  \"first_use\":null,\n");
        return;
    }
    int r = cu.module(&module, memory_touch_ptx);
    r = r ? r : cu.function(&kernel, module, "memory_touch");
    r = r ? r : cede_pool_open(&c, &pool);
    if (r) {
        complain("the kernel or the pool", r);
        return;
    }
    printf("%-10s %-12s %12s %12s %12s   ms, medians of %u, %llu MiB\n", "first use", "by",
           "granted", "kernel", "total", rounds, (unsigned long long)(touched_bytes / MIB));
    fprintf(json, "  \"first_use\":[\n");
    for (unsigned o = 0; o < ARRAY_SIZE(orders); o++) {
        faults.n = fetched.n = 0;
        for (unsigned i = 0; i < rounds; i++) {
            use_once(pool, kernel, orders[o].step, false, &faults);
            use_once(pool, kernel, orders[o].step, true, &fetched);
        }
        print_use(orders[o].name, "faults", &faults, false);
        print_use(orders[o].name, "prefetch", &fetched, o + 1 == ARRAY_SIZE(orders));
        printf("%-10s prefetched: %.2f times faster from the request to the end of the first use, "
               "%.2f times from the lease\n",
               orders[o].name,
               cost_median(faults.total, faults.n) / cost_median(fetched.total, fetched.n),
               cost_median(faults.kernel, faults.n) / cost_median(fetched.kernel, fetched.n));
    }
    cede_memory_get_statistics(memory, &s, sizeof(s));
    fprintf(json, "  ],\n  \"ranges\":{\"prefetched\":%llu,\"skipped\":%llu,\"why\":\"%s\"},\n",
            (unsigned long long)s.prefetched_ranges, (unsigned long long)s.skipped_ranges,
            s.skipped);
    if (s.skipped_ranges)
        printf("ranges skipped: %llu, %s\n", (unsigned long long)s.skipped_ranges, s.skipped);
    cede_pool_close(pool);
}

/* ---- (2) at random --------------------------------------------------------------------------- */

static _Atomic bool over;
static _Atomic uint64_t allocated, reserved, without_room, wrong;
static uint64_t largest;

static uint64_t draw(uint64_t *seed, uint64_t below)
{
    *seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (*seed >> 33) % below;
}

static void *at_random(void *arg)
{
    uint64_t seed = (uint64_t)(uintptr_t)arg, held[4] = {0};
    while (!over) {
        uint64_t i = draw(&seed, 4), bytes = 1 + draw(&seed, largest), *a = &held[i];
        int64_t timeout_us = draw(&seed, 4) ? 20000 : 0;
        struct cede_reservation r;
        int code = 0;
        if (*a) {
            code = cede_memory_free(memory, *a);
            *a = 0;
        } else if (draw(&seed, 3)) {
            code = cede_memory_allocate(memory, NULL, bytes, timeout_us, a);
            allocated += code == 0;
        } else {
            code = cede_memory_reserve(memory, bytes, timeout_us, &r);
            reserved += code == 0;
            if (code == 0 && draw(&seed, 2))
                wrong += cede_memory_allocate(memory, &r, bytes / 2 + 1, 0, a) != 0;
            if (code == 0)
                wrong += cede_memory_release(&r) != 0;
        }
        without_room += code == -12;
        wrong += code && code != -12;
    }
    for (int i = 0; i < 4; i++)
        wrong += held[i] && cede_memory_free(memory, held[i]) != 0;
    return NULL;
}

static void many_threads(void)
{
    pthread_t t[THREADS];
    struct cede_memory_statistics s;
    size_t before = 0, after = 0, all;
    uint64_t most = 0, over_committed = 0;
    cede_memory_get_statistics(memory, &s, sizeof(s));
    const uint64_t usable = s.total_bytes - s.reserve_bytes, granted = s.granted;
    largest = usable / 16; /* far more than there is, together */
    cu.info(&before, &all);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&t[i], NULL, at_random, (void *)(i + 1));
    for (uint64_t end = monotonic_ns() + seconds * NSEC_PER_SEC; monotonic_ns() < end;) {
        usleep(10000);
        cede_memory_get_statistics(memory, &s, sizeof(s));
        uint64_t sum = s.allocated_bytes + s.promised_bytes;
        most = sum > most ? sum : most;
        over_committed += sum > usable;
    }
    over = true;
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    cede_memory_get_statistics(memory, &s, sizeof(s));
    cu.info(&after, &all);
    uint64_t left =
        s.allocations + s.reservations + s.waiting + s.allocated_bytes + s.promised_bytes;
    int64_t lost = (int64_t)before - (int64_t)after;
    if (wrong || over_committed || left || lost > (int64_t)(64 * MIB))
        complain("sums are wrong: calls that failed", (int)wrong);
    printf("%u threads, %u s: %llu allocations, %llu reservations, %llu without room, %llu waited "
           "(%.1f ms at most); peak %.1f of %.1f MiB; wrong %llu, over-committed %llu, left %llu, "
           "lost %lld bytes\n",
           THREADS, seconds, (unsigned long long)allocated, (unsigned long long)reserved,
           (unsigned long long)without_room, (unsigned long long)s.waited,
           (double)s.longest_wait_us / 1e3, (double)most / MIB, (double)usable / MIB,
           (unsigned long long)wrong, (unsigned long long)over_committed, (unsigned long long)left,
           (long long)lost);
    fprintf(
        json,
        "  \"threads\":{\"threads\":%u,\"seconds\":%u,\"allocations\":%llu,\"reservations\":%llu,"
        "\"granted\":%llu,\"without_room\":%llu,\"waited\":%llu,\"longest_wait_us\":%llu,"
        "\"peak_bytes\":%llu,\"usable_bytes\":%llu,\"wrong\":%llu,\"over_committed\":%llu,"
        "\"left\":%llu,\"lost_bytes\":%lld,\"error\":\"%s\"},\n",
        THREADS, seconds, (unsigned long long)allocated, (unsigned long long)reserved,
        (unsigned long long)(s.granted - granted), (unsigned long long)without_room,
        (unsigned long long)s.waited, (unsigned long long)s.longest_wait_us,
        (unsigned long long)most, (unsigned long long)usable, (unsigned long long)wrong,
        (unsigned long long)over_committed, (unsigned long long)left, (long long)lost, s.error);
}

/* ---- (3) calls ------------------------------------------------------------------------------- */

enum call { CAN_ALLOCATE, RESERVE, DRIVER_INFO, DRIVER_PAIR, CEDE_PAIR, CALL_KINDS };

static int call_once(enum call call, uint64_t bytes)
{
    struct cede_reservation r;
    unsigned long long p = 0;
    uint64_t a;
    size_t x, y;
    int code = 0;
    switch (call) {
    case CAN_ALLOCATE:
        return cede_memory_can_allocate(memory, bytes) != 1;
    case RESERVE:
        code = cede_memory_reserve(memory, bytes, 0, &r);
        return code ? code : cede_memory_release(&r);
    case DRIVER_INFO:
        return cu.info(&x, &y);
    case DRIVER_PAIR:
        code = cu.alloc(&p, bytes);
        return code ? code : cu.dealloc(p);
    default:
        code = cede_memory_allocate(memory, NULL, bytes, 0, &a);
        return code ? code : cede_memory_free(memory, a);
    }
}

static void calls(bool small)
{
    static const char *const names[] = {"can_allocate", "reserve + release", "cuMemGetInfo",
                                        "cuMemAlloc + cuMemFree", "allocate + free"};
    static const uint64_t real[] = {64 * 1024, 2 * MIB, 64 * MIB}, stand_in[] = {1, 2, 64};
    static double v[CALL_KINDS][ROUNDS_MAX];
    printf("%-24s %10s %12s\n", "call", "bytes", "us, median");
    fprintf(json, "  \"calls\":[\n");
    for (unsigned b = 0; b < ARRAY_SIZE(real); b++) {
        uint64_t bytes = small ? stand_in[b] : real[b];
        for (unsigned i = 0; i < rounds; i++) {
            for (unsigned k = 0; k < CALL_KINDS; k++) { /* in turn: all see the same machine */
                uint64_t t = monotonic_ns();
                int r = 0;
                for (int n = 0; n < CALLS && !r; n++)
                    r = call_once((enum call)k, bytes);
                v[k][i] = cost_ms_since(t) * 1e3 / CALLS;
                if (r)
                    complain(names[k], r);
            }
        }
        for (unsigned k = 0; k < CALL_KINDS; k++) {
            double us = cost_median(v[k], rounds);
            printf("%-24s %10llu %12.2f\n", names[k], (unsigned long long)bytes, us);
            fprintf(json, "    {\"call\":\"%s\",\"bytes\":%llu,\"us\":%.3f}%s\n", names[k],
                    (unsigned long long)bytes, us,
                    b + 1 == ARRAY_SIZE(real) && k + 1 == CALL_KINDS ? "" : ",");
        }
    }
    fprintf(json, "  ],\n");
}

static bool options(int argc, char **argv)
{
    const char *file = "/dev/null";
    for (int i = 1; i + 1 < argc; i += 2) {
        unsigned long n = strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--json") == 0)
            file = argv[i + 1];
        else if (strcmp(argv[i], "--seconds") == 0)
            seconds = (unsigned)n;
        else if (strcmp(argv[i], "--rounds") == 0 && n >= 1 && n <= ROUNDS_MAX)
            rounds = (unsigned)n;
        else if (strcmp(argv[i], "--mib") == 0 && n && (n & (n - 1)) == 0)
            touched_bytes = n * MIB;
        else
            return false;
    }
    json = fopen(file, "we");
    return json && argc % 2;
}

int main(int argc, char **argv)
{
    int device, version = 0;
    char name[96] = "";
    void *context, *lib = dlopen("libcuda.so.1", RTLD_NOW);
    struct cede_memory_statistics s;
    if (!options(argc, argv)) {
        fprintf(stderr, "usage: bench_memory_cost [--json FILE] [--seconds N] [--rounds N] "
                        "[--mib N, a power of 2]\n");
        return 1;
    }
    if (!lib || symbols_find(lib, bench_symbols, ARRAY_SIZE(bench_symbols), &cu) || cu.init(0) ||
        cu.device(&device, 0) || cu.retain(&context, device) || cu.push(context)) {
        printf("no GPU: skipped\n");
        return 77;
    }
    alarm(seconds + 110); /* a deadlock is a failure */
    cu.name(name, sizeof(name), device);
    cu.version(&version);
    int r = cede_memory_open(NULL, &memory);
    if (r) {
        complain("cede_memory_open", r);
        return 1;
    }
    cede_memory_get_statistics(memory, &s, sizeof(s));
    printf("%s, driver API %d, %.1f GiB, %.1f GiB free\n", name, version,
           (double)s.total_bytes / (1U << 30), (double)s.free_bytes / (1U << 30));
    fprintf(json, "{\n  \"gpu\":\"%s\",\"driver_api\":%d,\"total_bytes\":%llu,\n", name, version,
            (unsigned long long)s.total_bytes);
    first_use();
    calls(s.total_bytes < MIB);
    many_threads();
    fprintf(json, "  \"failed\":%s\n}\n", failed ? "true" : "false");
    fclose(json);
    cede_memory_close(memory);
    printf("%s\n", failed ? "FAILED" : "all sums are right");
    return failed;
}
