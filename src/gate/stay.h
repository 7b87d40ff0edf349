/* What the gate's functions do to the program's threads that call them, and the gate's clock:
 * lib/util.c has one too, but is not linked into other people's programs. */
#ifndef CEDE_GATE_STAY_H
#define CEDE_GATE_STAY_H

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* A thread's stay in the gate: it is not cancelled there, where it would leave a lock or its place
 * behind, and finds its errno as it was. */
struct stay {
    int error, cancel;
};

static inline struct stay stay_begin(void)
{
    struct stay s = {.error = errno};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &s.cancel);
    return s;
}

static inline void stay_end(struct stay s)
{
    pthread_setcancelstate(s.cancel, NULL);
    errno = s.error;
}

static inline uint64_t gate_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

#endif
