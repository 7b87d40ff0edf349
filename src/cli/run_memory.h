/* `cede run` and GPU memory: waiting for room before the program is started (--memory), and what
 * killed it (--memory-max). */
#ifndef CEDE_CLI_RUN_MEMORY_H
#define CEDE_CLI_RUN_MEMORY_H

#include "api/client.h"

#define ROOM_NO_LIMIT UINT64_MAX

struct room_wait {
    const struct request *request; /* the one that made this process a job */
    const char *device;            /* as transient_connect() takes it */
    uint64_t wait_us;              /* at most; ROOM_NO_LIMIT: as long as it takes */
    bool quiet;
};

/* Whether the job waits for room. */
bool room_awaited(const json_t *job);
/* Waits for room, and reports on standard error how long and for which jobs it waits. reply: to the
 * request. peer: closed; afterwards it names the daemon that answered last. 0: there is room, or
 * the daemon does not report it. 1: a person has detached the job. -ETIMEDOUT: there was no room in
 * time; others: no daemon answers any more, or it refuses the job. */
int room_wait(const struct room_wait *w, struct client *peer, const json_t *reply,
              struct error *err);
/* If the daemon killed programs of this process's job for its memory-max, says so. */
void room_killed(const char *program);

#endif
