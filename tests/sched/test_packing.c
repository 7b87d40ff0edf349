/* What gangs and single jobs on the same GPUs get in the long run, at the scheduler's decisions
 * alone. The fair part of each job is worked out here by linear programming, independently of how
 * the scheduler finds it.
 *
 * The fair part: jobs whose GPUs overlap never have their turn at the same time, so what they can
 * have are mixtures of sets of jobs without overlap. Of these mixtures the fair one is max-min fair
 * in GPU time by weight: no job's can grow without taking from one that has less or as much. */
#include "fixture.h"
#include "plan/packing.h"

enum { GPUS = 8, JOBS = 10, SETS = 1 << JOBS, ROWS = JOBS + 2, SEEDS = 400 };

struct job {
    uint32_t gpus;
    uint32_t weight; /* 0: default */
    enum job_class class;
};

struct scenario {
    const char *name;
    uint32_t latency; /* on these GPUs */
    struct job jobs[JOBS];
};

static uint32_t count(const struct scenario *s)
{
    uint32_t n = 0;
    while (n < JOBS && s->jobs[n].gpus)
        n++;
    return n;
}

/* GPU time counts over all GPUs of a job: so much of the time for so much of its level. */
static double rate(const struct job *j)
{
    double weight = j->weight ? j->weight : WEIGHT_DEFAULT;
    return weight / WEIGHT_DEFAULT / __builtin_popcount(j->gpus);
}

/* ---- fair parts ---- */

/* Maximize c x, a x <= b, x >= 0, for b >= 0: the simplex method on a tableau, by Bland's rule.
 * price: what a row's limit is worth. Returns the maximum. */
struct simplex {
    int rows, columns;
    double a[ROWS + 1][SETS + ROWS + 4]; /* last row: -c; last column: b */
    double price[ROWS];
};

static void pivot(struct simplex *s, int row, int column)
{
    int width = s->columns + s->rows + 1;
    double by = s->a[row][column];
    for (int k = 0; k < width; k++)
        s->a[row][k] /= by;
    for (int i = 0; i <= s->rows; i++) {
        double f = s->a[i][column];
        for (int k = 0; k < width && i != row && f != 0; k++)
            s->a[i][k] -= f * s->a[row][k];
    }
}

static double maximize(struct simplex *s)
{
    int width = s->columns + s->rows, basis[ROWS];
    for (int i = 0; i < s->rows; i++) {
        s->a[i][s->columns + i] = 1;
        basis[i] = s->columns + i;
    }
    for (;;) {
        int column = 0, row = -1;
        while (column < width && s->a[s->rows][column] > -1e-9)
            column++;
        if (column == width)
            break;
        for (int i = 0; i < s->rows; i++) {
            if (s->a[i][column] < 1e-9)
                continue;
            double limit = s->a[i][width] / s->a[i][column];
            double least = row < 0 ? 0 : s->a[row][width] / s->a[row][column];
            if (row < 0 || limit < least || (limit == least && basis[i] < basis[row]))
                row = i;
        }
        assert_true(row >= 0);
        pivot(s, row, column);
        basis[row] = column;
    }
    for (int i = 0; i < s->rows; i++)
        s->price[i] = s->a[s->rows][s->columns + i];
    return s->a[s->rows][width];
}

/* Sets of jobs of these without overlap to which no other can be added. */
static uint32_t sets_of(const struct scenario *s, uint32_t n, uint32_t *sets)
{
    uint32_t found = 0;
    for (uint32_t set = 1; set < 1U << n; set++) {
        uint32_t gpus = 0;
        bool valid = true;
        for (uint32_t j = 0; j < n && valid; j++) {
            valid = !(set >> j & 1) || !(gpus & s->jobs[j].gpus);
            gpus |= set >> j & 1 ? s->jobs[j].gpus : 0;
        }
        for (uint32_t j = 0; j < n && valid; j++)
            valid = set >> j & 1 || gpus & s->jobs[j].gpus;
        if (valid)
            sets[found++] = set;
    }
    return found;
}

