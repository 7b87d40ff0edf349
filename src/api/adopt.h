/* Makes a process a job, or joins it to one, with its terms, the GPUs that are chosen for it, and
 * the memory that it waits for. */
#ifndef CEDE_API_ADOPT_H
#define CEDE_API_ADOPT_H

#include "api/verbs.h"

/* Makes the process of v->target a job as the request says. 0 or -errno with v->error. */
int verb_adopt(struct verb *v, struct engine *e);

#endif
