/* See runs.h. */
#include "sched/runs.h"

#include "sched/sched.h"

/* Of a switch: a run of a lower job that ends before it has begun takes 0.08 to 0.16 ms, in which
 * its state is saved (H100, driver 580.159.04). */
#define CUT_PART 0.9
/* A lower job that has the engine for so much longer than its slice shows that the latency jobs
 * pause. */
#define PAUSE_NS  1000000U
#define SETTLE_NS 3000000U
#define SEEN_S    0.4 /* of a context: what is older counts half */

static uint64_t ns_after(uint64_t ns, uint64_t before)
{
    return ns > before ? ns - before : 0;
}

static void tally_add(const struct sched_params *p, struct runs *r, const struct run *of,
                      uint64_t ns)
{
    struct tally *t = &r->tally;
    double s = (double)ns * 1e-9;
    t->seconds += s;
    if (!of)
        return;
    if (of->latency) {
        t->busy_s += s;
        t->bursts++;
        t->returns += r->lower;
        t->cut += r->lower && r->cut;
        r->lower = false;
        return;
    }
    uint64_t slice_ns = of->slice_us * 1000ULL, pause_ns = ns_after(ns, slice_ns);
    if (pause_ns > PAUSE_NS) {
        t->seconds -= (double)pause_ns * 1e-9;
        t->pauses_s += (double)pause_ns * 1e-9;
        s -= (double)pause_ns * 1e-9;
    }
    t->lower_s += s;
    t->lower++;
    r->lower = true;
    r->cut = (double)ns < (double)slice_ns + CUT_PART * 1e3 * p->switch_us;
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
        use->run_s += (double)(ns < most_ns ? ns : most_ns) * 1e-9;
        use->left_ns = at_ns;
    }
    r->since_ns = at_ns;
    r->group = SLOT_NONE;
    r->known = true;
}

/* The latest moment since it left at which a context certainly wanted nothing. */
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

void runs_begin(struct runs *r, uint32_t group, struct context_use *use, uint64_t at_ns)
{
    const uint64_t nothing_ns = use && use->left_ns ? wanted_nothing(r, use->left_ns) : 0;
    r->last[r->n % RUNS_LAST].group = group;
    r->last[r->n++ % RUNS_LAST].ns = at_ns;
    if (!use || at_ns < use->since_ns || at_ns >= use->until_ns)
        return;
    if (use->left_ns) {
        use->seen_s += (double)ns_after(at_ns, use->begun_ns) * 1e-9;
        use->idle_s += (double)ns_after(nothing_ns, use->left_ns) * 1e-9;
        use->runs++;
    }
    use->begun_ns = at_ns;
    use->left_ns = 0;
    if (use->seen_s > SEEN_S) {
        use->seen_s /= 2;
        use->idle_s /= 2;
        use->run_s /= 2;
        use->runs /= 2;
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

double tally_work_s(const struct sched_params *p, const struct tally *t)
{
    double own = t->busy_s - t->bursts * RUNS_OWN_PART * 1e-6 * p->switch_us;
    return own > 0 ? own : 0;
}
