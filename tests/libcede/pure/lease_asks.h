/* Leases that start, wait and end, for the tests of pure/leases.h. */
#ifndef CEDE_TESTS_LIBCEDE_PURE_LEASE_ASKS_H
#define CEDE_TESTS_LIBCEDE_PURE_LEASE_ASKS_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "libcede/pure/leases.h"

#define MS          1000000ULL
#define LEASE_SLOTS 64U

static inline struct cede_pool_config params(void)
{
    return (struct cede_pool_config){.devices = 1,
                                     .capacity = LEASE_SLOTS,
                                     .max_concurrent_streams = 16,
                                     .target_utilization = 80,
                                     .stream_timeout_ms = 1000,
                                     .age_ms = 1000,
                                     .max_total_occupancy = 0.9,
                                     .memory_reserve_fraction = 0.1,
                                     .urgent_threshold_ns = MS};
}

static inline struct leases *make(struct cede_pool_config p)
{
    struct leases *l = NULL;
    assert_int_equal(cede_leases_new(&p, &l), 0);
    return l;
}

static inline struct lease_ask ask(uint32_t occupancy_percent)
{
    return (struct lease_ask){.occupancy = occupancy_percent * (LEASE_WHOLE / 100),
                              .preferred = SLOT_NONE,
                              .last = SLOT_NONE,
                              .deadline_ns = TIME_NEVER,
                              .until_ns = TIME_NEVER};
}

static inline uint64_t started(struct leases *l, struct lease_ask a, uint64_t now, uint32_t device)
{
    struct lease_event e;
    assert_int_equal(cede_leases_ask(l, &a, now, &e), 0);
    assert_int_equal(e.device, device);
    return e.id;
}

static inline uint64_t waits(struct leases *l, struct lease_ask a, uint64_t now,
                             enum lease_hold why)
{
    struct lease_event e;
    assert_int_equal(cede_leases_ask(l, &a, now, &e), -EINPROGRESS);
    assert_int_equal(e.hold, why);
    return e.id;
}

/* The next event is this one. */
static inline void happens(struct leases *l, uint64_t now, uint64_t id, enum lease_hold hold)
{
    struct lease_event e;
    assert_true(cede_leases_step(l, now, &e));
    assert_int_equal(e.id, id);
    assert_int_equal(e.hold, hold);
}

static inline void nothing_happens(struct leases *l, uint64_t now)
{
    struct lease_event e;
    assert_false(cede_leases_step(l, now, &e));
}

#endif