#define FIRST 100.0 /* what keeping all parts is worth, beside a level */

/* Raises the level of all jobs of `rising` as far as can be while the others keep their part.
 * Returns those of them that can get no more. */
static uint32_t raise(const struct scenario *s, uint32_t rising, double *part)
{
    static struct simplex x;
    static uint32_t sets[SETS];
    uint32_t n = count(s), nsets = sets_of(s, n, sets), full = 0;
    int level = (int)nsets, rest = (int)nsets + 1;
    memset(&x, 0, sizeof(x));
    x.rows = (int)n + 2;
    x.columns = (int)nsets + 2;
    int b = x.columns + x.rows;
    for (uint32_t k = 0; k < nsets; k++) {
        for (uint32_t j = 0; j < n; j++)
            x.a[j][k] = sets[k] >> j & 1 ? -1 : 0;
        x.a[n][k] = 1;
    }
    for (uint32_t j = 0; j < n; j++)
        x.a[j][rising >> j & 1 ? level : rest] = rising >> j & 1 ? rate(&s->jobs[j]) : part[j];
    x.a[n + 1][rest] = 1; /* the others keep all of their part, which comes before anything else */
    x.a[n][b] = x.a[n + 1][b] = 1;
    x.a[x.rows][level] = -1;
    x.a[x.rows][rest] = -FIRST;
    double most = maximize(&x) - FIRST;
    for (uint32_t j = 0; j < n; j++) {
        if (!(rising >> j & 1))
            continue;
        part[j] = most * rate(&s->jobs[j]);
        full |= x.price[j] * rate(&s->jobs[j]) > 1e-7 ? 1U << j : 0;
    }
    assert_true(full);
    return full;
}

/* Normal jobs first, batch jobs with what they leave. */
static void fair_parts(const struct scenario *s, double *part)
{
    for (enum job_class class = N; class <= B; class ++) {
        uint32_t rising = 0;
        for (uint32_t j = 0; j < count(s); j++)
            rising |= s->jobs[j].class == class ? 1U << j : 0;
        while (rising)
            rising &= ~raise(s, rising, part);
    }
}

/* ---- what they get ---- */

static void add(struct sched *c, uint32_t j, const struct job *job)
{
    EVENT(c, JOB_ADD, .job = j, .class = job->class,
          .weight = job->weight ? job->weight : WEIGHT_DEFAULT);
    for (uint32_t g = 0; g < GPUS; g++) {
        if (job->gpus >> g & 1)
            EVENT(c, GROUP_ADD, .job = j, .group = j * GPUS + g, .device = g, .computes = true);
    }
}

/* Which jobs run, and that each of them does so on all its GPUs, and alone. A GPU that is idle
 * although a job could run: -1. */
static int64_t running(const struct scenario *s, const struct sched_plan *plan)
{
    uint32_t n = count(s), on[JOBS + GPUS] = {0}, busy = 0;
    int64_t jobs = 0;
    for (size_t i = 0; i < plan->n; i++) {
        uint32_t j = plan->settings[i].group / GPUS, g = plan->settings[i].group % GPUS;
        on[j] |= plan->settings[i].runnable ? 1U << g : 0;
    }
    for (uint32_t j = 0; j < n; j++) {
        assert_true(!on[j] || on[j] == s->jobs[j].gpus);
        assert_false(on[j] & busy);
        busy |= on[j];
        jobs |= on[j] ? 1 << j : 0;
    }
    for (uint32_t j = 0; j < n; j++)
        jobs = jobs >= 0 && !(s->jobs[j].gpus & busy) ? -1 : jobs;
    return jobs;
}

