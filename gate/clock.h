/* The gate's clock: base/util.c has one too, but is not linked into other people's programs. */
#ifndef CEDE_GATE_CLOCK_H
#define CEDE_GATE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t gate_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

#endif
