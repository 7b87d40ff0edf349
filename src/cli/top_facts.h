/* What `cede top` reads and does outside the daemon: who a row's user is, where its process runs,
 * and signals. */
#ifndef CEDE_CLI_TOP_FACTS_H
#define CEDE_CLI_TOP_FACTS_H

#include "cli/top_model.h"

/* For the rows that have none yet. same_pids: a process has the number here that the reply says;
 * else nothing is read of processes. */
void top_facts(struct top_model *m, bool same_pids);

/* Sends the signal to the row's process, and of a job to its processes, but never to this one.
 * *sent counts them. 0; -EPERM, -ESRCH (it has ended, or is not known well enough yet) and others,
 * with err, when it did not reach any or not all. */
int top_signal(const struct top_row *r, int signal, unsigned *sent, struct error *err);

#endif
