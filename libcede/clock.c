/* See clock.h. A file of its own so that tests can put a virtual clock in its place. */
#include "libcede/clock.h"

uint64_t cede_clock_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

void cede_clock_sleep_ns(uint64_t ns)
{
    const struct timespec t = cede_clock_timespec(ns);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL); /* a signal may end it sooner */
}
