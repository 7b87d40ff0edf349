/* What can be seen without a daemon: the jobs on record, and the processes that use a GPU. */
#ifndef CEDE_CLI_LOOK_H
#define CEDE_CLI_LOOK_H

#include <jansson.h>

#include "lib/util.h"

/* What a killed scheduler has left suspended: it runs again, or the caller is only informed. */
enum look_left { LOOK_REPAIR, LOOK_ONLY };

/* The jobs in the journals, in the form of client_ps(), with "daemon" false. said: what was found
 * suspended and what became of it, or "". 0, or -errno with err. */
int look_records(enum look_left left, json_t **out, struct error *said, struct error *err);

/* Adds "others" to an object with "jobs": the processes that belong to none. Opens the GPU's
 * driver; processes that the caller may not look into may be missing. 0, or -errno with err. */
int look_others(json_t *all, struct error *err);

#endif
