/* What the daemon does for `set`, `pause` and `resume`, done once by the verb itself where no
 * daemon runs. What is set stays, and stays in the journal. Nobody follows the processes
 * afterwards: a context that is opened later is not touched, and nothing can take turns. */
#ifndef CEDE_CLI_DIRECT_H
#define CEDE_CLI_DIRECT_H

#include <jansson.h>

#include "control/proto.h"
#include "lib/util.h"
#include "recovery/journal.h"

struct direct;

/* -EBUSY: another cede is at work; -ENODEV: no GPU; -EPERM and others of journal and driver. */
int direct_open(struct direct **out, struct error *err);

/* OP_SET, OP_PAUSE or OP_RESUME. 0: done on the device, and *reply is what the daemon's would be.
 * -ESRCH: no such process or job; -ENODEV: uses no GPU; -EPERM: another user's; driver errors. */
int direct_do(struct direct *d, const struct request *r, json_t **reply, struct error *err);

/* Adds to an object what the daemon's ps reports of GPU programs that no job owns. Which of them a
 * user detached is not known without a daemon. */
void direct_unmanaged(struct direct *d, json_t *reply);

/* For a journal without a daemon: does it record processes that are suspended and that no
 * person paused? Their scheduler was killed, and its restorer with it. direct_repair() does what
 * the restorer would have done, for these. -EBUSY: another process has the journal after all;
 * others: as from direct_open(), or -EIO: some could not be resumed. */
bool direct_abandoned(const struct journal *j);
int direct_repair(const char *dir, struct error *err);

/* Leaves everything as set, and names on standard error what requires a daemon to work. */
void direct_close(struct direct *d);

#endif
