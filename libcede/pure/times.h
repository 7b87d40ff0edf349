/* Times in nanoseconds: sums and differences that stop at the ends of the range. */
#ifndef CEDE_LIBCEDE_PURE_TIMES_H
#define CEDE_LIBCEDE_PURE_TIMES_H

#include <stdint.h>

#include "base/job_terms.h"
#include "base/util.h"

#define FAR_NS (1ULL << 62) /* later than this is never: sums of such times do not overflow */
#define FAR_US (FAR_NS / NSEC_PER_USEC)

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

#endif
