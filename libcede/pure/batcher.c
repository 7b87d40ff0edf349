/* See batcher.h. */
#include "libcede/pure/batcher.h"

#include "libcede/pure/times.h"

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
                                      const struct batch_request *reqs, uint32_t n, uint64_t now_ns,
                                      uint32_t *pick)
{
    struct batch_choice c = {.wake_ns = TIME_NEVER};
    uint32_t size = n < p->max ? n : p->max, lost = 0;
    /* In order of deadline, those that are late whatever happens come first. */
    while (lost < n && batch_end_ns(p, 1, now_ns) > reqs[lost].deadline_ns)
        lost++;
    if (lost < n) {
        uint64_t due = reqs[lost].deadline_ns, end = batch_end_ns(p, size, now_ns);
        uint64_t wake = end > due || due == TIME_NEVER ? TIME_NEVER : now_ns + (due - end);
        for (uint32_t i = 0; i < n; i++)
            wake = min_u64(wake, saturating_add(reqs[i].arrival_ns, p->wait_ns));
        if (n < p->max && end <= due && now_ns < wake) {
            c.wake_ns = wake;
            return c;
        }
        while (size > 1 && batch_end_ns(p, size, now_ns) > due)
            size--;
    }
    for (uint32_t i = lost; i < n && c.n < size; i++)
        pick[c.n++] = i;
    for (uint32_t i = 0; i < lost && c.n < size; i++)
        pick[c.n++] = i;
    return c;
}
