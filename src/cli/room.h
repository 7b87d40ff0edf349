/* `cede run --memory`: see room.c. */
#ifndef CEDE_CLI_ROOM_H
#define CEDE_CLI_ROOM_H

#include <jansson.h>

#include "cli/client.h"

#define ROOM_WAIT_US (120 * 1000000ULL) /* two jobs of 64 GiB have left by then */

/* SIZE[@GPU] into a request. -1: go on; else the exit status. */
int room_parse(const char *text, struct request *r);

/* reply: to the request that made the job. 0: there is room, or the daemon does not report it.
 * -ETIMEDOUT, ... */
int room_wait(struct client *c, const struct request *r, const json_t *reply, uint64_t wait_us,
              struct error *err);

#endif
