/* What an earlier holder of the journal left on record, without a job; survey.h has what it left on
 * no record. */
#ifndef CEDE_ENGINE_UNDO_H
#define CEDE_ENGINE_UNDO_H

#include "engine/apply.h"

/* Orphans: their job is not ours, or a restorer undid them already. */
void undo_orphans(const struct apply *a, struct model *m);
/* The restorer took us for hung and undid everything: nothing is known of the groups any more. */
void undo_by_restorer(const struct apply *a, struct model *m);

#endif
