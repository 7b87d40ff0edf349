/* From the scheduler's plan to the device, and what an earlier holder of the journal left on record
 * without a job; survey.h has what it left on no record. See apply.c. Decides nothing. */
#ifndef CEDE_ENGINE_APPLY_H
#define CEDE_ENGINE_APPLY_H

#include "model/model.h"

/* Returns when to try again what failed; TIME_NEVER: nothing did. */
uint64_t apply_plan(struct model *m, const struct sched_plan *plan);
/* Stops the processes of paused jobs that no suspended group stops, and lets the others go on.
 * Returns when to look again, because others may continue them. */
uint64_t apply_stops(struct model *m);
/* Lets those go on that have no groups any more: before the journal is written, which then has no
 * record that they are stopped. */
void apply_continues(struct model *m);
/* Sets who is preempted at block ends, and who no more. As apply_plan(). */
uint64_t apply_preempt(struct model *m);
/* The groups of a process get back what they had and are forgotten, and it is not scanned. False:
 * some may still be suspended. */
bool apply_detach(struct model *m, uint32_t process);

/* Undoes the records of groups whose job is not ours, or that a restorer undid already. */
void undo_orphans(struct model *m);
/* The restorer took us for hung and undid everything: nothing is known of the groups any more. */
void undo_by_restorer(struct model *m);

#endif
