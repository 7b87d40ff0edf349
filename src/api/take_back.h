/* Takes back what a verb has changed if it had no effect, or if its reply did not arrive. So a
 * change lasts if, and only if, its client was told that it was made. */
#ifndef CEDE_API_TAKE_BACK_H
#define CEDE_API_TAKE_BACK_H

#include "api/verbs.h"

/* Notes the state of the target and the policy before a verb changes them. */
void take_back_note(struct verb *v, const struct engine *e);
/* Notes the state of the target after the change. */
void take_back_mark(struct verb *v, const struct engine *e);
/* Whether `cede run` asks for its job again, which it does only if it had no answer. Then the job
 * stays if this request is answered, even if the first answer does not arrive. */
bool run_asks_again(struct verb *v, struct engine *e);
/* Undoes what verb_run() did, unless it has been changed since. A job that was detached stays so,
 * as does one that had yielded what was changed, which is not given back. A job that was made and
 * is being moved out of memory is swapped in and stays a job. */
void take_back(struct verb *v, struct engine *e, const char *why);

/* 0, or an error if the journal cannot record the verb's changes; resuming takes no more room. */
int take_back_may_record(const struct verb *v, struct engine *e, struct error *err);
/* Checks the effect (status, why: of the job) before the client is told. 0 if the change was made
 * and is on record for the next ceded; else it is taken back, and v->error has the reason. */
int take_back_if_vain(struct verb *v, struct engine *e, int status, const char *why);

/* Has the reply say, by this text, that there was nothing to undo. */
void verb_vain(struct verb *v, const char *text);

#endif
