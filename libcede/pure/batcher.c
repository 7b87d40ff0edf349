/* See batcher.h. */
#include "libcede/pure/batcher.h"

#include <stdbool.h>

#include "lib/terms.h"
#include "libcede/pure/saturating.h"

void cede_batch_params_default(struct batch_params *p)
{
    *p = (struct batch_params){.max = 32, .wait_max_ns = 10000000};
}

uint64_t cede_batch_run_ns(const struct batch_params *p, uint32_t n)
{
    uint64_t all = 0;
    return __builtin_mul_overflow(p->each_ns, n, &all) ? UINT64_MAX
                                                       : saturating_add(p->fixed_ns, all);
}

static bool batch_meets(uint64_t now_ns, uint64_t run_ns, uint64_t deadline_ns)
{
    return saturating_add(now_ns, run_ns) <= deadline_ns;
}

struct batch_choice cede_batch_decide(const struct batch_params *p,
                                      const struct batch_request *reqs, uint32_t n, uint64_t now_ns,
                                      uint32_t *pick)
{
    struct batch_choice c = {.wake_ns = TIME_NEVER};
    uint32_t max = p->max ? p->max : 1, lost = 0;
    if (n == 0)
        return c;
    /* In order of deadline, those that are late whatever happens come first. */
    while (lost < n && !batch_meets(now_ns, cede_batch_run_ns(p, 1), reqs[lost].deadline_ns))
        lost++;
    uint32_t size = n < max ? n : max;
    if (lost < n) {
        uint64_t due = reqs[lost].deadline_ns, wake = TIME_NEVER;
        bool fits = batch_meets(now_ns, cede_batch_run_ns(p, size), due);
        for (uint32_t i = 0; i < n; i++) {
            uint64_t until = saturating_add(reqs[i].arrival_ns, p->wait_max_ns);
            wake = until < wake ? until : wake;
        }
        if (fits && due != TIME_NEVER && due - cede_batch_run_ns(p, size) < wake)
            wake = due - cede_batch_run_ns(p, size);
        if (n < max && fits && now_ns < wake) {
            c.wake_ns = wake;
            return c;
        }
        while (size > 1 && !batch_meets(now_ns, cede_batch_run_ns(p, size), due))
            size--;
    }
    for (uint32_t i = lost; i < n && c.n < size; i++)
        pick[c.n++] = i;
    for (uint32_t i = 0; i < lost && c.n < size; i++)
        pick[c.n++] = i;
    return c;
}
