/* What an earlier holder of the journal left: records without a job, and records that are lost. */
#ifndef CEDE_ENGINE_UNDO_H
#define CEDE_ENGINE_UNDO_H

#include "engine/apply.h"

/* Orphans: their job is not ours, or a restorer undid them already. */
void undo_orphans(const struct apply *a, struct model *m);
/* After damage to the journal nothing shows whom it was about: every GPU process is resumed, and a
 * timeslice that nobody but a cede sets (the smallest, or longer than the default) becomes the
 * default. Best effort: nobody of this user's has changed those that this user may not steer. */
void undo_everything(const struct apply *a, struct model *m);
/* The restorer took us for hung and undid everything: nothing is known of the groups any more. */
void undo_by_restorer(const struct apply *a, struct model *m);

#endif
