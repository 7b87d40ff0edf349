/* Finds the channel groups of the jobs' processes. Most programs open their contexts once, so a
 * process that shows nothing new is scanned more and more rarely, and all scans together have a
 * budget of time. Decides nothing and changes nothing on a device. */
#ifndef CEDE_CORE_OBSERVE_SCANS_H
#define CEDE_CORE_OBSERVE_SCANS_H

#include "core/model.h"

struct scans {
    uint32_t from; /* slot of the process whose turn is next */
};

/* Scans what is due; returns when the next is. */
uint64_t scans_due(struct scans *s, struct model *m);
/* Scans all processes of a job now that are not detached. 0, or why groups of a process without
 * known groups may have been missed; -EAGAIN: the scans take too long. */
int scans_job(struct model *m, uint32_t job);

#endif
