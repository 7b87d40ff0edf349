/* Where a daemon's control socket may be. libcede contains this file too, and so do other people's
 * programs: it needs libc alone and defines no name without the prefix cede_. */
#ifndef CEDE_BASE_SOCKET_PATH_H
#define CEDE_BASE_SOCKET_PATH_H

#include <stddef.h>

/* Joins a and b to a directory whose socket fits into a socket address. 0 or -ENAMETOOLONG. */
int cede_dir_put(char *buf, size_t size, const char *a, const char *b);

/* Gets the directory of this user, whatever CEDE_DIR says. 0 or -ENAMETOOLONG. */
int cede_user_dir(char *buf, size_t size);

/* Gets the i-th socket to try: only that in $CEDE_DIR if it is set; else the system's
 * /run/cede/socket, then the user's. False when i is past the last. */
int cede_socket_at(unsigned i, char *buf, size_t size);

/* Whether the daemon behind a socket is trusted: it runs (peer, of SO_PEERCRED) as root or as this
 * user. In a rootless container the host's root has no uid, and all users of the host look the
 * same: there a daemon is trusted if the maker of the container chose its directory (given: i of
 * cede_socket_at() is 0), and not if it is in /tmp. */
int cede_peer_trusted(unsigned peer, int given);

/* Asked before connecting: false if the socket belongs to a user who is not trusted, because a
 * program behind it might never accept. */
int cede_socket_trusted(const char *path, int given);

#endif
