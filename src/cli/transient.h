/* Starts a transient daemon for `cede run`, and for verbs that change jobs, if none runs. It ends
 * with its last job; until then other commands of the same user find it. */
#ifndef CEDE_CLI_TRANSIENT_H
#define CEDE_CLI_TRANSIENT_H

#include "api/client.h"
#include "base/util.h"

struct transient {
    int alive_fd; /* pipe that closes with the started daemon; -1: none was started */
    int log_fd;
    int turn_fd; /* lock of the process whose turn it is to start a daemon */
    off_t log_start;
    uint64_t none_ns; /* when last no daemon was found; 0: never */
};
#define TRANSIENT_NONE                                                                             \
    {                                                                                              \
        .alive_fd = -1, .log_fd = -1, .turn_fd = -1                                                \
    }

/* Connects to a daemon; if there is none, starts one and waits for it, up to 20 s while one begins
 * or another is just ending. May be called again with the same `t`; the caller calls
 * transient_close() after any outcome. A daemon that runs has to answer by until_ns
 * (client_open_until()). On failure err has the last message of the daemon that was started. */
int transient_connect(struct transient *t, const char *device, struct client *c, uint64_t until_ns,
                      struct error *err);
void transient_close(struct transient *t);

#endif
