/* The part of accounting in ceded: makes the rows, and runs the process that writes them
 * (acct/recorder.h). Nothing here waits: a row stays in memory until the recorder has confirmed it,
 * and rows for which there is no room are only counted.
 *
 * A job that ends gives a row at once. A living one gives the same row again each minute, with its
 * sums so far, and begins another with each hour of the day and each change of class. So a kill -9
 * of ceded loses a minute, one of the recorder nothing. Not thread-safe. */
#ifndef CEDE_ACCT_FEED_H
#define CEDE_ACCT_FEED_H

#include <uv.h>

#include "api/hints.h"
#include "engine/engine.h"

struct acct;

/* dir: the directory of ceded's sockets; state: the state directory. NULL: there is no accounting,
 * for the reason in *err; ceded can run without them. */
struct acct *acct_new(uv_loop_t *loop, const char *dir, const char *state, gid_t admin_gid,
                      uint32_t keep_days, struct error *err);
/* For engine_options.job_changed; arg is the struct acct. */
void acct_job_changed(void *arg, uint32_t job, const struct job_view *v, bool ends);
/* Counts what programs report of their requests from now on, until acct_free(). */
void acct_use_hints(struct acct *a, struct hints *h);
void acct_configure(struct acct *a, gid_t admin_gid, uint32_t keep_days);

/* Does what is due; returns when to call again. */
uint64_t acct_tick(struct acct *a, struct engine *e, uint64_t now_ns);
/* Called when a child has ended. */
void acct_reap(struct acct *a, uint64_t now_ns);

/* Makes the last rows of living jobs, before the engine ends. */
void acct_finish(struct acct *a, struct engine *e);
/* Waits half a second at most for rows to be written and the recorder to end. NULL is allowed. */
void acct_free(struct acct *a);

#endif
