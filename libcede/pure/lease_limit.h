/* How many leases may run on a GPU at a time, found from how much longer they take than alone.
 * Deterministic: the caller measures. For leases that take the same time if they have the same key.
 *
 * A lease's slowdown is its time over the shortest of its key. After each round of as many leases
 * as the limit, the limit is cut by a quarter, at least by one, if their mean slowdown was too
 * large; else, if the limit was reached, it is raised by one. Additive increase finds what the GPU
 * bears at the cost of one lease per round, multiplicative decrease leaves an overload within a few
 * rounds, and together they let several users of a GPU converge (Chiu and Jain, 1989). */
#ifndef CEDE_LIBCEDE_PURE_LEASE_LIMIT_H
#define CEDE_LIBCEDE_PURE_LEASE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

#define LEASE_BESTS 1024U

/* The shortest time that a lease of a key ever took. A quantile of the latest times would take a
 * lasting overload for normal. Of two keys that fall on one slot the later stays. */
struct lease_best {
    uint64_t key, ns;
};

struct lease_limit {
    uint32_t limit, most;
    uint32_t round;  /* leases that ended in this round */
    double slowdown; /* sum over the round */
    bool reached;    /* the limit, in this round */
};

static inline void lease_limit_started(struct lease_limit *g, uint32_t active)
{
    g->reached |= active >= g->limit;
}

/* A lease has ended, `active` others run. bests: LEASE_BESTS. */
static inline void cede_lease_limit_ended(struct lease_limit *g, struct lease_best *bests,
                                          uint64_t key, uint64_t took_ns, uint32_t active,
                                          double max_slowdown)
{
    struct lease_best *b = &bests[key * 0x9e3779b97f4a7c15U >> 54];
    if (b->key != key || took_ns < b->ns)
        *b = (struct lease_best){.key = key, .ns = took_ns ? took_ns : 1};
    g->slowdown += (double)took_ns / (double)b->ns;
    if (++g->round < g->limit)
        return;
    if (g->slowdown > max_slowdown * g->round)
        g->limit -= g->limit > 1 ? (uint32_t)max_u64(g->limit / 4, 1) : 0;
    else if (g->reached && g->limit < g->most)
        g->limit++;
    g->round = 0;
    g->slowdown = 0;
    g->reached = active >= g->limit;
}

#endif
