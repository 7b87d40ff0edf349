/* Placement: single decisions, and the busy times of GPUs over many hours of virtual time. */
#include "../sanitized.h"
#include "fixture.h"
#include "plan/placement_choice.h"

#include <math.h>

#define GIB (1ULL << 30)

static struct place p;
static uint32_t candidates;
static enum place_reason why;

static int begin(void **state)
{
    memset(&p, 0, sizeof(p));
    return 0;
}

static void gpus(unsigned n)
{
    for (unsigned g = 0; g < n; g++)
        p.gpus[g] = (struct place_gpu){.free_bytes = UINT64_MAX};
    candidates = (1U << n) - 1;
}

static void runs_busy(enum job_class class, uint32_t weight, uint32_t map, double busy)
{
    struct place_job j = {.gpus = map, .class = class, .weight = weight};
    for (unsigned g = 0; g < PLACE_GPUS; g++)
        j.busy[g] = busy;
    place_add(&p, &j);
}

static void runs(enum job_class class, uint32_t map)
{
    runs_busy(class, 100, map, -1);
}

static uint32_t choose(enum job_class class, uint32_t n)
{
    const struct place_need need = {
        .ngpus = n, .candidates = candidates, .class = class, .weight = 100};
    return place_choose(&p, &need, &why);
}

/* Jobs on GPUs, and where one more goes. */
struct row {
    const char *name;
    uint32_t gpus;
    enum job_class class; /* of the one more, */
    uint32_t n, to;       /* which wants as many and gets these: a bit map */
    enum place_reason why;
    struct {
        enum job_class class;
        uint32_t map, weight;
        double busy;
    } jobs[5];
    uint32_t skip;   /* these are no candidates: bit map */
    double speed[2]; /* 0: not told */
    uint32_t together[3];
};

/* clang-format off */
#define ON(c, gpus)         {(c), (gpus), 100, -1}
#define BUSY(c, gpus, part) {(c), (gpus), 100, (part)}
#define HEAVY(c, gpus)      {(c), (gpus), 200, -1}
#define GANGS               .jobs = {ON(B, 3), ON(B, 0xc), ON(B, 1), ON(B, 8)}

