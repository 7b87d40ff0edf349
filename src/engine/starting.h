/* Jobs that are starting on a GPU keep others where they are (sched/starting.h). */
#ifndef CEDE_ENGINE_STARTING_H
#define CEDE_ENGINE_STARTING_H

#include "model/model.h"

/* The first job at this slot or after it that is starting on the GPU; SLOT_NONE: there is none. */
uint32_t starting_next(const struct model *m, unsigned gpu, uint64_t max_ns, uint32_t slot);
/* One that keeps this job from leaving or coming; SLOT_NONE: nobody. others: not itself. */
uint32_t starting_in_way(const struct model *m, uint64_t max_ns, uint32_t job, bool out,
                         bool others, unsigned *gpu);
/* Why nothing moves there: -EBUSY. */
int starting_error(const struct model *m, uint64_t max_ns, uint32_t starts, unsigned gpu,
                   struct error *err);

#endif