/* Over `seconds` after the first ten. */
static bool shares(const struct scenario *s, uint64_t seconds, double *got)
{
    struct sched *c = scheduler(GPUS, JOBS + GPUS, (JOBS + GPUS) * GPUS);
    struct sched_plan plan;
    bool full = true;
    uint64_t from = 10 * SEC, end = from + seconds * SEC;
    for (uint32_t j = 0; j < count(s); j++)
        add(c, j, &s->jobs[j]);
    for (uint32_t g = 0; g < GPUS; g++) {
        if (s->latency >> g & 1)
            add(c, JOBS + g, &(struct job){.gpus = 1U << g, .class = L});
    }
    for (uint64_t now = 0; now < end;) {
        sched_decide(c, now, &plan);
        uint64_t stop = now < from ? from : end, next = min_u64(plan.wake_ns, stop);
        int64_t jobs = running(s, &plan);
        full &= jobs >= 0;
        for (uint32_t j = 0; j < count(s) && jobs > 0 && now >= from; j++)
            got[j] += jobs >> j & 1 ? (double)(next - now) / (double)(seconds * SEC) : 0;
        now = next;
    }
    sched_free(c);
    return full;
}

static bool fair(const struct scenario *s, uint64_t seconds, bool verbose, double *worst)
{
    double part[JOBS] = {0}, got[JOBS] = {0};
    fair_parts(s, part);
    bool full = shares(s, seconds, got), good = full;
    for (uint32_t j = 0; j < count(s); j++) {
        double share = part[j] > 0.01 ? got[j] / part[j] : 1;
        *worst = share < *worst ? share : *worst;
        good &= share >= 0.9;
    }
    if (good && !verbose)
        return true;
    printf("%-44s", s->name);
    for (uint32_t j = 0; j < count(s); j++)
        printf(" %x%s:%.3f/%.3f%s", s->jobs[j].gpus, s->jobs[j].class == N ? "n" : "", got[j],
               part[j], part[j] > 0.01 && got[j] < 0.9 * part[j] ? "<--" : "");
    printf("%s\n", full ? "" : " a GPU idles");
    return good;
}

/* clang-format off */
static const struct scenario table[] = {
    {"two gangs", 3, {{3, 0, B}, {3, 0, B}}},
    {"a gang and a job on each GPU", 3, {{3, 0, B}, {1, 0, B}, {2, 0, B}}},
    {"a row of four, the middle has twice as much", 15, {{3, 0, B}, {6, 0, B}, {12, 0, B}, {15, 0, B}, {1, 0, B}, {8, 0, B}}},
    {"the same by weight", 15, {{3, 200, B}, {6, 0, B}, {12, 200, B}, {15, 0, B}, {1, 0, B}, {8, 300, B}}},
    {"three gangs of two of three GPUs", 7, {{3, 0, B}, {6, 0, B}, {5, 0, B}}},
    {"the same and a job on one GPU", 7, {{3, 0, B}, {6, 0, B}, {5, 0, B}, {1, 0, B}}},
    {"a ring of five", 31, {{3, 0, B}, {6, 0, B}, {12, 0, B}, {24, 0, B}, {17, 0, B}}},
    {"a ring of five, by weight", 31, {{3, 300, B}, {6, 0, B}, {12, 0, B}, {24, 200, B}, {17, 0, B}}},
    {"a ring of eight", 255, {{3, 0, B}, {6, 0, B}, {12, 0, B}, {24, 0, B}, {48, 0, B}, {96, 0, B}, {192, 0, B}, {129, 0, B}}},
    {"a gang of eight among single jobs", 255, {{255, 0, B}, {1, 0, B}, {2, 0, B}, {4, 0, B}, {8, 0, B}, {16, 0, B}, {32, 0, B}, {64, 0, B}, {128, 0, B}}},
    {"8, 4, 2 and 1", 129, {{255, 0, B}, {15, 0, B}, {48, 0, B}, {64, 0, B}, {128, 0, B}}},
    {"among many on each GPU", 255, {{255, 0, B}, {1, 0, B}, {1, 0, B}, {1, 0, B}, {1, 0, B}, {2, 0, B}, {2, 0, B}, {2, 0, B}, {128, 0, B}, {128, 0, B}}},
    {"every other GPU", 255, {{0x55, 0, B}, {0xaa, 0, B}, {15, 0, B}, {0xf0, 0, B}}},
    {"threes of six", 63, {{7, 0, B}, {25, 0, B}, {42, 0, B}, {52, 0, B}, {1, 0, B}}},
    {"normal before batch", 15, {{3, 0, N}, {6, 0, B}, {12, 0, B}, {8, 0, N}, {1, 0, B}}},
    {"normal gangs leave time for one of batch", 15, {{3, 0, N}, {6, 0, N}, {12, 0, B}, {8, 0, B}}},
};
/* clang-format on */