static const struct row rows[] = {
    {"all idle", 3, B, 1, 1, .why = PLACE_IDLE},
    {"one has a job", 3, B, 1, 2, PLACE_IDLE, .jobs = {ON(B, 1)}},
    {"two have one", 3, B, 1, 4, PLACE_IDLE, .jobs = {ON(B, 1), ON(B, 2)}},
    {"where they gain in a pool", 3, B, 1, 4, PLACE_LEAST,
     .jobs = {ON(B, 1), ON(B, 2), ON(B, 4)}, .together = {0, 1100, 1300}},
    {"not where they lose", 3, B, 1, 2, PLACE_LEAST,
     .jobs = {ON(B, 1), ON(B, 2), ON(B, 4)}, .together = {900, 0, 1}},
    {"an idle one comes before a gain", 2, B, 1, 2, PLACE_IDLE,
     .jobs = {ON(B, 1)}, .together = {1900}},
    {"not where one is of twice the weight", 3, B, 1, 1, PLACE_LEAST,
     .jobs = {ON(B, 1), ON(B, 2), HEAVY(B, 4)}},
    {"nor where two are", 3, B, 1, 2, PLACE_LEAST,
     .jobs = {ON(B, 1), ON(B, 2), HEAVY(B, 4), ON(B, 1)}},
    {"latency jobs keep apart, whatever else is there", 3, L, 1, 2, PLACE_LEAST,
     .jobs = {ON(L, 1), ON(B, 2), ON(B, 4), ON(B, 4)}},
    {"also three", 3, L, 1, 4, PLACE_LEAST,
     .jobs = {ON(L, 1), ON(L, 2), ON(B, 2), ON(B, 4), ON(B, 4)}},
    {"then they go where least is", 3, L, 1, 1, PLACE_LEAST,
     .jobs = {ON(L, 1), ON(L, 2), ON(L, 4), ON(B, 2), ON(B, 4)}},
    {"normal jobs leave next to nothing, as far as is known", 2, B, 1, 2, PLACE_LEAST,
     .jobs = {ON(N, 1), ON(B, 2), ON(B, 2)}},
    {"nor to each other", 2, N, 1, 2, PLACE_LEAST, .jobs = {ON(N, 1), ON(B, 2), ON(B, 2)}},
    {"one known to leave nearly all does not matter", 2, B, 1, 1, PLACE_LEAST,
     .jobs = {BUSY(N, 1, 0.04), ON(B, 2)}},
    {"jobs seen to use little leave room", 2, B, 1, 1, PLACE_LEAST,
     .jobs = {BUSY(B, 1, 0.1), BUSY(B, 1, 0.1), BUSY(B, 2, 0.9)}},
    {"one that has just begun does not show yet", 2, B, 1, 2, PLACE_LEAST,
     .jobs = {BUSY(B, 1, 0.1), BUSY(B, 1, 0.1), BUSY(B, 2, 0.9), ON(B, 1)}},
    {"the faster one", 2, B, 1, 2, PLACE_IDLE, .speed = {0.5, 1}},
    {"not with a job", 2, B, 1, 1, PLACE_IDLE, .jobs = {ON(B, 2)}, .speed = {0.5, 1}},
    {"if the other has none", 2, B, 1, 2, PLACE_LEAST, .jobs = {ON(B, 2), ON(B, 1)}, .speed = {0.5, 1}},
    {"a gang", 4, B, 2, 3, .why = PLACE_IDLE},
    {"a second", 4, B, 2, 0xc, PLACE_IDLE, .jobs = {ON(B, 3)}},
    {"gangs share all GPUs or none: not 2 and 4, which have less", 4, B, 2, 3, PLACE_LEAST, GANGS},
    {"all there are", 4, B, 4, 0xf, PLACE_ONLY, GANGS},
    {"one beside gangs", 4, B, 1, 2, PLACE_LEAST, GANGS},
    {"three beside gangs", 4, B, 3, 7, PLACE_LEAST, GANGS},
    {"of two candidates", 3, B, 1, 2, PLACE_IDLE, .skip = 1},
    {"two of two", 3, B, 2, 6, PLACE_ONLY, .skip = 1},
    {"three of two", 3, B, 3, 0, PLACE_ONLY, .skip = 1},
    {"none", 3, B, 0, 0, PLACE_ONLY, .skip = 1},
};
/* clang-format on */

TEST(single_decisions)
{
    for (const struct row *r = rows; r < rows + ARRAY_SIZE(rows); r++) {
        begin(NULL);
        gpus(r->gpus);
        candidates &= ~r->skip;
        p.gpus[0].speed = r->speed[0];
        p.gpus[1].speed = r->speed[1];
        for (unsigned g = 0; g < ARRAY_SIZE(r->together); g++)
            p.gpus[g].together = r->together[g];
        for (size_t i = 0; i < ARRAY_SIZE(r->jobs) && r->jobs[i].map; i++)
            runs_busy(r->jobs[i].class, r->jobs[i].weight, r->jobs[i].map, r->jobs[i].busy);
        uint32_t to = choose(r->class, r->n);
        if (to != r->to || (to && why != r->why))
            fail_msg("%s: %x, reason %d", r->name, to, (int)why);
    }
}

TEST_WITH(memory, begin, NULL)
{
    gpus(3);
    p.gpus[0].free_bytes = GIB / 2;
    p.gpus[1].free_bytes = 20 * GIB;
    p.gpus[2].free_bytes = 60 * GIB;
    assert_int_equal(choose(B, 1), 2); /* the first is full */
    runs(B, 4);
    struct place_need need = {
        .ngpus = 1, .candidates = candidates, .class = B, .weight = 100, .memory_bytes = 40 * GIB};
    assert_int_equal(place_choose(&p, &need, &why), 4);
    assert_int_equal(why, PLACE_MEMORY);
    runs(B, 4);
    p.gpus[2].promised_bytes = 40 * GIB;
    need.memory_bytes = 15 * GIB;
    runs(B, 2);
    assert_int_equal(place_choose(&p, &need, &why), 2);
    need.memory_bytes = 90 * GIB; /* nowhere: as if it were everywhere */
    assert_int_equal(place_choose(&p, &need, &why), 1);
}

