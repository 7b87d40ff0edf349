/* Accepts connections from a listening socket also when descriptors or memory run out. A connection
 * that cannot be accepted keeps the socket readable, and so an event loop busy. Therefore one
 * descriptor is kept in reserve, with which a connection is accepted in order to be refused; where
 * that is not enough, the caller stops watching the socket for a while. */
#ifndef CEDE_BASE_ACCEPT_H
#define CEDE_BASE_ACCEPT_H

#include "base/util.h"

#define ACCEPT_PAUSE_NS (10 * NSEC_PER_MSEC)

struct acceptor {
    int fd;                 /* the listening socket, non-blocking; the caller closes it */
    int spare;              /* the descriptor in reserve; < 0: none at the moment */
    void (*refuse)(int fd); /* sends why a connection is closed; NULL: nothing is sent */
};

/* Makes a listening SEQPACKET socket, non-blocking, to which every user may connect. It is created
 * with that mode, because a chmod() by name would follow a link that somebody put there, as root of
 * a container that has the directory can. Returns its descriptor or -errno. */
int listen_for_all(const char *path, int backlog);

void acceptor_init(struct acceptor *a, int fd, void (*refuse)(int fd));
void acceptor_close(struct acceptor *a); /* leaves the listening socket open */

/* Returns the next connection's descriptor (close-on-exec, non-blocking). -EAGAIN: there is none.
 * -EBUSY: the caller should not watch the socket for ACCEPT_PAUSE_NS. */
int acceptor_next(struct acceptor *a);

#endif
