/* What a verb has changed, for the case that it was not done, or that the one who asked does not
 * learn that it was: what a client is told is kept. */
#ifndef CEDE_CONTROL_TAKE_BACK_H
#define CEDE_CONTROL_TAKE_BACK_H

#include "control/verbs.h"

/* Before a verb changes its target, or the policy: what there is now. */
void take_back_note(struct verb *v, const struct engine *e);
/* After that: what it has made of its target. */
void take_back_mark(struct verb *v, const struct engine *e);
/* Whether `cede run` asks for its job again, as it had no answer: there is no other reason to. Then
 * the job stays if this request is answered, whatever becomes of the first answer. */
bool run_asks_again(struct verb *v, struct engine *e);
/* Undoes what verb_run() did, unless somebody has changed it since. A job that was detached stays
 * so, and so does one that had yielded: what it is to get back is forgotten. */
void take_back(struct verb *v, struct engine *e, const char *why);

/* Nothing of what was to be paused is. */
bool paused_in_vain(const struct verb *v);

#endif
