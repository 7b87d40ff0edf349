/* Jobs that are starting on a GPU, while no other job is moved there (plan/still_starting.h). */
#ifndef CEDE_MEMORY_STILL_STARTING_H
#define CEDE_MEMORY_STILL_STARTING_H

#include "core/model.h"

/* The first job from this slot on that is starting on the GPU; SLOT_NONE: there is none. */
uint32_t starting_next(const struct model *m, unsigned gpu, uint64_t max_ns, uint32_t slot);
/* The job because of which this one may not be moved; SLOT_NONE: none. others: without itself. */
uint32_t starting_in_way(const struct model *m, uint64_t max_ns, uint32_t job, bool out,
                         bool others, unsigned *gpu);
/* Writes why no job moves there, and returns -EBUSY. */
int starting_error(const struct model *m, uint64_t max_ns, uint32_t starts, unsigned gpu,
                   struct error *err);

#endif
