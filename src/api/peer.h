/* The rights and the pid namespace of the process at the other end of a Unix socket. */
#ifndef CEDE_API_PEER_H
#define CEDE_API_PEER_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "who/pidns.h"

/* Whether the peer has an administrator's rights (rights_admin()). Its supplementary groups at the
 * time of connecting come from the kernel, because a lookup by name could block on a directory
 * service, and with it every job on the machine. */
bool peer_is_admin(int fd, const struct ucred *cred, gid_t admin_gid);

/* The pid namespace of the process that connected; an error if it has ended, because its pid may be
 * in use again. Before Linux 6.5, the end is noticed only while the pid is free. */
int peer_pidns(int fd, const struct ucred *cred, struct pidns *out);

#endif
