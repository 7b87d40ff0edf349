/* Who is at the other end of a Unix socket. */
#ifndef CEDE_CONTROL_PEER_H
#define CEDE_CONTROL_PEER_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "lib/pidns.h"

/* Whether it has an administrator's rights (rights_admin()). Supplementary groups come from the
 * kernel and are those of the moment of connecting. Looking them up by name could block on a
 * directory service, and with it every job on the machine. */
bool peer_is_admin(int fd, const struct ucred *cred, gid_t admin_gid);

/* The pid namespace of the process that connected: an error if it has ended, as its number may be
 * another's by now. Before Linux 6.5 only a number that is free counts as ended. */
int peer_pidns(int fd, const struct ucred *cred, struct pidns *out);

#endif
