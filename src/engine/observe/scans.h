/* Which channel groups the jobs' processes have. A context appears once in a program's life, so a
 * process that shows nothing new is looked at less and less, and all scans together have a budget
 * of time. Decides nothing and changes nothing on a device. */
#ifndef CEDE_ENGINE_OBSERVE_SCANS_H
#define CEDE_ENGINE_OBSERVE_SCANS_H

#include "model/model.h"

struct scans {
    uint32_t from; /* slot of the process whose turn is next */
};

/* Scans what is due; returns when the next is. */
uint64_t scans_due(struct scans *s, struct model *m);
/* All processes of a job, now. 0, or why one of which no group is known may have some; -EAGAIN:
 * they take too long. */
int scans_job(struct model *m, uint32_t job);
/* Whether not all processes were looked at to the end. */
bool scans_searching(const struct model *m);

#endif
