/* See request_plan.h. */
#include "libcede/pure/request_plan.h"

static uint32_t request_plan_free(const struct request_plan *p)
{
    uint32_t lane = 0;
    for (uint32_t i = 1; i < p->lanes; i++)
        lane = p->end_ns[i] < p->end_ns[lane] ? i : lane;
    return lane;
}

uint64_t cede_request_plan_slack(const struct request_plan *p)
{
    return p->due_ns == TIME_NEVER
               ? p->slack_ns
               : min_u64(p->slack_ns, saturating_sub(p->due_ns, p->end_ns[p->lane]));
}

bool cede_request_plan_step(struct request_plan *p, const struct request *q)
{
    uint64_t longer = saturating_add(p->end_ns[p->lane], q->each_ns);
    if (p->first && p->n < p->first->batch_max && request_same_kind(q, p->first) &&
        longer <= p->due_ns) {
        p->n++;
        p->end_ns[p->lane] = longer;
    } else {
        p->slack_ns = cede_request_plan_slack(p);
        p->lane = request_plan_free(p);
        p->end_ns[p->lane] = saturating_add(p->end_ns[p->lane], q->run_ns);
        p->due_ns = TIME_NEVER;
        p->first = q;
        p->n = 1;
    }
    bool met = p->end_ns[p->lane] <= request_end_by(q);
    if (met)
        p->due_ns = min_u64(p->due_ns, request_end_by(q));
    return met;
}
