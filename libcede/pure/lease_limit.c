/* See lease_limit.h. */
#include "libcede/pure/lease_limit.h"

#include "base/util.h"

void cede_lease_limit_ended(struct lease_limit *g, struct lease_best *bests, uint64_t key,
                            uint64_t took_ns, uint32_t active, double max_slowdown)
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
