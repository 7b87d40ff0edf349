/* Where a daemon's control socket may be. Compiled into libcede as well, and so into other people's
 * programs: needs libc alone, and defines no name without the prefix cede_. */
#ifndef CEDE_LIB_SOCKET_PATH_H
#define CEDE_LIB_SOCKET_PATH_H

#include <stddef.h>

/* a and b together: a directory whose socket fits into a socket address. -ENAMETOOLONG. */
int cede_dir_put(char *buf, size_t size, const char *a, const char *b);

/* The directory of this user, whatever CEDE_DIR says. -ENAMETOOLONG. */
int cede_user_dir(char *buf, size_t size);

/* Sockets to try, best first: $CEDE_DIR's alone if set; else the system's /run/cede/socket, then
 * the user's own. false when i is past the last. */
int cede_socket_at(unsigned i, char *buf, size_t size);

/* Whether the daemon behind a socket may be believed: it runs (SO_PEERCRED) as root or as this
 * user. In a user namespace in which the host's root has no number, a rootless container, all users
 * of the host have the same: there a daemon counts if its directory was chosen by whoever made the
 * container (given: i of cede_socket_at() is 0), and not one in /tmp. */
int cede_peer_trusted(unsigned peer, int given);

/* Before connecting: false if the socket there is a user's who is not trusted. A program behind it
 * need not even accept. */
int cede_socket_trusted(const char *path, int given);

#endif
