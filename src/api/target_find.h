/* Finds the target of a verb: a job, or a process in none. Changes nothing. */
#ifndef CEDE_API_TARGET_FIND_H
#define CEDE_API_TARGET_FIND_H

#include "api/verbs.h"

/* Fills in proc, proc_uid and comm of a process that may become a job. All are of one process, as
 * its start time is checked before and after. */
int target_identify(pid_t pid, struct target *t, struct error *err);
/* Translates the request's pid from the caller's pid namespace; without a target: the caller's. */
int target_translate(struct verb *v);
/* Does so, and fills in v->target. */
int target_find(struct verb *v, const struct engine *e);

#endif
