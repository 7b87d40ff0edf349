/* Jobs that yield class, turns and memory, and acquire them again: see yield.c. */
#ifndef CEDE_MEMORY_YIELD_H
#define CEDE_MEMORY_YIELD_H

#include "core/observe/demand.h"
#include "memory/autoswap.h"

/* See engine_yield(). */
int yield_begin(struct swaps *x, struct model *m, uint32_t job, unsigned what, uid_t by, bool over,
                struct error *err);
/* 0; -EINPROGRESS: its memory is being moved out; -EAGAIN: an earlier engine ended meanwhile; or
 * the reason why nothing was yielded. */
int yield_outcome(const struct model *m, uint32_t job, struct error *err);
/* Requests that the job gets back what it yielded, at once or when there is room for its memory.
 * The request ends after wait_ns unless it is renewed. */
void yield_acquire(struct model *m, uint32_t job, uint64_t wait_ns);
/* Called when a person sets these: acquiring does not touch them any more. */
void yield_forget(struct model *m, uint32_t job, unsigned what);
/* Serves the requests; returns when to ask again. */
uint64_t yield_due(struct swaps *x, const struct autoswap *a, const struct demand *d,
                   struct model *m);

#endif
