/* A job whose class a rule or its program's environment gave may be classified before an agent
 * reports what its control group is. Then it is classified once more, and what it has becomes that;
 * the account that it counts for stays. What somebody typed is left alone. */
#ifndef CEDE_ENGINE_RECLASSIFY_H
#define CEDE_ENGINE_RECLASSIFY_H

#include "engine/observe/discovery.h"

struct reclassify {
    bool wanted; /* some job is to be looked at */
    uint64_t at;
    uint32_t first; /* slot of the job that is looked at first */
};

/* An agent reported something new: all jobs of rules are looked at then. */
void reclassify_all(struct reclassify *r, struct model *m, uint64_t at_ns);
/* Somebody typed what this job shall be. */
void reclassify_never(struct model *m, uint32_t job);
/* Looks at jobs if that is due; returns when it is next. */
uint64_t reclassify_due(struct reclassify *r, struct model *m, const struct discovery *d);

#endif
