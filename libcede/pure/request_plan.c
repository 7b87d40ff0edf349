/* See request_plan.h. */
#include "libcede/pure/request_plan.h"

static uint32_t request_plan_free(const struct request_plan *p)
{
    uint32_t lane = 0;
    for (uint32_t i = 1; i < p->lanes; i++)
        lane = p->end_ns[i] < p->end_ns[lane] ? i : lane;
    return lane;
}

/* When the current batch ends at the latest, if it runs for that long. */
static uint64_t request_plan_latest(const struct request_plan *p, uint64_t end_ns, uint64_t run_ns)
{
    return saturating_add(end_ns, request_margin_ns(p->first, run_ns));
}

uint64_t cede_request_plan_slack(const struct request_plan *p)
{
    return !p->first || p->due_ns == TIME_NEVER
               ? p->slack_ns
               : min_u64(p->slack_ns,
                         saturating_sub(p->due_ns,
                                        request_plan_latest(p, p->end_ns[p->lane], p->run_ns)));
}

bool cede_request_plan_step(struct request_plan *p, const struct request *q)
{
    const uint64_t longer = saturating_add(p->end_ns[p->lane], q->each_ns);
    const uint64_t half_ns = request_margin_ns(q, p->run_ns + q->each_ns) / 2;
    if (p->first && p->n < p->first->batch_max && request_same_kind(q, p->first) &&
        saturating_add(longer, half_ns) <= p->due_ns) {
        p->n++;
        p->run_ns += q->each_ns;
        p->end_ns[p->lane] = longer;
    } else {
        p->slack_ns = cede_request_plan_slack(p);
        p->lane = request_plan_free(p);
        p->end_ns[p->lane] = saturating_add(p->end_ns[p->lane], q->run_ns);
        p->due_ns = TIME_NEVER;
        p->first = q;
        p->n = 1;
        p->run_ns = q->run_ns;
    }
    bool met = request_plan_latest(p, p->end_ns[p->lane], p->run_ns) <= q->deadline_ns;
    if (met)
        p->due_ns = min_u64(p->due_ns, q->deadline_ns);
    return met;
}

/* ---- batches --------------------------------------------------------------------------------- */

uint64_t cede_batch_run_ns(uint64_t run_ns, uint64_t each_ns, uint32_t n)
{
    uint64_t others = 0;
    return __builtin_mul_overflow(each_ns, n - 1, &others) ? UINT64_MAX
                                                           : saturating_add(run_ns, others);
}

/* When a batch of n that starts now ends. */
static uint64_t batch_end_ns(const struct batch_params *p, uint32_t n, uint64_t now_ns)
{
    return saturating_add(now_ns, cede_batch_run_ns(p->run_ns, p->each_ns, n));
}

struct batch_choice cede_batch_decide(const struct batch_params *p,
                                      const struct request *const *due, uint32_t n, uint64_t now_ns)
{
    struct batch_choice c = {.wake_ns = TIME_NEVER};
    uint32_t size = n < p->max ? n : p->max, lost = 0;
    /* In order of deadline, those that are late whatever happens come first. */
    while (lost < n && batch_end_ns(p, 1, now_ns) > due[lost]->deadline_ns)
        lost++;
    if (lost < n) {
        uint64_t first = due[lost]->deadline_ns, end = batch_end_ns(p, size, now_ns);
        uint64_t wake = end > first || first == TIME_NEVER ? TIME_NEVER : now_ns + (first - end);
        for (uint32_t i = 0; i < n; i++)
            wake = min_u64(wake, saturating_add(due[i]->arrival_ns, p->wait_ns));
        if (n < p->max && end <= first && now_ns < wake) {
            c.wake_ns = wake;
            return c;
        }
        while (size > 1 && batch_end_ns(p, size, now_ns) > first)
            size--;
    }
    c.n = size;
    c.first = lost < n ? lost : 0;
    return c;
}
