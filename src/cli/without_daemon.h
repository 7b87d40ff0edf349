/* Data for verbs without a daemon: the jobs on record, and the processes that use a GPU. */
#ifndef CEDE_CLI_WITHOUT_DAEMON_H
#define CEDE_CLI_WITHOUT_DAEMON_H

#include <jansson.h>

#include "base/util.h"

/* Whether programs that a killed scheduler left suspended are resumed, or only reported. */
enum look_left { LOOK_REPAIR, LOOK_ONLY };

/* Reads the jobs in the journals, in the form of client_ps(), with "daemon" false. said: a message
 * about programs that were found suspended, or "". 0, or -errno with err. */
int look_records(enum look_left left, json_t **out, struct error *said, struct error *err);

/* Adds "others" to an object with "jobs": the processes that use a GPU and are in no job. Processes
 * that the caller has no right to see may be missing. 0, or -errno with err. */
int look_others(json_t *all, struct error *err);

#endif