/* A name comes back to where it was, but not to a GPU that is clearly worse. */
TEST_WITH(test_names, begin, NULL)
{
    gpus(2);
    struct place_need need = {
        .ngpus = 1, .candidates = candidates, .class = B, .weight = 100, .before = 2};
    assert_int_equal(place_choose(&p, &need, &why), 2);
    assert_int_equal(why, PLACE_SAME_NAME);
    p.gpus[1].used_s = 400;
    assert_int_equal(place_choose(&p, &need, &why), 1);
    p.gpus[1].used_s = 200;
    assert_int_equal(choose(B, 1), 1);
    assert_int_equal(place_choose(&p, &need, &why), 2);
    runs_busy(B, 40, 2, -1);
    assert_int_equal(place_choose(&p, &need, &why), 2);
    runs_busy(B, 20, 2, -1);
    assert_int_equal(place_choose(&p, &need, &why), 1);
    need.ngpus = 2; /* of which it had one */
    assert_int_equal(place_choose(&p, &need, &why), 3);
    need = (struct place_need){
        .ngpus = 1, .candidates = candidates, .class = B, .weight = 100, .before = 4};
    assert_int_equal(place_choose(&p, &need, &why), 1); /* which is not there any more */
}

TEST_WITH(remembered, begin, NULL)
{
    static struct place_names n;
    char name[16];
    place_remember(&n, 1, "a", 1);
    place_remember(&n, 2, "a", 2);
    assert_int_equal(place_recall(&n, 1, "a"), 1);
    assert_int_equal(place_recall(&n, 2, "a"), 2);
    assert_int_equal(place_recall(&n, 3, "a"), 0);
    for (int i = 0; i < PLACE_NAMES - 1; i++) {
        snprintf(name, sizeof(name), "job%d", i);
        place_remember(&n, 1, name, 4);
        place_remember(&n, 1, "a", 1);
    }
    assert_int_equal(place_recall(&n, 1, "a"), 1);
    assert_int_equal(place_recall(&n, 2, "a"), 2); /* not for another's many names */
    assert_int_equal(place_recall(&n, 1, "job0"), 0);
    assert_int_equal(place_recall(&n, 1, "job1"), 4);
    place_remember(&n, 3, "more", 4);
    assert_int_equal(place_recall(&n, 1, "job1"), 0);
    assert_int_equal(place_recall(&n, 3, "more"), 4);
}

/* ---- balance ---- */

/* 40 programs that come and go at random times, for up to eleven minutes each and with a load of
 * three quarters of the GPUs in all; each has a size (the share of a GPU that it can use), and one
 * in four is on two GPUs. In each second a GPU is busy for as long as its programs can use it. */
enum { PROGRAMS = 40, RUN_S = 8 * 3600, STAY_MIN_S = 60, STAY_S = 600, KNOWN_AFTER_S = 60 };
#define LOAD      0.75
#define MEAN_SIZE (0.625 * 1.25)

enum how { CHOSEN, CHOSEN_BY_NAME, ROUND_ROBIN, RANDOM, HOWS };

struct program {
    int from, to;
    double size;
    uint32_t width, gpus;
};

struct run {
    struct program v[PROGRAMS];
    enum how how;
    unsigned ngpus, turn;
    uint64_t random;
    double busy[PLACE_GPUS];
};

static unsigned below(struct run *r, unsigned n)
{
    uint64_t z = r->random += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return (unsigned)((z ^ (z >> 31)) % n);
}

static bool is_there(const struct program *x, int now)
{
    return x->from <= now && now < x->to;
}

static uint32_t chosen(const struct run *r, const struct program *x, int now)
{
    struct place at = {.ngangs = 0};
    const struct place_need need = {.ngpus = x->width,
                                    .candidates = (1U << r->ngpus) - 1,
                                    .class = B,
                                    .weight = 100,
                                    .before = r->how == CHOSEN_BY_NAME ? x->gpus : 0};
    for (unsigned g = 0; g < r->ngpus; g++)
        at.gpus[g] = (struct place_gpu){.free_bytes = UINT64_MAX, .used_s = (uint64_t)r->busy[g]};
    for (const struct program *y = r->v; y < r->v + PROGRAMS; y++) {
        struct place_job j = {.gpus = y->gpus, .class = B, .weight = 100};
        for (unsigned g = 0; g < r->ngpus; g++)
            j.busy[g] = now - y->from >= KNOWN_AFTER_S ? y->size : -1;
        if (y != x && is_there(y, now) && y->gpus)
            place_add(&at, &j);
    }
    return place_choose(&at, &need, &why);
}

