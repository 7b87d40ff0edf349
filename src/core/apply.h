/* Applies the scheduler's plan to the device, and undoes records of an earlier holder of the
 * journal that have no job (engine/unrecorded.h: changes without a record). Decides in which order
 * groups are treated, how many in one tick, and when to try again what failed; which of them run,
 * and with which timeslice, is the plan's. */
#ifndef CEDE_CORE_APPLY_H
#define CEDE_CORE_APPLY_H

#include "core/model.h"

/* Returns when to retry what failed; TIME_NEVER: nothing failed. */
uint64_t apply_plan(struct model *m, const struct sched_plan *plan);
/* Sets the preemption modes that jobs have asked for. Returns as apply_plan(). */
uint64_t apply_preempt(struct model *m);
/* Gives the groups of a process their first state back and forgets them; the process is not scanned
 * any more. Groups that remain when m->controls has reached `controls` become orphans. False: some
 * may still be suspended. */
#define APPLY_CONTROLS_MAX 64U /* per tick; each takes 0.4 ms */
bool apply_detach(struct model *m, uint32_t process, uint64_t controls);

/* Undoes the records of orphans, some per call; the next call is due at m->orphans_until. */
void undo_orphans(struct model *m);
/* The restorer took ceded for hung and undid everything, so the state of all groups is unsure. */
void undo_by_restorer(struct model *m);

#endif
