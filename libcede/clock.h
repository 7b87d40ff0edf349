/* Inside libcede: the monotonic clock, timed waits that end by it, threads and locks. */
#ifndef CEDE_LIBCEDE_CLOCK_H
#define CEDE_LIBCEDE_CLOCK_H

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <time.h>

#include "libcede/pure/times.h"

uint64_t cede_clock_now_ns(void);

void cede_clock_sleep_ns(uint64_t ns);

/* A condition whose timed waits take times of that clock. */
static inline void cede_clock_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(c, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* Starts a thread with all signals blocked: they are for the program's own threads. 0 or -errno. */
static inline int thread_start(pthread_t *out, void *(*run)(void *), void *arg)
{
    sigset_t all, was;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &was);
    int r = pthread_create(out, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    return -r;
}

/* Holds a lock until the block ends; HELD(): one that is held already. */
#define HOLD(lock) HELD(hold_begin(lock))
#define HELD(lock) __attribute__((cleanup(hold_end), unused)) pthread_mutex_t *const held = (lock)

/* One expression with the lock held. */
#define HOLDING(lock, expression)                                                                  \
    ({                                                                                             \
        HOLD(lock);                                                                                \
        expression;                                                                                \
    })

static inline pthread_mutex_t *hold_begin(pthread_mutex_t *lock)
{
    pthread_mutex_lock(lock);
    return lock;
}

static inline void hold_end(pthread_mutex_t *const *lock)
{
    pthread_mutex_unlock(*lock);
}

static inline struct timespec cede_clock_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NSEC_PER_SEC),
                             .tv_nsec = (long)(ns % NSEC_PER_SEC)};
}

#endif
