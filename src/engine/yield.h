/* Jobs that give way and take back what they gave: class, turns, memory. See yield.c. */
#ifndef CEDE_ENGINE_YIELD_H
#define CEDE_ENGINE_YIELD_H

#include "engine/autoswap.h"
#include "engine/observe/demand.h"

/* See engine_yield(), engine_yielded(), engine_acquire(), engine_yield_forget(). */
int yield_begin(struct swaps *x, struct model *m, uint32_t job, unsigned what, uid_t by, bool over,
                struct error *err);
int yield_outcome(const struct model *m, uint32_t job, struct error *err);
void yield_acquire(struct model *m, uint32_t job, uint64_t wait_ns);
void yield_forget(struct model *m, uint32_t job, unsigned what);
/* Has wished jobs come back; returns when to ask again. */
uint64_t yield_due(struct swaps *x, const struct autoswap *a, const struct demand *d,
                   struct model *m);

#endif
