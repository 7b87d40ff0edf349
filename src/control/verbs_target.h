/* What a request of a verb is about: a job, or a process in none. Looks, and changes nothing. */
#ifndef CEDE_CONTROL_VERBS_TARGET_H
#define CEDE_CONTROL_VERBS_TARGET_H

#include "control/verbs.h"

/* Fills in proc, proc_uid and comm of a process that may be in a job: all of the same process,
 * whose start time was the same before and after. */
int target_identify(pid_t pid, struct target *t, struct error *err);
/* Fills in v->target. */
int target_find(struct verb *v, const struct engine *e);

#endif
