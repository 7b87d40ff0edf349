/* Classifies jobs again. A job that got its class from a rule or its program's environment may have
 * been classified before an agent reported its control group. After the report it gets the terms of
 * the new result, but keeps its account. Terms that a person typed are not changed. */
#ifndef CEDE_ENGINE_RECLASSIFY_H
#define CEDE_ENGINE_RECLASSIFY_H

#include "core/observe/discovery.h"

struct reclassify {
    bool wanted; /* some job is to be classified */
    uint64_t at;
    uint32_t first; /* slot of the job at which the next look begins */
};

/* An agent has a new report: all jobs of rules are classified at that time. */
void reclassify_all(struct reclassify *r, struct model *m, uint64_t at_ns);
/* A person typed terms for this job, so it is not classified again. */
void reclassify_never(struct model *m, uint32_t job);
/* Looks at jobs if that is due; returns when it is next. */
uint64_t reclassify_due(struct reclassify *r, struct model *m, const struct discovery *d);

#endif
