/* Stops clients of MPS servers by SIGSTOP, and continues them: their groups are the server's, so
 * that suspending one would suspend all. So a signal pauses them, or holds them for a moment
 * (observe/mps_clients.h, observe/speeds.h). */
#ifndef CEDE_CORE_MPS_STOP_H
#define CEDE_CORE_MPS_STOP_H

#include "core/model.h"

/* Stops the MPS clients that must not run, and continues the others. Returns when to look again,
 * because others may have continued a stopped one. */
uint64_t mps_stops(struct model *m);
/* Continues a process that cede has stopped. If that fails, it stays on record. */
void mps_continue(struct model *m, struct process *p);
/* Continues stopped processes that have no groups any more. Must come before the journal is
 * written, which then has no record that they are stopped. */
void mps_continue_left(struct model *m);

#endif
