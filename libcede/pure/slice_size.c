/* See slice_size.h. */
#include "libcede/pure/slice_size.h"

#include <stdbool.h>

#include "base/util.h"

#define COUNT_MAX (1ULL << 62) /* twice that is still a number */

static uint64_t slice_round(const struct slice_size *s, uint64_t count)
{
    count -= count % s->multiple;
    return count ? count : s->multiple;
}

void cede_slice_size_begin(struct slice_size *s, uint64_t target_ns, uint64_t multiple,
                           uint64_t next)
{
    *s = (struct slice_size){.target_ns = target_ns, .multiple = multiple};
    s->next = slice_round(s, min_u64(next, COUNT_MAX));
}

/* The mean without the largest and the smallest third. */
static double slice_middle(const double *v, unsigned n)
{
    double sorted[SLICE_SAMPLES] = {0}, sum = 0;
    unsigned out = (n - 1) / 3;
    for (unsigned i = 0; i < n; i++) {
        unsigned k = i;
        for (; k > 0 && sorted[k - 1] > v[i]; k--)
            sorted[k] = sorted[k - 1];
        sorted[k] = v[i];
    }
    for (unsigned i = out; i < n - out; i++)
        sum += sorted[i];
    return sum / (n - 2 * out);
}

void cede_slice_size_add(struct slice_size *s, uint64_t count, uint64_t slices, uint64_t took_ns)
{
    unsigned at = (unsigned)(s->n++ % SLICE_SAMPLES);
    unsigned n = (unsigned)min_u64(s->n, SLICE_SAMPLES);
    uint64_t largest = 0;
    s->counts[at] = count / slices;
    s->ns[at] = (double)took_ns / (double)count;
    for (unsigned i = 0; i < n; i++)
        largest = max_u64(largest, s->counts[i]);
    const uint64_t most = 2 * min_u64(largest, COUNT_MAX / 2);
    double each = slice_middle(s->ns, n);
    bool bounded = (double)s->target_ns < each * (double)most;
    s->next = slice_round(s, bounded ? (uint64_t)((double)s->target_ns / each) : most);
}

uint64_t cede_slice_size_next(const struct slice_size *s, uint64_t left)
{
    return min_u64(s->next, left);
}
