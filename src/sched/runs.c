/* See runs.h. */
#include "sched/runs.h"

#include "sched/sched.h"

/* Parts of a switch, measured on an H100 and an H200 (driver 580.159.04): a request of 0.1 ms has the
 * engine for 0.164 ms, and the run of a lower job that ends before it has begun takes 0.08 to
 * 0.16 ms, in which its state is saved. */
#define OWN_PART 0.36
#define CUT_PART 0.9
/* A lower job that has the engine for so much longer than its slice shows that the latency jobs pause. */
#define PAUSE_NS  1000000U
#define SETTLE_NS 3000000U
#define SEEN_S   0.4 /* of a context: what is older counts half */

static uint64_t after(uint64_t ns, uint64_t before)
{
    return ns > before ? ns - before : 0;
}

static void tally_add(const struct sched_params *p, struct tally *t, const struct run *of, uint64_t ns)
{
    double s = (double)ns * 1e-9;
    t->seconds += s;
    if (!of)
        return;
    if (of->latency) {
        t->busy_s += s;
        t->bursts++;
        return;
    }
    uint64_t slice_ns = of->slice_us * 1000ULL, pause_ns = after(ns, slice_ns);
    if (pause_ns > PAUSE_NS) {
        t->seconds -= (double)pause_ns * 1e-9;
        t->pauses_s += (double)pause_ns * 1e-9;
        s -= (double)pause_ns * 1e-9;
    }
    t->lower_s += s;
    t->lower++;
    t->cut += (double)ns < (double)slice_ns + CUT_PART * 1e3 * p->switch_us;
}

void runs_end(const struct sched_params *p, struct runs *r, const struct run *of,
              struct context_use *use, uint64_t at_ns)
{
    uint64_t ns = after(at_ns, r->since_ns), switch_ns = p->switch_us * 1000ULL;
    uint64_t slice_ns = of ? of->slice_us * 1000ULL : switch_ns;
    if (r->known && r->since_ns >= r->from_ns)
        tally_add(p, &r->tally, of, ns);
    if (r->known && ns > slice_ns + switch_ns && at_ns - slice_ns > r->alone_ns)
        r->alone_ns = at_ns - slice_ns;
    if (use && r->known && use->begun_ns) {
        use->run_s += (double)(ns < slice_ns ? ns : slice_ns) * 1e-9;
        use->left_ns = at_ns;
    }
    r->since_ns = at_ns;
    r->group = SLOT_NONE;
    r->known = true;
}

void runs_begin(struct runs *r, struct context_use *use, uint64_t at_ns)
{
    if (!use || use->since_ns > at_ns)
        return;
    if (use->left_ns) {
        use->seen_s += (double)after(at_ns, use->begun_ns) * 1e-9;
        use->idle_s += (double)after(r->alone_ns, use->left_ns) * 1e-9;
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
    double own = t->busy_s - t->bursts * OWN_PART * 1e-6 * p->switch_us;
    return own > 0 ? own : 0;
}
