/* Connections of peers who may send descriptors along that nobody asked for. Whoever drops the last
 * reference of one is held up by what it is: a TCP socket with SO_LINGER and unsent data waits for
 * as long as its sender has chosen, and the pages of a large memfd take their time. The kernel
 * drops it in recv(), or in the close() of a connection with unread messages. So nothing here
 * receives or closes one itself. */
#ifndef CEDE_LIB_UNASKED_H
#define CEDE_LIB_UNASKED_H

#include <sys/types.h>

/* Before listen(): no message with descriptors gets in, and send() says so, where the kernel can
 * refuse them (Linux 6.16). */
void unasked_refuse(int fd);

/* recv(2) from a socket of messages. -1 with errno EBADMSG: the next message brings descriptors; it
 * stays where it is, so the connection is of no more use than to unasked_close(). */
ssize_t unasked_recv(int fd, void *buf, size_t size, int flags);

/* close(2) of a connection that no other process has. What waits in it unread is left to a thread
 * that ends with it. */
void unasked_close(int fd);

static inline void unasked_close_p(int *fd)
{
    if (*fd >= 0)
        unasked_close(*fd);
}

/* close(2) of a listening socket, with what was never accepted. */
void unasked_close_listener(int fd);

#endif
