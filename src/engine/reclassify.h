/* Looks at jobs again when agents report. A job that got its class from a rule or its program's
 * environment may have been classified before an agent reported its control group. After the report
 * it gets the terms of the new result, but keeps its account. Terms that a person typed are not
 * changed. */
#ifndef CEDE_ENGINE_RECLASSIFY_H
#define CEDE_ENGINE_RECLASSIFY_H

#include "core/observe/discovery.h"
#include "who/agent_reports.h"

struct job_walk {
    bool wanted; /* some job is to be looked at */
    uint64_t at;
    uint32_t first; /* slot of the job at which the next look begins */
};

/* An agent has a new report: all jobs of rules are classified at that time. */
void reclassify_all(struct job_walk *r, struct model *m, uint64_t at_ns);
/* A person typed terms for this job, so it is not classified again. */
void reclassify_never(struct model *m, uint32_t job);
/* Looks at jobs if that is due; returns when it is next. */
uint64_t reclassify_due(struct job_walk *r, struct model *m, const struct discovery *d);

/* The pod of each job: its control group is compared with the reports. A job keeps the names that
 * it has when its pod is withdrawn. On a machine without agents nothing is read. */
struct pods {
    const struct identities *reports; /* NULL: none yet */
    struct job_walk walk;
    uint64_t looked_ns; /* when all jobs were last looked at */
};

/* A job has begun. */
void pods_begin(struct pods *p, struct model *m, uint32_t job);
/* An agent has a new report. */
void pods_all(struct pods *p, struct model *m);
/* Looks at jobs if that is due; returns when it is next. */
uint64_t pods_due(struct pods *p, struct model *m);

#endif
