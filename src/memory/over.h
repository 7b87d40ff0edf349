/* Watches jobs that have a memory-max: asks the driver for the memory of processes, about ten times
 * per second while some job with a limit is on a GPU, and does what plan/memory_limit.h decides. */
#ifndef CEDE_MEMORY_OVER_H
#define CEDE_MEMORY_OVER_H

#include "core/model.h"

struct over {
    uint64_t at; /* when to look again */
};

/* Looks if that is due; returns when it is next. */
uint64_t over_due(struct over *o, struct model *m);

#endif
