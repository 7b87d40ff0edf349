/* See quota.h. */
#include "base/quota.h"

#include "base/util.h"

struct quota *quota_of(struct quotas *q, uid_t uid)
{
    struct quota *first = &q->v[0];
    for (unsigned i = 0; i < QUOTA_USERS; i++) {
        if (q->v[i].uid == uid)
            return &q->v[i];
        first = q->v[i].paid_ns < first->paid_ns ? &q->v[i] : first;
    }
    *first = (struct quota){.uid = uid};
    return first;
}

void quota_charge(struct quota *u, uint64_t now_ns, uint64_t cost_ns)
{
    u->paid_ns = max_u64(u->paid_ns, now_ns) + cost_ns;
}
