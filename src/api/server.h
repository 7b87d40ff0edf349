/* The control socket: connections, credentials and limits. verbs.c handles the messages.
 *
 * Each message gets one reply at the end of the engine's next tick, and nothing is queued: a client
 * that does not take its reply is disconnected. A silent client may stay. A user who is no
 * administrator gets a fifth of the daemon's time at most: requests and connections are paid for by
 * waiting, and new connections of a user whose debt exceeds 50 ms of that time are refused. */
#ifndef CEDE_API_SERVER_H
#define CEDE_API_SERVER_H

#include <sys/types.h>
#include <uv.h>

#include "api/verbs.h"

/* Connections for hints are not counted here, as they have separate limits (hints.h). */
#define SERVER_CLIENTS_MAX      256
#define SERVER_CLIENTS_RESERVED 32 /* of them, for administrators */
#define SERVER_CLIENTS_PER_USER 64 /* unless administrator */

struct server;

/* Listens at path, replacing a socket that a dead daemon left there, so the caller must hold the
 * journal's lock. The caller owns verbs, which must outlive the server. admin_gid: ADMIN_NO_GROUP
 * for none. */
int server_start(uv_loop_t *loop, const char *path, struct verbs *verbs, gid_t admin_gid,
                 struct server **out, struct error *err);

/* Listens on a second socket, whose directory is mounted into containers. Its callers are guests
 * (guest.h), never administrators. */
int server_listen_guests(struct server *s, const char *path, struct error *err);

/* Makes a SEQPACKET socket at path to which every user may connect, replacing one that a dead
 * daemon left there. The descriptor, or -errno. */
int server_listen(const char *path, struct error *err);
/* The inode of the socket at path, which may be a successor's; 0: none. */
ino_t server_inode(const char *path);

void server_set_group(struct server *s, gid_t admin_gid);

/* Removes the socket and disconnects all clients. The server must not be used any more; it is freed
 * once the loop has run the closing callbacks. */
void server_stop(struct server *s);

#endif
