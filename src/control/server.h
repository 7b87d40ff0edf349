/* The control socket: connections, credentials and limits. What is said there is for verbs.c.
 *
 * One message in, one reply out at the end of the engine's next tick, nothing queued: a client that
 * does not take its reply is disconnected. A silent client may stay. Users who are no
 * administrators get a fifth of the daemon's time each, and no more: requests and connections are
 * paid for by waiting, and who owes for more than 50 ms of it is refused at the door. */
#ifndef CEDE_CONTROL_SERVER_H
#define CEDE_CONTROL_SERVER_H

#include <sys/types.h>
#include <uv.h>

#include "control/verbs.h"

/* Not counted: those that a program keeps for its hints (hints.h), which have limits of their own.
 */
#define SERVER_CLIENTS_MAX      256
#define SERVER_CLIENTS_RESERVED 32 /* of them, for administrators */
#define SERVER_CLIENTS_PER_USER 64 /* unless administrator */

struct server;

/* Replaces a socket that a dead daemon left at path: call it only while holding the journal's lock.
 * verbs stays the caller's and must outlive the server. admin_gid: ADMIN_NO_GROUP for none. */
int server_start(uv_loop_t *loop, const char *path, struct verbs *verbs, gid_t admin_gid,
                 struct server **out, struct error *err);

/* A second socket, whose directory is mounted into containers: whoever comes by it is a guest
 * (guest.h), never an administrator. */
int server_listen_guests(struct server *s, const char *path, struct error *err);

/* A SEQPACKET socket at path that everybody may connect to, in the place of one that a dead daemon
 * left there. The descriptor, or -errno. */
int server_listen(const char *path, struct error *err);
/* Of the socket there: it may be a successor's by now. 0: none. */
ino_t server_inode(const char *path);

void server_set_group(struct server *s, gid_t admin_gid);

/* Removes the socket and disconnects everyone. The server is freed once the loop has run its
 * closing callbacks; it is not to be used any more. */
void server_stop(struct server *s);

#endif
