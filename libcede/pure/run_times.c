/* See run_times.h. The estimators hold all that is known; the lines that are fitted to them are
 * kept for the kinds used last, as a submission asks for one each time. */
#include "libcede/pure/run_times.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "lib/estimate.h"

#define KINDS      256U /* whose lines are kept */
#define WAYS       8U   /* places that a kind may be in */
#define SIZES      8U   /* of batches, learned apart: 1, 2, 3 to 4, 5 to 8 ... 65 to 128 */
#define ESTIMATORS (KINDS * 2)

/* Batches of one model and shape. */
struct run_kind {
    uint64_t key, used;      /* used: tick; 0: the place is free */
    uint64_t seen_ns[SIZES]; /* 0: not known */
    struct run_time line;
};

struct run_times {
    double quantile;
    struct estimates *estimates;
    uint64_t tick;
    struct run_kind kinds[KINDS];
};

int cede_run_times_new(double quantile, struct run_times **out)
{
    struct run_times *t = calloc(1, sizeof(*t));
    *out = NULL;
    if (!t || cede_estimates_new(ESTIMATORS, &t->estimates) < 0) {
        free(t);
        return -ENOMEM;
    }
    t->quantile = quantile;
    *out = t;
    return 0;
}

void cede_run_times_free(struct run_times *t)
{
    if (!t)
        return;
    cede_estimates_free(t->estimates);
    free(t);
}

/* SplitMix64's finalizer (Steele, Lea, Flood 2014). */
static uint64_t run_times_mix(uint64_t h)
{
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9U;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebU;
    return h ^ (h >> 31);
}

uint64_t cede_run_times_key(uint32_t model, uint64_t shape)
{
    return run_times_mix(run_times_mix(shape) + model + 1);
}

static unsigned run_times_size(uint32_t n)
{
    return n < 2 ? 0 : 32U - (unsigned)__builtin_clz(n - 1);
}

/* run_ns: the time of the smallest batches seen. each_ns: such that no larger batch seen took
 * longer than the line says; run_ns, so that batching gains nothing, where none was seen. */
static void run_times_fit(struct run_kind *g, uint64_t expected_ns)
{
    struct run_time *line = &g->line;
    bool batches = false;
    line->run_ns = line->each_ns = 0;
    for (unsigned i = 0; i < SIZES && !line->run_ns; i++)
        line->run_ns = g->seen_ns[i];
    if (!line->run_ns)
        line->run_ns = expected_ns;
    for (unsigned i = 1; i < SIZES; i++) {
        uint64_t smallest = (1U << (i - 1)) + 1;
        if (!g->seen_ns[i])
            continue;
        batches = true;
        uint64_t more = g->seen_ns[i] > line->run_ns ? g->seen_ns[i] - line->run_ns : 0;
        if (more / (smallest - 1) > line->each_ns)
            line->each_ns = more / (smallest - 1);
    }
    if (!batches || line->each_ns > line->run_ns)
        line->each_ns = line->run_ns;
}

static struct run_kind *run_times_kind(struct run_times *t, uint64_t key, uint64_t expected_ns)
{
    struct run_kind *take = NULL;
    for (unsigned i = 0; i < WAYS; i++) {
        struct run_kind *g = &t->kinds[(key + i) % KINDS];
        if (g->used && g->key == key) {
            g->used = ++t->tick;
            return g;
        }
        take = !take || g->used < take->used ? g : take;
    }
    *take = (struct run_kind){.key = key, .used = ++t->tick};
    for (unsigned i = 0; i < SIZES; i++)
        take->seen_ns[i] = cede_estimates_get(t->estimates, key + i, t->quantile, 0);
    run_times_fit(take, expected_ns);
    return take;
}

struct run_time cede_run_times_get(struct run_times *t, uint64_t key, uint64_t expected_ns)
{
    return run_times_kind(t, key, expected_ns)->line;
}

void cede_run_times_learn(struct run_times *t, uint64_t key, uint32_t n, uint64_t ran_ns)
{
    unsigned i = run_times_size(n);
    cede_estimates_add(t->estimates, key + i, ran_ns);
    struct run_kind *g = run_times_kind(t, key, ran_ns);
    g->seen_ns[i] = cede_estimates_get(t->estimates, key + i, t->quantile, ran_ns);
    run_times_fit(g, ran_ns);
}
