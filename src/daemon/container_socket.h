/* The socket for containers, on which every caller is a guest (api/guest.h). */
#ifndef CEDE_DAEMON_CONTAINER_SOCKET_H
#define CEDE_DAEMON_CONTAINER_SOCKET_H

#include "api/server.h"

/* Makes the directory `container` in dir, with a socket for guests. It stays when ceded ends, since
 * containers have it mounted and find the next ceded there. Without it, a warning is logged. */
void container_socket_open(const char *dir, struct server *s);

#endif
