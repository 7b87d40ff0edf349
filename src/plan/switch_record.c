/* See switch_record.h. */
#include "plan/switch_record.h"

#include <math.h>

#include "base/util.h"
#include "plan/sched.h"

/* Parts of a switch. A run of a lower job that ends before its work has begun takes 0.09 to 0.17
 * ms, in which its state is saved; within a quarter of a second nearly all of a job's runs are
 * within 0.01 ms of one value, 0.09 to 0.10, 0.12 or 0.16 ms (H100, driver 580.159.04). */
#define CUT_PART      0.9
#define CUT_MOST      1.0
#define MOSTLY        0.75
#define TAKEN_MOST_US 1000 /* longer runs are not compared */
/* A lower job that has the engine for its slice and this time shows that latency jobs pause. */
#define PAUSE_NS  1000000U
#define SETTLE_NS 3000000U
/* The time between two runs counts if it is unclear, for less than CLEAR_NS or for less than half
 * of it, whether the context wanted the engine. After a run that ended with its slice it did, but a
 * run may end then by chance, or in a burst before a pause that is unclear. So runs of this kind
 * count if they are ROW_S in a row: a burst is mostly shorter. When no run has counted for KEPT_NS,
 * what is known expires. */
#define CLEAR_NS   700000U
#define ROW_S      0.03
#define KEPT_NS    30000000000U
#define SEEN_S     0.4 /* time of a context's record after which older runs count half, */
#define SEEN_RUNS  8U  /* if it has this many runs */
#define ENDED_MOST 64U /* number of runs after which earlier ends count half */

static uint64_t ns_after(uint64_t ns, uint64_t before)
{
    return ns > before ? ns - before : 0;
}

static void length_add(struct lengths *l, double us)
{
    l->n++;
    l->sum_us += us;
    l->squares += us * us;
}

static double variance(const struct lengths *l)
{
    return l->n > 0 ? l->squares / l->n - l->sum_us / l->n * (l->sum_us / l->n) : 0;
}

static void tally_part_add(struct tally *t, double seconds, double work_s)
{
    t->seconds += seconds;
    t->part_s += seconds;
    t->work_s += work_s > 0 ? work_s : 0;
    if (t->part_s < TALLY_PART_S)
        return;
    t->parts[t->nparts++ % TALLY_PARTS] = (float)(t->work_s / t->part_s);
    t->part_s = t->work_s = 0;
}

static void latency_add(const struct sched_params *p, struct runs *r, double us)
{
    struct tally *t = &r->tally;
    tally_part_add(t, us * 1e-6, (us - RUNS_OWN_PART * p->switch_us) * 1e-6);
    if (r->given_us <= 0)
        return;
    t->returns++;
    t->cut += r->given_us < CUT_PART * p->switch_us;
    t->soon += r->given_us < CUT_MOST * p->switch_us;
    if (r->given_us < CUT_MOST * p->switch_us && us < TAKEN_MOST_US) {
        length_add(&t->given, r->given_us);
        length_add(&t->taken, us);
    }
}

static void tally_add(const struct sched_params *p, struct runs *r, const struct run *of,
                      uint64_t ns)
{
    struct tally *t = &r->tally;
    double us = (double)ns * 1e-3;
    if (of && of->latency) {
        latency_add(p, r, us);
        r->given_us = 0;
        return;
    }
    uint64_t slice_ns = of ? of->slice_us * 1000ULL : ns, pause_ns = ns_after(ns, slice_ns);
    double pause_us = pause_ns > PAUSE_NS ? (double)pause_ns * 1e-3 : 0;
    t->pauses_s += pause_us * 1e-6;
    tally_part_add(t, (us - pause_us) * 1e-6, 0);
    if (!of)
        return;
    t->lower_s += (us - pause_us) * 1e-6;
    t->lower++;
    /* A run with a longer slice may also end because other jobs want the engine. */
    r->given_us = of->slice_us < p->switch_us ? us : INFINITY;
}

void runs_end(const struct sched_params *p, struct runs *r, const struct run *of,
              struct context_use *use, uint64_t at_ns)
{
    uint64_t ns = ns_after(at_ns, r->since_ns), switch_ns = p->switch_us * 1000ULL;
    uint64_t slice_ns = of ? of->slice_us * 1000ULL : switch_ns;
    if (r->known && r->since_ns >= r->from_ns)
        tally_add(p, r, of, ns);
    if (r->known && ns > slice_ns + switch_ns && at_ns - slice_ns > r->alone_ns)
        r->alone_ns = at_ns - slice_ns;
    if (use && r->known && use->begun_ns && r->since_ns < use->until_ns) {
        uint64_t most_ns = slice_ns + (uint64_t)(RUNS_OWN_PART * 1e3 * p->switch_us);
        use->begun_ns = at_ns - min_u64(ns, most_ns);
        use->was_cut = ns > slice_ns + 3 * switch_ns / 10 && ns < slice_ns + 9 * switch_ns / 10;
        use->left_ns = at_ns;
        use->latency_ns = r->latency_ns;
    }
    r->latency_ns += of && of->latency ? ns : 0;
    r->since_ns = at_ns;
    r->group = SLOT_NONE;
    r->known = true;
}

