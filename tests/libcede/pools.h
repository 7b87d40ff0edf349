/* Pools, and threads that use them, for the tests of leases and scopes. */
#ifndef CEDE_TESTS_LIBCEDE_POOLS_H
#define CEDE_TESTS_LIBCEDE_POOLS_H

#include "cede/lease.h"
#include "fixture.h"

static inline struct cede_pool_config no_gpu(unsigned devices, unsigned streams)
{
    return CONFIG(pool, .flags = CEDE_POOL_NO_GPU, .devices = devices,
                  .max_concurrent_streams = streams);
}

static inline struct cede_pool_statistics pool_stats(struct cede_pool *p, int device)
{
    return STATS(pool, p, device);
}

static inline void until_waiting(struct cede_pool *p, unsigned n)
{
    UNTIL(pool_stats(p, 0).waiting == n);
}

/* What a handle has counted, as in "2 begun, 1 ended, 1 due, 0 met". */
static inline const char *reported(cede_handle *c)
{
    static char text[96];
    struct cede_statistics s;
    OK(cede_get_statistics(c, &s, sizeof(s)));
    snprintf(text, sizeof(text), "%d begun, %d ended, %d due, %d met", (int)s.begun, (int)s.ended,
             (int)s.with_deadline, (int)s.deadlines_met);
    return text;
}

#endif
