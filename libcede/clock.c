/* See clock.h. A file of its own so that tests can put a virtual clock in its place. */
#include "libcede/clock.h"

uint64_t cede_clock_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}
