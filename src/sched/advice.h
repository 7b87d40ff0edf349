/* What to do with two programs that want the same GPU. Pure. */
#ifndef CEDE_SCHED_ADVICE_H
#define CEDE_SCHED_ADVICE_H

#include "sched/interference.h"

enum advice {
    ADVICE_TURNS, /* in time: each has half of it while both want it */
    ADVICE_POOL,  /* in space, on all SMs */
    ADVICE_SPLIT, /* in space, on SMs of their own */
};

struct advised {
    struct interference turns, pool, split; /* turns: slowdown alone */
    unsigned split_percent;                 /* SMs of the first of the two that do most together */
    enum advice advice;
};

/* Space has to be worth it, and to starve neither. */
#define ADVICE_GAIN  0.05 /* of what one alone does, more than turns or the simpler way */
#define ADVICE_LEAST 0.25 /* speed of each, relative to alone */

void advise(const struct gpu_shape *g, const struct program_kernels pair[2], struct advised *out);

/* What both do together, in programs that are alone. */
static inline double interference_sum(const struct interference *i)
{
    return 1 / i->slowdown[0] + 1 / i->slowdown[1];
}

#endif
