/* The verbs' side of the control socket: one request, one reply. Never starts a daemon and knows
 * nothing of what the messages mean beyond ok and error. */
#ifndef CEDE_CLI_CLIENT_H
#define CEDE_CLI_CLIENT_H

#include <jansson.h>
#include <sys/types.h>

#include "control/proto.h"
#include "lib/util.h"

#define CLIENT_TIMEOUT_MS 5000 /* for connecting, sending and the reply, each */

struct client {
    int fd; /* close-on-exec; < 0: closed */
    pid_t daemon_pid;
    uid_t daemon_uid;
    char socket[108];  /* where it listens */
    uint64_t until_ns; /* when all waiting ends; 0: only each wait has its limit */
};

/* Connects to the first socket of cede_socket_at() that a daemon answers on. A daemon that is
 * neither root's nor the caller's is not trusted (-EPERM): what it says about other people's
 * programs, and what it is told, would be in a stranger's hands.
 * -ENOENT: no daemon is running. */
int client_open(struct client *c, struct error *err);
/* The same, and everything that is asked of it together ends at until_ns (monotonic_ns()). */
int client_open_until(struct client *c, uint64_t until_ns, struct error *err);
void client_close(struct client *c);

/* 0: *reply (the caller's reference) is the daemon's ok. The daemon's own refusal is returned as
 * its -errno with its text; any broken or late reply as -EPROTO, -EMSGSIZE, -ETIMEDOUT (the
 * connection is of no more use then, and the daemon does not do later what was asked); -EPIPE: the
 * daemon went away without a reply. Several calls may follow each other. */
int client_call(struct client *c, const struct request *r, json_t **reply, struct error *err);

/* Its two halves, for a caller that does not wait: it sends, and receives when the socket is
 * readable. */
int client_send(struct client *c, const struct request *r, struct error *err);
int client_receive(struct client *c, json_t **reply, struct error *err);

/* The job of that number as it is now, the caller's reference. -ESRCH: it has ended; as above. */
int client_job(struct client *c, json_int_t number, json_t **job, struct error *err);

/* All that the daemon says of jobs and devices, in one object as `cede ps --json` prints it; the
 * caller's reference. */
int client_ps(struct client *c, bool brief, json_t **out, struct error *err);

/* Takes a reply to r, OP_PS, into *all (NULL: it is the first). True: *r is to be sent again, for
 * the next page; false: *all is complete, as of client_ps(). */
bool client_ps_page(json_t **all, json_t *page, struct request *r);

#endif
