/* Events for `cede trace`: after each tick the jobs are compared with what they were, and what the
 * driver, the counters and programs report is added. While nobody traces this does nothing, and the
 * driver's record of switches is off.
 *
 * A tracer has a bounded buffer; what does not fit is lost, and counted. One that takes nothing for
 * five seconds is cut off: it gets nothing more but that count, should it read again. The daemon
 * never waits. Every user may trace; names and requests of a job are for its owner and
 * administrators only. Not thread-safe. */
#ifndef CEDE_CONTROL_TRACE_H
#define CEDE_CONTROL_TRACE_H

#include "control/hints.h"
#include "control/rights.h"
#include "engine/engine.h"

#define TRACERS_MAX      16
#define TRACERS_PER_USER 4 /* unless administrator; all users together: USERS_PART */

struct traces;

struct traces *traces_new(void); /* NULL: no memory */
void traces_free(struct traces *t);

/* The caller's connection is to be a tracer's. -EALREADY, -EUSERS (too many), -ENOMEM. */
int traces_open(struct traces *t, const struct caller *who, struct error *err);
/* The answer is sent, and events may follow on fd, which stays the server's. Nothing for a
 * connection that did not ask. */
void traces_begin(struct traces *t, uint64_t connection, int fd, uint64_t now_ns);
void traces_close(struct traces *t, uint64_t connection);

/* After a tick; t NULL: nobody can trace. Returns when to tick again for this; TIME_NEVER: nobody
 * traces. */
uint64_t traces_update(struct traces *t, struct engine *e, struct hints *h, uint64_t now_ns);

#endif