TEST(test_table)
{
    unsigned bad = 0;
    double worst = 1;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        bad += !fair(&table[i], 60, true, &worst);
    assert_int_equal(bad, 0);
}

/* Any jobs on any GPUs of 2, 4 or 8: gangs of two and single jobs in two cases of three, of any
 * size in the others; in a row, or not; of one class in three cases of four. */
static struct scenario any(uint32_t i, char *name, size_t size_of_name)
{
    uint64_t seed = i;
    uint32_t gpus = 2U << rng(&seed) % 3, n = 2 + rng(&seed) % (JOBS - 1);
    snprintf(name, size_of_name, "seed %u: %u GPUs", i, gpus);
    struct scenario s = {.name = name, .latency = (1U << gpus) - 1};
    for (uint32_t j = 0; j < n; j++) {
        uint32_t size = 1 + rng(&seed) % (i % 3 ? 2 : gpus), first = rng(&seed) % gpus;
        s.jobs[j] = (struct job){0, 100 * (1 + rng(&seed) % 3), B};
        for (uint32_t g = first; (uint32_t)__builtin_popcount(s.jobs[j].gpus) < size;
             g = i % 2 ? (g + 1) % gpus : rng(&seed) % gpus)
            s.jobs[j].gpus |= 1U << g;
        if (i % 4 == 2)
            s.jobs[j].class = rng(&seed) % 2 ? N : B;
    }
    return s;
}

TEST(test_any)
{
    unsigned bad = 0;
    double worst = 1;
    for (uint32_t i = 0; i < SEEDS; i++) {
        char name[32];
        struct scenario s = any(i, name, sizeof(name));
        bad += !fair(&s, 90, false, &worst);
    }
    printf("%u of %d wrong, least %.3f of a fair part\n", bad, SEEDS, worst);
    assert_int_equal(bad, 0);
}

/* What packing.c takes for the fair parts after some rounds, as it finds limits. */
TEST(test_parts)
{
    static struct packing p;
    unsigned bad = 0;
    double worst = 0;
    for (uint32_t i = 0; i < SEEDS; i++) {
        char name[32];
        struct scenario s = any(i, name, sizeof(name));
        struct packing_set sets[JOBS];
        double part[JOBS] = {0};
        fair_parts(&s, part);
        for (uint32_t j = 0; j < count(&s); j++)
            sets[j] = (struct packing_set){
                .devices = s.jobs[j].gpus, .tier = s.jobs[j].class == B, .rate = rate(&s.jobs[j])};
        for (int round = 0; round < 20; round++)
            packing_update(&p, sets, count(&s));
        double most = 0;
        for (uint32_t j = 0; j < count(&s); j++) {
            double off = p.sets[j].part - part[j];
            most = off > most ? off : -off > most ? -off : most;
        }
        worst = most > worst ? most : worst;
        bad += most > 0.02;
        for (uint32_t j = 0; j < count(&s) && most > 0.02; j++)
            printf("%s%x%s %.3f/%.3f", j ? " " : name, s.jobs[j].gpus,
                   s.jobs[j].class == N ? "n" : "", p.sets[j].part, part[j]);
        if (most > 0.02)
            printf(" cuts %u\n", p.cuts);
    }
    printf("parts off by %.3f at most, %u of %d\n", worst, bad, SEEDS);
    assert_int_equal(bad, 0);
}
