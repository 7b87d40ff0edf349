/* Inside libcede: waiting until a time of cede_client_now_ns(), the monotonic clock. */
#ifndef CEDE_LIBCEDE_CLOCK_H
#define CEDE_LIBCEDE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

uint64_t cede_client_now_ns(void); /* link.c */

/* Whose timed waits end by that clock. */
static inline void cede_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(c, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static inline struct timespec cede_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000U),
                             .tv_nsec = (long)(ns % 1000000000U)};
}

#endif
