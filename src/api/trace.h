/* Events for `cede trace`: after each tick the jobs are compared with their last state, and reports
 * of the driver, the counters and programs are added. Without a tracer this does nothing, and the
 * driver's record of switches is off.
 *
 * A tracer has a bounded buffer; events that do not fit are lost and counted. One that takes
 * nothing for five seconds is cut off and then gets only that count, if it reads again. The daemon
 * never waits. Every user may trace; names, requests and leases of a job are for its owner and
 * administrators only. Not thread-safe. */
#ifndef CEDE_API_TRACE_H
#define CEDE_API_TRACE_H

#include "api/hints.h"
#include "api/rights.h"
#include "engine/engine.h"

#define TRACERS_MAX      16
#define TRACERS_PER_USER 4 /* unless administrator; all users together: USERS_PART */

struct traces;

struct traces *traces_new(void); /* NULL: no memory */
void traces_free(struct traces *t);

/* Makes the caller's connection a tracer's. -EALREADY, -EUSERS (too many), -ENOMEM. */
int traces_open(struct traces *t, const struct caller *who, struct error *err);
/* The reply was sent, so events may follow on fd, which the server owns. Does nothing for other
 * connections. */
void traces_begin(struct traces *t, uint64_t connection, int fd, uint64_t now_ns);
void traces_close(struct traces *t, uint64_t connection);

/* Called after each tick; t may be NULL. Returns when the next tick is due for tracing; TIME_NEVER:
 * there is no tracer. */
uint64_t traces_update(struct traces *t, struct engine *e, struct hints *h, uint64_t now_ns);

#endif
