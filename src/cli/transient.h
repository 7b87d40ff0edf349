/* A daemon for `cede run` on a machine where none runs: it is started here, ends with its last job,
 * and is found by other cedes of the same user in the meantime. */
#ifndef CEDE_CLI_TRANSIENT_H
#define CEDE_CLI_TRANSIENT_H

#include "cli/client.h"
#include "lib/util.h"

struct transient {
    int alive_fd; /* ends when the daemon that was started has ended; -1: none was started */
    int log_fd;
    int turn_fd; /* a lock among those that would start one */
    off_t log_start;
    uint64_t none_ns; /* when there was none the last time; 0: there always was */
};
#define TRANSIENT_NONE                                                                             \
    {                                                                                              \
        .alive_fd = -1, .log_fd = -1, .turn_fd = -1                                                \
    }

/* Connects to a daemon; if there is none, starts one and waits for it, up to 20 s while one begins
 * or another is just ending. May be called again with the same `t`; transient_close() once, after
 * any outcome. Of a daemon that is there it wants everything by until_ns (client_open_until()). On
 * failure err says what the daemon that was started complained of. */
int transient_connect(struct transient *t, const char *device, struct client *c, uint64_t until_ns,
                      struct error *err);
void transient_close(struct transient *t);

#endif
