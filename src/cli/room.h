/* `cede run --memory`: waiting for room in a GPU's memory before the program is started. */
#ifndef CEDE_CLI_ROOM_H
#define CEDE_CLI_ROOM_H

#include "cli/client.h"

#define ROOM_NO_LIMIT UINT64_MAX

struct room_wait {
    const struct request *request; /* by which this process became a job */
    const char *device;            /* as transient_connect() takes it */
    uint64_t wait_us;              /* at most; ROOM_NO_LIMIT: as long as it takes */
    bool quiet;
};

/* Whether that job waits. */
bool room_awaited(const json_t *job);
/* reply: to the request. Says on standard error how long and for whom it waits. peer: closed, whose
 * daemon becomes the one that answered last. 0: there is room, or the daemon does not report it. 1:
 * it is no job any more; somebody has detached it. -ETIMEDOUT: there was none in time; others: no
 * daemon answers any more, or refuses the job. */
int room_wait(const struct room_wait *w, struct client *peer, const json_t *reply,
              struct error *err);

#endif