/* The latest time, since its run ended, at which a context certainly had no work. */
static uint64_t wanted_nothing(const struct runs *r, uint64_t left_ns)
{
    uint64_t ns = r->alone_ns > left_ns ? r->alone_ns : left_ns;
    for (uint32_t i = 1; i <= RUNS_LAST && i <= r->n; i++) {
        const uint32_t later = (r->n - i) % RUNS_LAST;
        if (r->last[later].ns <= ns)
            break;
        for (uint32_t k = i + 1; k <= RUNS_LAST && k <= r->n; k++) {
            const uint32_t earlier = (r->n - k) % RUNS_LAST;
            if (r->last[earlier].ns < left_ns)
                break;
            if (r->last[earlier].group == r->last[later].group)
                return r->last[later].ns;
        }
    }
    return ns;
}

/* Adds the last run before this time, and the time since then, if they count. */
static void use_add(struct context_use *use, uint64_t idle_ns, uint64_t unclear_ns, uint64_t at_ns)
{
    const bool clear = unclear_ns < max_u64(idle_ns, CLEAR_NS);
    if (clear || idle_ns || !use->was_cut)
        use->row_s = use->row_runs = 0;
    use->row_s += (double)ns_after(use->left_ns, use->begun_ns) * 1e-9;
    use->row_runs++;
    use->unclear_ns += at_ns - use->begun_ns;
    if (clear || use->row_s > ROW_S) {
        use->idle_s += (double)idle_ns * 1e-9;
        use->run_s += use->row_s;
        use->runs += use->row_runs;
        use->row_s = use->row_runs = 0;
        use->unclear_ns = 0;
    } else if (use->unclear_ns > KEPT_NS) {
        use->idle_s = use->run_s = 0;
        use->runs = 0;
    }
}

void runs_begin(struct runs *r, uint32_t group, struct context_use *use, uint64_t at_ns)
{
    const uint64_t nothing_ns = use && use->left_ns ? wanted_nothing(r, use->left_ns) : 0;
    r->last[r->n % RUNS_LAST].group = group;
    r->last[r->n++ % RUNS_LAST].ns = at_ns;
    if (!use || at_ns < use->since_ns || at_ns >= use->until_ns)
        return;
    use->ended += use->left_ns > 0;
    use->cut += use->left_ns && use->was_cut;
    const uint64_t idle_ns = ns_after(nothing_ns, use->left_ns);
    const uint64_t unclear_ns = ns_after(at_ns - nothing_ns, r->latency_ns - use->latency_ns);
    if (use->left_ns)
        use_add(use, idle_ns, unclear_ns, at_ns);
    use->begun_ns = at_ns;
    use->left_ns = 0;
    if (use->run_s + use->idle_s > SEEN_S && use->runs >= SEEN_RUNS) {
        use->idle_s /= 2;
        use->run_s /= 2;
        use->runs /= 2;
    }
    if (use->ended >= ENDED_MOST) {
        use->ended /= 2;
        use->cut /= 2;
    }
}

void runs_company(struct context_use *use, bool on, uint64_t now_ns)
{
    if (!on) {
        use->until_ns = use->until_ns < now_ns ? use->until_ns : now_ns;
        return;
    }
    if (use->until_ns == TIME_NEVER)
        return;
    use->since_ns = now_ns + SETTLE_NS;
    use->until_ns = TIME_NEVER;
    use->begun_ns = use->left_ns = 0;
}

void runs_count_anew(struct runs *r, uint64_t now_ns)
{
    r->from_ns = now_ns + SETTLE_NS;
    r->tally = (struct tally){0};
}

void runs_count(struct runs *r, bool on, uint64_t now_ns)
{
    if (!on)
        r->from_ns = TIME_NEVER;
    else if (r->from_ns == TIME_NEVER)
        r->from_ns = now_ns + SETTLE_NS;
}

double tally_rate(const struct tally *t)
{
    float v[TALLY_PARTS] = {0};
    uint32_t n = t->nparts < TALLY_PARTS ? t->nparts : TALLY_PARTS;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = i;
        for (; k > 0 && v[k - 1] > t->parts[i]; k--)
            v[k] = v[k - 1];
        v[k] = t->parts[i];
    }
    const uint32_t aside = n / 4;
    for (uint32_t i = aside; i < n - aside; i++)
        sum += v[i];
    return n ? sum / (n - 2 * aside) : 0;
}

bool tally_is_saturated(const struct tally *t)
{
    return t->cut >= MOSTLY * t->returns ||
           (t->soon >= MOSTLY * t->returns && variance(&t->given) < 0.5 * variance(&t->taken));
}
