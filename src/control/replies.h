/* Replies that show much: all jobs, the policies. Changes nothing. */
#ifndef CEDE_CONTROL_REPLIES_H
#define CEDE_CONTROL_REPLIES_H

#include <jansson.h>

#include "control/hints.h"
#include "engine/engine.h"

/* All NULL without memory. */
json_t *reply_job(const struct job_view *v, const char *note);
/* Jobs with numbers above `after`, as many as fit. hints: NULL: none. */
json_t *reply_ps(struct engine *e, struct hints *hints, uint64_t after);
json_t *reply_policy(const struct engine *e);
/* "laxity, edf, ..."; returns buf. */
const char *reply_policy_names(char *buf, size_t size);

#endif
