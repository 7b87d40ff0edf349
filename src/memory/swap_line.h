/* The order in which jobs come back to a GPU: by the time at which they were asked in (swap.c), or
 * at which a caller first asked for that (yield.c). A job that finds no room and is asked in again
 * goes to the end of the line, so that repeated requests delay no job that waits. */
#ifndef CEDE_MEMORY_SWAP_LINE_H
#define CEDE_MEMORY_SWAP_LINE_H

#include "core/model.h"

/* Whether both want room on the same GPU. */
static inline bool line_same_gpu(const struct model *m, const struct job *a, const struct job *b)
{
    bool same = false;
    for (unsigned g = 0; g < m->ngpus; g++)
        same |= a->swap.bytes[g] && b->swap.bytes[g];
    return same;
}

/* Whether a was asked in before `since`, since which b wants room on the same GPU. */
static inline bool line_asked_before(const struct model *m, const struct job *a,
                                     const struct job *b, uint64_t since)
{
    return a != b && a->swap.phase == SWAP_ASKED && line_same_gpu(m, a, b) &&
           (a->swap.asked_ns < since || (a->swap.asked_ns == since && a < b));
}

#endif
