/* Starts what counts what jobs have: accounting, and sums for metrics. */
#ifndef CEDE_DAEMON_COUNTING_H
#define CEDE_DAEMON_COUNTING_H

#include "acct/feed.h"
#include "api/job_sums.h"
#include "daemon/config.h"

/* dir: of the daemon; state_of: as cede_state_dir() takes it. *acct NULL: no records are kept, and
 * the daemon works without. *sums are the job_arg of job_sums_changed(). 0 or -ENOMEM. */
int counting_start(uv_loop_t *loop, const char *dir, const char *state_of, bool accounting,
                   const struct config *c, struct acct **acct, struct job_sums **sums,
                   struct error *err);
/* acct and hints may be NULL. */
void counting_use_hints(struct acct *acct, struct job_sums *sums, struct hints *hints);

#endif
