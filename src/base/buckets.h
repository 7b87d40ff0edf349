/* Buckets of a histogram over all of uint64_t, 2^bits per octave (HdrHistogram's layout): a
 * bucket's largest value is at most 1/2^bits above its smallest. Pure. */
#ifndef CEDE_BASE_BUCKETS_H
#define CEDE_BASE_BUCKETS_H

#include <stdint.h>

static inline uint32_t bucket_of(uint64_t v, uint32_t bits)
{
    if (v >> bits == 0)
        return (uint32_t)v;
    uint32_t shift = 63U - (uint32_t)__builtin_clzll(v) - bits;
    return ((shift + 1) << bits) + ((uint32_t)(v >> shift) & ((1U << bits) - 1));
}

/* The largest value that falls into the bucket. */
static inline uint64_t bucket_top(uint32_t b, uint32_t bits)
{
    if (b >> bits == 0)
        return b;
    uint32_t shift = (b >> bits) - 1;
    return ((((uint64_t)1 << bits) + (b & ((1U << bits) - 1))) << shift) +
           (((uint64_t)1 << shift) - 1);
}

#endif
