/* What leases cost and gain on a GPU that is full: 16 threads, of which some run products, copies
 * and attention as fast as they can, and some are urgent: small kernels with a deadline, now and
 * then. The same threads without leases, with 0.1.0's defaults, with today's, and with single
 * settings changed; then urgent threads beside work in slices. The ways take turns in each round.
 * Last, libcede's occupancy against the driver's.
 *
 * "work" is what was done in terms of the time that each operation takes when it runs alone: 1.0 is
 * a GPU without idle time. Needs libcuda, and exits 77 without a GPU; cuBLAS is used if it is found
 * (CEDE_CUBLAS is its path); --cpu naps, only to see that this program works.
 *
 * usage: bench_lease_load [--seconds S] [--rounds N] [--kernels N] [--only NAME] [--cpu]
 *                         [--json FILE] */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "bench/cost.h"
#include "bench/lease_work.h"
#include "cede/slice.h"

#define THREADS   16U
#define URGENTS   4U
#define SLICES    2U /* threads with sliced work; their leases fill the GPU */
#define ROUNDS    100U
#define SAMPLES   65536U
#define PERIOD_US 2000U /* of an urgent thread, on average */
#define DUE_US    500U
#define SLICED_MS 50U /* of work in a lease */

/* Settings: 0: the default; below 0: 0. */
struct way {
    const char *name;
    bool leases, priority, sliced, yields;
    double occupancy, unknown, slowdown;
    int utilization, displace;
};

static const struct way ways[] = {
    {.name = "none"},
    {.name = "none_priority", .priority = true},
    {.name = "release_0.1.0",
     .leases = true,
     .occupancy = 0.9,
     .utilization = 80,
     .unknown = -1,
     .slowdown = -1,
     .displace = -1},
    {.name = "default", .leases = true},
    {.name = "occupancy_0.9", .leases = true, .occupancy = 0.9},
    {.name = "occupancy_1.5", .leases = true, .occupancy = 1.5},
    {.name = "occupancy_2", .leases = true, .occupancy = 2},
    {.name = "occupancy_3", .leases = true, .occupancy = 3},
    {.name = "occupancy_4", .leases = true, .occupancy = 4},
    {.name = "count_16", .leases = true, .occupancy = 64},
    {.name = "adaptive_off", .leases = true, .slowdown = -1},
    {.name = "adaptive_1.5", .leases = true, .slowdown = 1.5},
    {.name = "adaptive_3", .leases = true, .slowdown = 3},
    {.name = "adaptive_alone", .leases = true, .occupancy = 64, .slowdown = 3},
    {.name = "no_displace", .leases = true, .displace = -1},
    {.name = "unknown_0", .leases = true, .unknown = -1},
    {.name = "sliced_none", .sliced = true},
    {.name = "sliced_priority", .sliced = true, .priority = true},
    {.name = "sliced_no_displace", .leases = true, .displace = -1, .sliced = true},
    {.name = "sliced_displace", .leases = true, .sliced = true},
    {.name = "sliced_yields", .leases = true, .sliced = true, .yields = true},
};
enum { WAYS = ARRAY_SIZE(ways), NONE = 0, SLICED_NONE = 16 };

struct samples {
    double us[SAMPLES];
    uint32_t n;
};

struct result {
    struct cede_pool *pool;
    double work[ROUNDS], rate[KINDS], seconds;
    struct samples ordinary, urgent;
    uint64_t late; /* leases that were refused */
};

struct thread {
    pthread_t id;
    enum work_kind kind;
    struct work *work[2]; /* of the thread; SLICED */
    void *stream, *high;  /* for ways without leases */
    uint64_t random, done;
    struct cede_slice_progress progress;
    struct samples took;
    int failed;
};

static struct {
    double seconds;
    uint64_t rounds, kernels;
    bool cpu;
    const char *json, *only;
} o = {.seconds = 0.8, .rounds = 4, .kernels = 4};

static struct thread threads[THREADS];
static struct result results[WAYS];
static const struct way *now_way;
static struct result *now_result;
static uint64_t end_ns;
static double alone_us[KINDS]; /* one operation; SLICED: one element */
static const char *products;