static uint32_t placed(struct run *r, const struct program *x, int now)
{
    uint32_t map = 0;
    if (r->how == CHOSEN || r->how == CHOSEN_BY_NAME)
        return chosen(r, x, now);
    unsigned first = r->how == ROUND_ROBIN ? r->turn : below(r, r->ngpus);
    for (unsigned i = 0; i < x->width; i++)
        map |= 1U << (first + i) % r->ngpus;
    r->turn += x->width;
    return map;
}

struct outcome {
    double spread; /* the least busy GPU's time, as a part that it lacks of the busiest one's */
    double done;   /* of what the programs could have used of all GPUs together */
};

static struct outcome run(unsigned ngpus, uint64_t seed, enum how how)
{
    struct run r = {.ngpus = ngpus, .random = seed, .how = how};
    const double mean_s = STAY_MIN_S + STAY_S / 2.0, duty = ngpus * LOAD / (PROGRAMS * MEAN_SIZE);
    const unsigned away_s = (unsigned)(2 * mean_s * (1 - duty) / duty);
    double done = 0, possible = 0, most = 0, least = INFINITY;
    for (int i = 0; i < PROGRAMS; i++)
        r.v[i] = (struct program){.size = 0.25 * (1 + below(&r, 4)),
                                  .width = i % 4 ? 1 : 2,
                                  .from = (int)below(&r, away_s)};
    for (int now = 0; now < RUN_S; now++) {
        double load[PLACE_GPUS] = {0}, all = 0;
        for (struct program *x = r.v; x < r.v + PROGRAMS; x++) {
            if (x->to && x->to <= now && x->from < x->to)
                x->from = now + 1 + (int)below(&r, away_s);
            if (x->from == now) {
                x->to = now + STAY_MIN_S + (int)below(&r, STAY_S);
                x->gpus = placed(&r, x, now);
            }
            for (unsigned g = 0; g < ngpus; g++)
                load[g] += is_there(x, now) && x->gpus >> g & 1 ? x->size : 0;
        }
        for (unsigned g = 0; g < ngpus; g++) {
            r.busy[g] += fmin(load[g], 1);
            done += fmin(load[g], 1);
            all += load[g];
        }
        possible += fmin(all, ngpus);
    }
    for (unsigned g = 0; g < ngpus; g++) {
        most = fmax(most, r.busy[g]);
        least = fmin(least, r.busy[g]);
    }
    return (struct outcome){1 - least / most, done / possible};
}

/* The mean of twenty runs: within 5 % for chosen GPUs, also where names keep theirs, and less than
 * what the two simple ways leave; and more is done. */
TEST_WITH(test_balance, begin, NULL)
{
    enum { RUNS = SANITIZED ? 5 : 20 };
    for (unsigned ngpus = 2; ngpus <= 8; ngpus *= 2) {
        struct outcome mean[HOWS] = {{0, 0}};
        for (int how = 0; how < HOWS; how++) {
            for (uint64_t seed = 1; seed <= RUNS; seed++) {
                struct outcome o = run(ngpus, seed, (enum how)how);
                mean[how].spread += o.spread / RUNS;
                mean[how].done += o.done / RUNS;
            }
        }
        print_message("%u GPUs: spread %.3f, by name %.3f, round robin %.3f, random %.3f; "
                      "done %.3f, %.3f, %.3f, %.3f\n",
                      ngpus, mean[0].spread, mean[1].spread, mean[2].spread, mean[3].spread,
                      mean[0].done, mean[1].done, mean[2].done, mean[3].done);
        for (int how = CHOSEN; how <= CHOSEN_BY_NAME; how++) {
            assert_true(mean[how].spread < 0.05);
            assert_true(mean[how].spread < mean[ROUND_ROBIN].spread);
            assert_true(mean[how].spread < mean[RANDOM].spread / 2);
            assert_true(mean[how].done > mean[ROUND_ROBIN].done);
            assert_true(mean[how].done > mean[RANDOM].done);
        }
    }
}
