/* Times in nanoseconds: sums and differences that stop at the ends of the range. */
#ifndef CEDE_LIBCEDE_PURE_TIMES_H
#define CEDE_LIBCEDE_PURE_TIMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/job_terms.h"
#include "base/util.h"
#include "cede/cede.h"

#define FAR_NS  (1ULL << 62) /* later than this is never: sums of such times do not overflow */
#define FAR_US  4611686018427387ULL /* the same */
#define MOST_US (FAR_US - 1)        /* of a setting */
_Static_assert(FAR_US == FAR_NS / NSEC_PER_USEC, "is the same");

static inline uint64_t saturating_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static inline uint64_t saturating_sub(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* n units of unit_ns from now. */
static inline uint64_t time_after(uint64_t now_ns, uint64_t n, uint64_t unit_ns)
{
    return n < FAR_NS / unit_ns ? now_ns + n * unit_ns : TIME_NEVER;
}

/* When a valid time-out ends that begins now. default_us: what the default stands for, at least 0.
 */
static inline uint64_t timeout_end(cede_timeout t, uint64_t now_ns, cede_timeout default_us)
{
    return time_after(now_ns, (uint64_t)(t == CEDE_TIMEOUT_DEFAULT ? default_us : t),
                      NSEC_PER_USEC);
}

/* What is left of it; 0 only if that is nothing. */
static inline cede_timeout timeout_left(uint64_t end_ns, uint64_t now_ns)
{
    if (end_ns >= FAR_NS)
        return CEDE_TIMEOUT_FOREVER;
    return (cede_timeout)((saturating_sub(end_ns, now_ns) + NSEC_PER_USEC - 1) / NSEC_PER_USEC);
}

#endif
