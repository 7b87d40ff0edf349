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