/* ---- one operation --------------------------------------------------------------------------- */

static struct work *load_work(const struct thread *t)
{
    return t->work[t->kind == SLICED];
}

/* Long work in slices, in a lease or not. */
static int load_slices(struct thread *t, void *stream, const struct cede_lease *lease);

static int load_operation(struct thread *t)
{
    const struct way *y = now_way;
    void *stream = y->priority && t->kind == URGENT ? t->high : t->stream;
    struct cede_shape shape = {.due_us = t->kind == URGENT ? DUE_US : 0};
    struct cede_lease lease = {.device = 0};
    bool known = o.cpu || work_function(t->kind);
    work_shape(t->kind, &shape.blocks, &shape.threads);
    if (t->kind == SLICED)
        shape.blocks = 0; /* as many as fit */
    if (y->leases) {
        int r = cede_acquire(now_result->pool, CEDE_ANY_DEVICE, known ? work_names[t->kind] : NULL,
                             &shape, 2000000, &lease);
        if (r)
            return r;
        stream = lease.stream;
    }
    int r = 0;
    if (t->kind == SLICED)
        r = load_slices(t, stream, y->leases && y->yields ? &lease : NULL);
    for (uint64_t i = 0; !r && t->kind != SLICED && i < (t->kind == URGENT ? 1 : o.kernels); i++)
        r = work_put(load_work(t), stream, 1);
    r = r ? r : work_wait(stream);
    if (y->leases)
        r = cede_release(&lease) && !r ? -EIO : r;
    return r;
}

static int load_launch(void *arg, uint64_t unused, uint64_t count, void *stream)
{
    (void)unused;
    return work_put(load_work(arg), stream, count);
}

static int load_slices(struct thread *t, void *stream, const struct cede_lease *lease)
{
    struct cede_slice_config c;
    struct cede_slice_progress p = {.next_count = t->progress.next_count};
    cede_slice_defaults(&c);
    c.flags = o.cpu ? CEDE_SLICE_NO_GPU : 0;
    c.count = alone_us[SLICED] > 0 ? (uint64_t)(SLICED_MS * 1000 / alone_us[SLICED]) + 1 : 100000;
    c.timeout_us =
        alone_us[SLICED] > 0 ? CEDE_TIMEOUT_FOREVER : 300000; /* that is still to be found */
    c.stream = stream;
    c.lease = lease;
    c.launch = load_launch;
    c.arg = t;
    int r = cede_slice_run(&c, &p);
    t->done += p.done;
    t->progress = p;
    if (r && r != -ETIMEDOUT)
        fprintf(stderr, "bench_lease_load: %s\n", p.error);
    return r == -ETIMEDOUT ? 0 : r;
}

/* ---- threads --------------------------------------------------------------------------------- */

static void load_note(struct samples *s, double us)
{
    if (s->n < SAMPLES)
        s->us[s->n++] = us;
}

static void load_pause(struct thread *t)
{
    t->random = t->random * 6364136223846793005ULL + 1442695040888963407ULL;
    uint64_t us = PERIOD_US / 2 + (t->random >> 33) % PERIOD_US;
    cost_nap((double)us);
}

static void *load_run(void *arg)
{
    struct thread *t = arg;
    work_enter();
    for (;;) {
        if (t->kind == URGENT)
            load_pause(t);
        uint64_t start = monotonic_ns();
        if (start >= end_ns)
            return NULL;
        int r = load_operation(t);
        t->failed = r && r != -ETIMEDOUT ? r : t->failed;
        if (t->failed)
            return NULL;
        if (r)
            continue;
        t->done += t->kind == SLICED ? 0 : t->kind == URGENT ? 1 : o.kernels;
        load_note(&t->took, cost_ms_since(start) * 1e3);
    }
}

