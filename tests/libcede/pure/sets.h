/* Sets of requests for the tests of their order and of batches. */
#ifndef CEDE_TESTS_LIBCEDE_PURE_SETS_H
#define CEDE_TESTS_LIBCEDE_PURE_SETS_H

#include <errno.h>
#include <stdlib.h>

#include "libcede/pure/requests.h"

#define POLICIES 4U

static inline struct cede_queue_config with_policy(enum cede_queue_policy policy, uint32_t capacity)
{
    return (struct cede_queue_config){.policy = policy,
                                      .k = 16,
                                      .devices = 1,
                                      .batches = 1,
                                      .capacity = capacity,
                                      .urgent_us = 1000};
}

static inline struct requests *make_requests(const struct cede_queue_config *c)
{
    struct requests *r = NULL;
    assert_int_equal(cede_requests_new(c, REQUESTS_PREFER_NS, &r), 0);
    return r;
}

static inline struct cede_queue_ticket submit(struct requests *r, struct request q, uint64_t now_ns)
{
    struct cede_queue_ticket t;
    int code = cede_requests_submit(r, &q, now_ns, &t);
    assert_true(code == 0 ? t.id != 0 : code == -EBUSY && t.id == 0 && t.device == SLOT_NONE);
    return t;
}

/* The size of the batch that has ended. */
static inline uint32_t end_batch(struct requests *r, uint32_t device)
{
    struct request q;
    uint32_t n = 0;
    while (cede_requests_end(r, device, &q))
        n++;
    return n;
}

/* A batch of one: the policy's choice. */
static inline int next_one(struct requests *r, uint32_t device, uint64_t now_ns,
                           struct request *out)
{
    uint32_t n = 1;
    uint32_t slot;
    uint64_t wake_ns;
    return cede_requests_next_batch(r, device, now_ns, out, &n, &slot, &wake_ns);
}

static inline int by_arrival(const void *a, const void *b)
{
    const struct request *x = a, *y = b;
    return (x->arrival_ns > y->arrival_ns) - (x->arrival_ns < y->arrival_ns);
}

/* In order of arrival, each with a pointer to it. */
static inline void number(struct request *set, uint32_t n)
{
    qsort(set, n, sizeof(*set), by_arrival);
    for (uint32_t i = 0; i < n; i++)
        set[i].user = &set[i];
}

#endif
