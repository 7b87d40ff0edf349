/* The order in which jobs come back to a GPU: by when they were asked in (swap.c), or by when a
 * caller first wished that (yield.c). A job that finds no room, and is asked in again, has a new
 * place: so asking without end holds up no job that waits. */
#ifndef CEDE_ENGINE_LINE_H
#define CEDE_ENGINE_LINE_H

#include "model/model.h"

/* Both want room on one of them. */
static inline bool line_same_gpu(const struct model *m, const struct job *a, const struct job *b)
{
    bool same = false;
    for (unsigned g = 0; g < m->ngpus; g++)
        same |= a->swap.bytes[g] && b->swap.bytes[g];
    return same;
}

/* b wants room there since then, after a was asked in. */
static inline bool line_asked_before(const struct model *m, const struct job *a,
                                     const struct job *b, uint64_t since)
{
    return a != b && a->swap.phase == SWAP_ASKED && line_same_gpu(m, a, b) &&
           (a->swap.asked_ns < since || (a->swap.asked_ns == since && a < b));
}

#endif