/* Threads of `n` kinds at once for a while; a kind of KINDS has none. */
static int load_together(const struct way *y, struct result *r, const enum work_kind *kinds,
                         double seconds)
{
    bool begun[THREADS] = {false};
    now_way = y;
    now_result = r;
    uint64_t start = monotonic_ns();
    end_ns = start + (uint64_t)(seconds * 1e9);
    int failed = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        struct thread *t = &threads[i];
        t->kind = kinds[i];
        t->done = t->took.n = 0;
        begun[i] = kinds[i] != KINDS && pthread_create(&t->id, NULL, load_run, t) == 0;
        failed = kinds[i] != KINDS && !begun[i] ? -EAGAIN : failed;
    }
    for (unsigned i = 0; i < THREADS; i++) {
        if (begun[i])
            pthread_join(threads[i].id, NULL);
        failed = begun[i] && threads[i].failed ? threads[i].failed : failed;
    }
    double took = (double)(monotonic_ns() - start) / 1e9;
    r->seconds = took;
    return failed;
}

static enum work_kind load_kind(unsigned thread)
{
    static const enum work_kind ordinary[] = {PRODUCT, COPY, ATTENTION};
    return thread < URGENTS ? URGENT : ordinary[(thread - URGENTS) % ARRAY_SIZE(ordinary)];
}

