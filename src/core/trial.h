/* Trials: for a moment a job is held, or has another class, so that somebody can measure what
 * others do meanwhile. A trial is not on record: it ends at its time or with the connection that
 * asked for it, whichever comes first, and the next ceded knows nothing of it. What it changes on
 * devices is on record as always. While a job on a GPU is tried, core/observe/speeds.h holds none
 * there. */
#ifndef CEDE_CORE_TRIAL_H
#define CEDE_CORE_TRIAL_H

#include "core/model.h"

#define TRIAL_MAX_US 5000000

/* Begins or changes the trial of a job. -EBUSY: another connection tries it, or one of the same
 * user on a GPU of its. -EINVAL: a client of an MPS server has the class of its server. */
int trial_set(struct model *m, uint32_t job, const struct job_trial *t, struct error *err);
/* The connection is closed: the next tick ends its trials. */
void trials_close(struct model *m, uint64_t connection);
/* Ends the trials whose time is over; returns when the next is. */
uint64_t trials_due(struct model *m);
/* The jobs that the connection tries, if they are at most max and all of this user; else 0. */
uint32_t trials_of(const struct model *m, uint64_t connection, uid_t uid, uint32_t *jobs,
                   uint32_t max);
/* Whether the connection tries all jobs of this job's MPS server. */
bool trials_are_all(const struct model *m, uint64_t connection, uint32_t job);

#endif
