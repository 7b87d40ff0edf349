/* Sums up where the time of each job went: for people who look, for metrics and for accounts.
 * Engine time itself is counted where it is observed (engine/observe/demand.h). */
#ifndef CEDE_ENGINE_COUNTS_H
#define CEDE_ENGINE_COUNTS_H

#include "model/model.h"

/* After each commit. decided: also which jobs may run on which GPUs. */
void counts_update(struct model *m, bool decided);
/* As they are now. */
void counts_now(const struct model *m, const struct job *j, struct job_counts *out);

#endif
