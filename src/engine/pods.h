/* Finds the pod of each job: its control group is compared with the reports of agents. A job keeps
 * the names that it has when its pod is withdrawn. On a machine without agents nothing is read. */
#ifndef CEDE_ENGINE_PODS_H
#define CEDE_ENGINE_PODS_H

#include "core/model.h"
#include "who/agent_reports.h"

struct pods {
    const struct identities *reports; /* NULL: none yet */
    bool wanted;                      /* some job's pod is to be found */
    uint64_t at, looked_ns;           /* when to look; when all jobs were last looked at */
    uint32_t first;                   /* slot of the job at which the next look begins */
};

/* A job has begun. */
void pods_begin(struct pods *p, struct model *m, uint32_t job);
/* An agent has a new report. */
void pods_all(struct pods *p, struct model *m);
/* Looks at jobs if that is due; returns when it is next. */
uint64_t pods_due(struct pods *p, struct model *m);

#endif
