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
 * so, and so does one that had yielded: what it is to get back is forgotten. One that was made and
 * is on its way out of memory comes in, and stays a job. */
void take_back(struct verb *v, struct engine *e, const char *why);

/* Before a client is told that it was done, with what the driver says: 0, if that is so and will be
 * for the next ceded; else it is taken back, and v->error says why. */
int take_back_if_vain(struct verb *v, struct engine *e, int status, const char *why);

#endif
