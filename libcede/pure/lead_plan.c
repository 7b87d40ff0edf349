/* See lead_plan.h. */
#include "libcede/pure/lead_plan.h"

#include <stdlib.h>
#include <string.h>

static int lead_compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void cede_lead_learn(struct lead_timing *t, int64_t error_ns)
{
    int64_t v[LEAD_SAMPLES];
    t->error_ns[t->n++ % LEAD_SAMPLES] = error_ns;
    if (t->n == 2 * LEAD_SAMPLES) /* never wraps */
        t->n = LEAD_SAMPLES;
    if (t->n % LEAD_KNOWN)
        return;
    uint32_t n = t->n < LEAD_SAMPLES ? t->n : LEAD_SAMPLES;
    memcpy(v, t->error_ns, n * sizeof(*v));
    qsort(v, n, sizeof(*v), lead_compare);
    t->early = v[n / 32];
    t->late = v[n - 1 - n / 32];
    t->spread = v[n - 1 - n / 8] - v[n / 8];
}

bool cede_lead_plan(const struct lead_timing *t, uint64_t now_ns, uint64_t expected_ns,
                    struct lead_plan *out)
{
    bool known = t->n >= LEAD_KNOWN;
    int64_t base = (int64_t)(expected_ns ? expected_ns : now_ns);
    int64_t first = base + (known ? t->early : 0);
    int64_t last = base + (known ? t->late : 0) + (known ? LEAD_SLACK_NS : LEAD_UNKNOWN_NS);
    int64_t launch = first - LEAD_AHEAD_NS;
    if (launch < (int64_t)now_ns)
        launch = (int64_t)now_ns;
    if (last <= launch || (known && t->spread > LEAD_SPREAD_MAX))
        return false;
    uint64_t wait = (uint64_t)(last - launch);
    *out = (struct lead_plan){(uint64_t)launch, wait < LEAD_WAIT_MAX ? wait : LEAD_WAIT_MAX};
    return true;
}
