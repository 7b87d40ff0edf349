/* Sums and differences of times that stop at the ends of the range instead of wrapping. */
#ifndef CEDE_LIBCEDE_PURE_SATURATING_H
#define CEDE_LIBCEDE_PURE_SATURATING_H

#include <stdint.h>

static inline uint64_t saturating_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static inline uint64_t saturating_sub(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

#endif
