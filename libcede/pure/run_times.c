/* See run_times.h. The line that is fitted to the estimates of a kind is kept with them, as every
 * submission asks for it. */
#include "libcede/pure/run_times.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/estimate.h"
#include "cede/cede.h"
#include "libcede/pure/times.h"

#define SHARE_LEAST 0.001
#define KINDS       256U
#define WHOLE       1000U /* of ratios */
#define MARGIN_MAX  (1000U * WHOLE)
#define EASED_MOST  (3 * WHOLE / 4)
#define SIZES       8U /* of batches, learned apart: 1, 2, 3 to 4, 5 to 8 ... 65 to 128 */

/* Batches of one model and shape. */
struct run_kind {
    struct keyed;
    uint64_t usual_ns[SIZES]; /* medians; 0: not known */
    uint32_t refused;         /* requests since a batch ran */
    uint32_t eased;           /* thousandths of the margin that are left out */
    struct run_time line;
    struct estimate sizes[SIZES];
    struct estimate ratio; /* of run times to what the line said, in thousandths */
};

struct run_times {
    double quantile;
    uint64_t tick;
    struct run_kind kinds[KINDS];
};

struct run_times *cede_run_times_new(double quantile)
{
    struct run_times *t = calloc(1, sizeof(*t));
    if (t)
        t->quantile = quantile;
    return t;
}

uint64_t cede_run_times_key(uint32_t model, uint64_t shape)
{
    return (shape + 1) * 0x9e3779b97f4a7c15U + model;
}

/* run_ns: the usual time of the smallest batches seen. each_ns: such that larger batches seen took
 * no longer than the line says; run_ns, so that batching gains nothing, where none was seen. */
static void run_times_fit(struct run_kind *g, uint64_t expected_ns)
{
    uint64_t run_ns = 0, each_ns = 0;
    bool batches = false;
    for (unsigned i = 0; i < SIZES; i++) {
        if (!g->usual_ns[i])
            continue;
        run_ns = run_ns ? run_ns : g->usual_ns[i];
        if (i > 0) { /* 2^(i-1) more requests than one, or up to twice that */
            batches = true;
            each_ns = max_u64(each_ns, saturating_sub(g->usual_ns[i], run_ns) >> (i - 1));
        }
    }
    run_ns = run_ns ? run_ns : expected_ns;
    g->line.run_ns = run_ns;
    g->line.each_ns = batches ? min_u64(each_ns, run_ns) : run_ns;
}

static struct run_kind *run_times_kind(struct run_times *t, uint64_t key, uint64_t expected_ns)
{
    bool found = false;
    struct run_kind *g =
        (struct run_kind *)cede_keyed_find(t->kinds, KINDS, sizeof(*g), key, &found);
    if (!found) {
        *g = (struct run_kind){.key = key};
        run_times_fit(g, expected_ns);
    }
    g->used = ++t->tick;
    return g;
}

struct run_time cede_run_times_get(struct run_times *t, uint64_t key, uint64_t expected_ns)
{
    return run_times_kind(t, key, expected_ns)->line;
}

struct run_time cede_run_time_shared(struct run_time t, double share)
{
    if (share >= 1)
        return t;
    double longer = 1 / (share > SHARE_LEAST ? share : SHARE_LEAST);
    return (struct run_time){min_u64((uint64_t)((double)t.run_ns * longer), FAR_NS),
                             min_u64((uint64_t)((double)t.each_ns * longer), FAR_NS), t.margin};
}

void cede_run_times_learn(struct run_times *t, uint64_t key, uint32_t n, uint64_t ran_ns,
                          uint32_t late)
{
    unsigned size = n < 2 ? 0 : 32U - (unsigned)__builtin_clz(n - 1);
    struct run_kind *g = run_times_kind(t, key, ran_ns);
    g->refused = 0;
    cede_estimate_add(&g->sizes[size], ran_ns);
    g->usual_ns[size] = cede_estimate_typical(&g->sizes[size], 0.5, ran_ns);
    run_times_fit(g, ran_ns);
    const double line = (double)g->line.run_ns + (double)(n ? n - 1 : 0) * (double)g->line.each_ns;
    cede_estimate_add(&g->ratio, (uint64_t)((double)ran_ns * WHOLE / (line > 1 ? line : 1)));
    uint64_t most = cede_estimate_typical(&g->ratio, t->quantile, WHOLE);
    g->eased = late ? g->eased - g->eased / 4 : (uint32_t)min_u64(g->eased + 4, EASED_MOST);
    g->line.margin =
        (uint32_t)min_u64(saturating_sub(most, WHOLE) * (WHOLE - g->eased) / WHOLE, MARGIN_MAX);
}

void cede_run_times_refused(struct run_times *t, uint64_t key, uint64_t expected_ns)
{
    struct run_kind *g = run_times_kind(t, key, expected_ns);
    if (++g->refused < CEDE_RUN_TIMES_REFUSED)
        return;
    *g = (struct run_kind){.key = key, .used = g->used};
    run_times_fit(g, expected_ns);
}
