/* What a verb has changed, for the case that the one who asked does not learn of it: a client that
 * waited in vain was told so, and what it was told is kept. */
#ifndef CEDE_CONTROL_TAKE_BACK_H
#define CEDE_CONTROL_TAKE_BACK_H

#include "control/verbs.h"

/* Before a verb changes its target, or the policy: what there is now. */
void take_back_note(struct verb *v, const struct engine *e);
/* Undoes what verb_run() did. A job that was detached stays so. */
void take_back(struct verb *v, struct engine *e);

#endif
