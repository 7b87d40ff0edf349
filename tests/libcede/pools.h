/* Pools, and threads that use them, for the tests of leases and scopes. */
#ifndef CEDE_TESTS_LIBCEDE_POOLS_H
#define CEDE_TESTS_LIBCEDE_POOLS_H

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../test.h"
#include "cede/lease.h"

#define S INT64_C(1000000) /* in microseconds */

static inline struct cede_pool_config no_gpu(unsigned devices, unsigned streams)
{
    struct cede_pool_config c;
    cede_pool_defaults(&c);
    c.flags = CEDE_POOL_NO_GPU;
    c.devices = devices;
    c.max_concurrent_streams = streams;
    return c;
}

static inline struct cede_pool *open_configured(const struct cede_pool_config *c)
{
    struct cede_pool *p;
    assert_int_equal(cede_pool_open(c, &p), 0);
    return p;
}

static inline struct cede_pool_statistics pool_stats(struct cede_pool *p, int device)
{
    struct cede_pool_statistics s;
    assert_int_equal(cede_pool_get_statistics(p, device, &s, sizeof(s)), 0);
    return s;
}

static inline void until_waiting(struct cede_pool *p, unsigned n)
{
    while (pool_stats(p, 0).waiting != n)
        usleep(200);
}

/* What a handle has counted, as in "2 begun, 1 ended, 1 due, 0 met". */
static inline const char *reported(cede_handle *c)
{
    static char text[96];
    struct cede_statistics s;
    assert_int_equal(cede_get_statistics(c, &s, sizeof(s)), 0);
    snprintf(text, sizeof(text), "%llu begun, %llu ended, %llu due, %llu met",
             (unsigned long long)s.begun, (unsigned long long)s.ended,
             (unsigned long long)s.with_deadline, (unsigned long long)s.deadlines_met);
    return text;
}

static inline void child_ends_well(pid_t child)
{
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Thread i gets i + 1 as its argument. */
static inline void start_threads(pthread_t *t, unsigned n, void *(*f)(void *))
{
    for (uintptr_t i = 0; i < n; i++)
        assert_int_equal(pthread_create(&t[i], NULL, f, (void *)(i + 1)), 0);
}

/* How many of them returned `result`. */
static inline unsigned join_threads(const pthread_t *t, unsigned n, intptr_t result)
{
    unsigned equal = 0;
    for (unsigned i = 0; i < n; i++) {
        void *r;
        assert_int_equal(pthread_join(t[i], &r), 0);
        equal += (intptr_t)r == result;
    }
    return equal;
}

#endif
