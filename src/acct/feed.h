/* ceded's end of accounts: which rows there are to write, and the process that writes them
 * (acct/keeper.h). Nothing here waits: a row stays in memory until the keeper has answered for it,
 * and of those that find no room only the number is kept.
 *
 * A job that ends gives a row at once; one that lives gives the same row again each minute, with
 * what it has so far, and begins another with each hour of the day and each change of class. So a
 * kill -9 of ceded costs a minute, one of the keeper nothing. Not thread-safe. */
#ifndef CEDE_ACCT_FEED_H
#define CEDE_ACCT_FEED_H

#include <uv.h>

#include "control/hints.h"
#include "engine/engine.h"

struct acct;

/* dir: of ceded's sockets; state: the state directory. NULL after an error that is about accounts
 * alone: *err says why there are none. */
struct acct *acct_new(uv_loop_t *loop, const char *dir, const char *state, gid_t admin_gid,
                      uint32_t keep_days, struct error *err);
/* Of engine_options, with the struct acct as its argument. */
void acct_job_changed(void *arg, uint32_t job, const struct job_view *v, bool ends);
/* What programs report of their requests is counted from now on; until acct_free(). */
void acct_use_hints(struct acct *a, struct hints *h);
void acct_configure(struct acct *a, gid_t admin_gid, uint32_t keep_days);

/* Does what is due; returns when to call again. */
uint64_t acct_tick(struct acct *a, struct engine *e, uint64_t now_ns);
/* A child has ended. */
void acct_reap(struct acct *a, uint64_t now_ns);

/* The last rows of jobs that live, before the engine goes. */
void acct_finish(struct acct *a, struct engine *e);
/* Waits half a second at most for rows to be written and the keeper to end. NULL is allowed. */
void acct_free(struct acct *a);

#endif