static int load_round(unsigned way, unsigned round)
{
    const struct way *y = &ways[way];
    struct result *r = &results[way];
    enum work_kind kinds[THREADS];
    double before = r->seconds;
    for (unsigned i = 0; i < THREADS; i++) {
        kinds[i] = load_kind(i);
        if (y->sliced && i >= URGENTS)
            kinds[i] = i < URGENTS + SLICES ? SLICED : KINDS;
    }
    int failed = load_together(y, r, kinds, o.seconds);
    double took = r->seconds;
    for (unsigned i = 0; i < THREADS; i++) {
        struct thread *t = &threads[i];
        if (kinds[i] == KINDS)
            continue;
        r->rate[t->kind] += (double)t->done;
        r->work[round] += (double)t->done * alone_us[t->kind] / 1e6 / took;
        for (uint32_t k = 0; k < t->took.n; k++)
            load_note(t->kind == URGENT ? &r->urgent : &r->ordinary, t->took.us[k]);
    }
    r->seconds = before + took;
    return failed;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static double load_setting(double wanted, double by_default)
{
    return wanted > 0 ? wanted : wanted < 0 ? 0 : by_default;
}

static int load_open(unsigned way)
{
    static const double shares[KINDS] = {0.8, 0.5, 0.9, 0.1, 1};
    const struct way *y = &ways[way];
    struct cede_pool_config c;
    cede_pool_defaults(&c);
    c.flags = o.cpu ? CEDE_POOL_NO_GPU : 0;
    c.devices = 1;
    c.max_total_occupancy = load_setting(y->occupancy, c.max_total_occupancy);
    c.unknown_occupancy = load_setting(y->unknown, c.unknown_occupancy);
    c.max_slowdown = load_setting(y->slowdown, c.max_slowdown);
    c.target_utilization_percent =
        (unsigned)load_setting(y->utilization, c.target_utilization_percent);
    c.displace = (unsigned)load_setting(y->displace, c.displace);
    int r = y->leases ? cede_pool_open(&c, &results[way].pool) : 0;
    for (unsigned k = 0; !r && y->leases && k < KINDS; k++) {
        if (o.cpu)
            r = cede_pool_occupancy(results[way].pool, work_names[k], shares[k]);
        else if (work_function(k))
            r = cede_pool_kernel(results[way].pool, work_names[k], work_function(k));
    }
    return r;
}

/* What one operation of a kind takes alone, without leases. */
static int load_alone_one(enum work_kind k)
{
    enum work_kind kinds[THREADS];
    struct result r = {0};
    unsigned one = k == SLICED ? URGENTS : 0;
    double busy_us = 0;
    while (k != SLICED && load_kind(one) != k)
        one++;
    for (unsigned i = 0; i < THREADS; i++)
        kinds[i] = i == one ? k : KINDS;
    int failed = load_together(&ways[NONE], &r, kinds, 0.2);
    for (uint32_t i = 0; i < threads[one].took.n; i++)
        busy_us += threads[one].took.us[i];
    if (failed || !threads[one].done)
        return failed ? failed : -EIO;
    alone_us[k] = busy_us / (double)threads[one].done;
    return 0;
}

static int load_alone(void)
{
    int r = 0;
    for (unsigned twice = 0; twice < 2; twice++) { /* first, everything becomes warm */
        alone_us[SLICED] = 0;
        for (unsigned k = 0; !r && k < KINDS; k++)
            r = load_alone_one(k);
    }
    return r;
}

static int load_set_up(void)
{
    for (unsigned i = 0; i < THREADS; i++) {
        struct thread *t = &threads[i];
        t->random = i + 1;
        t->kind = load_kind(i);
        t->work[0] = work_new(t->kind);
        bool slices = i >= URGENTS && i < URGENTS + SLICES;
        t->work[1] = slices ? work_new(SLICED) : NULL;
        t->stream = work_stream(false);
        t->high = work_stream(true);
        if (!t->work[0] || (slices && !t->work[1]) || (!o.cpu && (!t->stream || !t->high)))
            return -EIO;
    }
    int r = load_alone();
    for (unsigned way = 0; !r && way < WAYS; way++)
        r = load_open(way);
    return r;
}

/* ---- report ---------------------------------------------------------------------------------- */

static double quantile(const struct samples *s, double q)
{
    return cost_quantile(s->us, s->n, q);
}

static bool load_left_out(unsigned way)
{
    return o.only && !strstr(ways[way].name, o.only) && way != NONE && way != SLICED_NONE;
}

static double load_median(const struct result *r)
{
    return r->work[o.rounds / 2];
}

static void report_way(FILE *f, unsigned way)
{
    const struct result *r = &results[way], *none = &results[ways[way].sliced ? SLICED_NONE : NONE];
    struct cede_pool_statistics s = {.limit = 0};
    if (r->pool)
        cede_pool_get_statistics(r->pool, 0, &s, sizeof(s));
    fprintf(f, "%s{\"name\":\"%s\",\"work\":%.4f,\"work_min\":%.4f,\"work_max\":%.4f,",
            way ? ",\n " : "", ways[way].name, load_median(r), r->work[0], r->work[o.rounds - 1]);
    fprintf(f, "\"of_none\":%.4f,", load_median(r) / load_median(none));
    for (unsigned k = 0; k < KINDS; k++)
        fprintf(f, "\"%s_per_s\":%.1f,", work_names[k], r->rate[k] / r->seconds);
    const struct samples *both[] = {&r->ordinary, &r->urgent};
    for (unsigned i = 0; i < 2; i++)
        fprintf(f, "\"%s\":{\"n\":%u,\"p50_us\":%.0f,\"p99_us\":%.0f,\"max_us\":%.0f},",
                i ? "urgent" : "ordinary", both[i]->n, quantile(both[i], 0.5),
                quantile(both[i], 0.99), quantile(both[i], 1));
    fprintf(f,
            "\"started\":%llu,\"displaced\":%llu,\"timed_out\":%llu,\"limit\":%u,"
            "\"utilization\":%d,\"error\":\"%s\"}",
            (unsigned long long)s.started, (unsigned long long)s.displaced,
            (unsigned long long)s.timed_out, s.limit, r->pool ? s.utilization_percent : -1,
            s.error);
}

static void report_table(unsigned differ, unsigned cases)
{
    printf("products: %s; alone, us:", products);
    for (unsigned k = 0; k < KINDS; k++)
        printf(" %s %.1f", work_names[k], alone_us[k]);
    printf("\n%-20s %6s %8s %10s %10s %10s %10s %9s %5s\n", "", "work", "of none", "ordinary",
           "p99, us", "urgent p50", "p99, us", "displaced", "limit");
    for (unsigned way = 0; way < WAYS; way++) {
        const struct result *r = &results[way];
        const struct result *none = &results[ways[way].sliced ? SLICED_NONE : NONE];
        struct cede_pool_statistics s = {.limit = 0};
        if (load_left_out(way))
            continue;
        if (r->pool)
            cede_pool_get_statistics(r->pool, 0, &s, sizeof(s));
        bool keeps = load_median(r) >= load_median(none) &&
                     quantile(&r->urgent, 0.99) < quantile(&none->urgent, 0.99);
        printf("%-20s %6.3f %7.1f%% %10.0f %10.0f %10.0f %10.0f %9llu %5u%s\n", ways[way].name,
               load_median(r), 100 * load_median(r) / load_median(none),
               quantile(&r->ordinary, 0.5), quantile(&r->ordinary, 0.99), quantile(&r->urgent, 0.5),
               quantile(&r->urgent, 0.99), (unsigned long long)s.displaced, s.limit,
               keeps ? " *" : "");
    }
    printf("*: as much work as without leases, and a better p99 of urgent ones\n");
    if (!o.cpu)
        printf("occupancy: %u of %u cases differ from the driver's\n", differ, cases);
}

static int report(void)
{
    FILE *f = o.json ? fopen(o.json, "we") : NULL;
    unsigned cases = 0;
    double worst = 0;
    bool right = true;
    int differ = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        right &= work_right(threads[i].work[0], &worst);
        right &= !threads[i].work[1] || work_right(threads[i].work[1], &worst);
    }
    if (o.json && !f) {
        fprintf(stderr, "bench_lease_load: cannot write %s: %s\n", o.json, strerror(errno));
        return -EIO;
    }
    FILE *out = f ? f : stdout;
    fputc('{', out);
    work_describe(out);
    fprintf(out, ",\"products\":\"%s\",\"seconds\":%.3f,\"rounds\":%llu,\"kernels\":%llu,",
            products, o.seconds, (unsigned long long)o.rounds, (unsigned long long)o.kernels);
    fprintf(out, "\"right\":%s,\"worst_error\":%.2g,\"alone_us\":{", right ? "true" : "false",
            worst);
    for (unsigned k = 0; k < KINDS; k++)
        fprintf(out, "%s\"%s\":%.2f", k ? "," : "", work_names[k], alone_us[k]);
    fputs("},\n\"ways\":[", out);
    for (unsigned way = 0; way < WAYS; way++) {
        struct result *r = &results[way];
        cost_sort(r->work, o.rounds);
        cost_sort(r->ordinary.us, r->ordinary.n);
        cost_sort(r->urgent.us, r->urgent.n);
        if (!load_left_out(way))
            report_way(out, way);
    }
    fputs("],\n", out);
    if (o.cpu)
        fputs("\"occupancy\":null", out);
    else
        differ = occupancy_check(out, &cases);
    fputs("}\n", out);
    if (f && fclose(f))
        return -EIO;
    report_table((unsigned)(differ > 0 ? differ : 0), cases);
    if (!right)
        fprintf(stderr, "bench_lease_load: results are not what the host computes: off by %g\n",
                worst);
    return right && differ >= 0 ? 0 : -EIO;
}

int main(int argc, char **argv)
{
    static const struct command_line line = {
        .program = "bench_lease_load",
        .help = "usage: bench_lease_load [--seconds S] [--rounds N] [--kernels N] [--only NAME] "
                "[--cpu] [--json FILE]\n"};
    const struct option_row options[] = {{"seconds", COST_REAL(&o.seconds, 0.01, 60)},
                                         {"rounds", COST_WHOLE(&o.rounds, 1, ROUNDS)},
                                         {"kernels", COST_WHOLE(&o.kernels, 1, 1000)},
                                         {"only", .text = &o.only},
                                         {"cpu", .flag = &o.cpu},
                                         {"json", .text = &o.json}};
    int status = cost_options(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    const char *missing = work_start(o.cpu, &products);
    if (missing) {
        fprintf(stderr, "bench_lease_load: %s\n", missing);
        return 77;
    }
    int r = load_set_up();
    for (unsigned round = 0; !r && round < o.rounds; round++) {
        for (unsigned way = 0; !r && way < WAYS; way++)
            r = load_left_out(way) ? 0 : load_round(way, round);
    }
    if (r)
        fprintf(stderr, "bench_lease_load: an operation failed: %s\n", strerror(-r));
    else
        r = report();
    return r ? 1 : 0;
}
