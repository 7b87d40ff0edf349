/* Sets of requests for the tests of their order and of batches. */
#ifndef CEDE_TESTS_LIBCEDE_PURE_SETS_H
#define CEDE_TESTS_LIBCEDE_PURE_SETS_H

#include <stdlib.h>

#include "libcede/pure/requests.h"

static inline struct requests_params with_policy(enum request_policy policy, uint32_t capacity)
{
    struct requests_params p;
    cede_requests_params_default(&p);
    p.policy = policy;
    p.capacity = capacity;
    return p;
}

static inline struct requests *make_requests(struct requests_params p)
{
    struct requests *r = NULL;
    assert_int_equal(cede_requests_new(&p, &r), 0);
    return r;
}

/* A batch of one: the policy's choice. */
static inline int next_one(struct requests *r, uint32_t device, uint64_t now_ns,
                           struct request *out)
{
    uint32_t n = 1;
    uint64_t wake_ns;
    return cede_requests_next_batch(r, device, now_ns, out, &n, &wake_ns);
}

static inline int by_arrival(const void *a, const void *b)
{
    const struct request *x = a, *y = b;
    return (x->arrival_ns > y->arrival_ns) - (x->arrival_ns < y->arrival_ns);
}

/* In order of arrival, each with its place as id. */
static inline void number(struct request *set, uint32_t n)
{
    qsort(set, n, sizeof(*set), by_arrival);
    for (uint32_t i = 0; i < n; i++)
        set[i].id = i;
}

#endif
