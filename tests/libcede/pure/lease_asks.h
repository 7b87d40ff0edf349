/* Leases that start, wait and end, for the tests of pure/leases.h. */
#ifndef CEDE_TESTS_LIBCEDE_PURE_LEASE_ASKS_H
#define CEDE_TESTS_LIBCEDE_PURE_LEASE_ASKS_H

#include "../fixture.h"
#include "libcede/pure/leases.h"

#define MS          1000000ULL
#define LEASE_SLOTS 64U

static inline struct cede_pool_config params(void)
{
    return (struct cede_pool_config){.devices = 1,
                                     .capacity = LEASE_SLOTS,
                                     .max_concurrent_streams = 16,
                                     .target_utilization_percent = 80,
                                     .stream_timeout_us = 1000000,
                                     .age_us = 1000000,
                                     .max_total_occupancy = 0.9,
                                     .memory_reserve_fraction = 0.1,
                                     .urgent_us = 1000};
}

/* Those of a test. */
static struct leases *leases;

static inline void make(struct cede_pool_config p)
{
    cede_leases_free(leases);
    leases = NULL;
    OK(cede_leases_new(&p, &leases));
}

static inline int end_test(void **unused)
{
    cede_leases_free(leases);
    leases = NULL;
    return 0;
}

/* MAKE(.devices = 3): with these settings, and else those of params(). ASK(10, .key = 7): of 10 %,
 * and so forth. */
#define MAKE(...)                                                                                  \
    do {                                                                                           \
        struct cede_pool_config make_ = params();                                                  \
        EACH(CONFIG_SET, make_, __VA_ARGS__)                                                       \
        make(make_);                                                                               \
    } while (0)
#define ASK(percent, ...)                                                                          \
    ({                                                                                             \
        struct lease_ask ask_ = ask(percent);                                                      \
        EACH(CONFIG_SET, ask_, __VA_ARGS__)                                                        \
        ask_;                                                                                      \
    })
#define TEST_LEASES(name) TEST_WITH(name, NULL, end_test)

static inline struct lease_ask ask(uint32_t occupancy_percent)
{
    return (struct lease_ask){.occupancy = occupancy_percent * (LEASE_WHOLE / 100),
                              .preferred = SLOT_NONE,
                              .last = SLOT_NONE,
                              .deadline_ns = TIME_NEVER,
                              .until_ns = TIME_NEVER};
}

static inline uint64_t started(struct lease_ask a, uint64_t now, uint32_t device)
{
    struct lease_event e;
    OK(cede_leases_ask(leases, &a, now, &e));
    assert_int_equal(e.device, device);
    return e.id;
}

static inline uint64_t waits(struct lease_ask a, uint64_t now, enum lease_wait why)
{
    struct lease_event e;
    assert_int_equal(cede_leases_ask(leases, &a, now, &e), -EINPROGRESS);
    assert_int_equal(e.wait, why);
    return e.id;
}

static inline void released(uint64_t id, uint64_t now)
{
    OK(cede_leases_release(leases, id, now));
}

/* The next event is this one. */
static inline struct lease_event happens(uint64_t now, uint64_t id, enum lease_wait wait)
{
    struct lease_event e;
    assert_true(cede_leases_step(leases, now, &e));
    assert_int_equal(e.id, id);
    assert_int_equal(e.wait, wait);
    return e;
}

static inline void nothing_happens(uint64_t now)
{
    struct lease_event e;
    assert_false(cede_leases_step(leases, now, &e));
}

static inline struct lease_view view(uint32_t device)
{
    return cede_leases_view(leases, device, 0);
}

#endif
