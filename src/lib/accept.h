/* Taking connections from a listening socket when descriptors or memory run out. A connection that
 * cannot be taken keeps the socket readable, and an event loop awake: so a descriptor is kept in
 * reserve to take and refuse it with, and where that is not enough the caller stops watching. */
#ifndef CEDE_LIB_ACCEPT_H
#define CEDE_LIB_ACCEPT_H

#include <stdbool.h>

#include "lib/util.h"

#define ACCEPT_PAUSE_NS (10 * NSEC_PER_MSEC)

struct acceptor {
    int fd;                 /* the listening socket, which does not block; the caller's */
    int spare;              /* < 0: none at the moment */
    void (*refuse)(int fd); /* the last words to a connection that is closed then; NULL: none */
};

/* A socket that every user may connect to, at sun_path. It is made with that mode: to change it
 * later by its name would follow a link that somebody put there, as root in a container that has
 * the directory can. 0 or -errno. */
struct sockaddr_un;
int bind_for_all(int fd, const struct sockaddr_un *a);

void acceptor_init(struct acceptor *a, int fd, void (*refuse)(int fd));
void acceptor_close(struct acceptor *a); /* leaves fd open */

/* The next connection's descriptor (close-on-exec, non-blocking). -EAGAIN: there is none. -EBUSY:
 * stop watching the socket for ACCEPT_PAUSE_NS. */
int acceptor_next(struct acceptor *a);

#endif
