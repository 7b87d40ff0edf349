/* Advises how two programs should share a GPU. Pure. */
#ifndef CEDE_PLAN_ADVICE_H
#define CEDE_PLAN_ADVICE_H

#include "plan/interference.h"

enum advice {
    ADVICE_TURNS, /* in time: each has half of it while both want it */
    ADVICE_POOL,  /* in space, both on all SMs */
    ADVICE_SPLIT, /* in space, on separate SMs */
};

struct advised {
    struct interference turns, pool, split; /* of turns only the slowdown is set */
    unsigned split_percent;                 /* SMs of the first program in the best split */
    enum advice advice;
};

/* Sharing in space has to gain something, and must starve neither. */
#define ADVICE_GAIN  0.05 /* sum of both speeds, more than with turns or with the simpler way */
#define ADVICE_LEAST 0.25 /* speed of each, relative to alone */

void advise(const struct gpu_shape *g, const struct program_kernels pair[2], struct advised *out);

/* The sum of both speeds, each relative to alone. */
static inline double interference_sum(const struct interference *i)
{
    return 1 / i->slowdown[0] + 1 / i->slowdown[1];
}

#endif
