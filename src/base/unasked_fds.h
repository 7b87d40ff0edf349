/* Handles connections of peers that may send descriptors nobody asked for. Dropping the last
 * reference of a descriptor may take long: a TCP socket with SO_LINGER and unsent data waits for as
 * long as its sender has chosen, and freeing the pages of a large memfd takes time. The kernel
 * drops it in recv(), or in the close() of a connection with unread messages. So nothing here
 * receives or closes one in the calling thread. */
#ifndef CEDE_BASE_UNASKED_FDS_H
#define CEDE_BASE_UNASKED_FDS_H

#include <sys/types.h>

/* Called before listen(): the kernel refuses messages with descriptors, and send() fails, where it
 * can do that (Linux 6.16). */
void unasked_refuse(int fd);

/* recv(2) from a socket of messages. -1 with errno EBADMSG: the next message has descriptors. It
 * stays in the socket, so all that can be done with the connection is unasked_close(). */
ssize_t unasked_recv(int fd, void *buf, size_t size, int flags);

/* close(2) of a connection that no other process has. If it has unread messages with descriptors,
 * a separate thread closes it. */
void unasked_close(int fd);

static inline void unasked_close_p(int *fd)
{
    if (*fd >= 0)
        unasked_close(*fd);
}

/* What is known here of a file that another user may have chosen: no file server is asked, which
 * might never answer. With path "" of the descriptor `at` itself. 0 or -errno. */
struct statx;
int foreign_stat(int at, const char *path, struct statx *out);

/* Lets go of a descriptor of somebody else's file. A file on a file server stays open as long as
 * this process, of 1024 of them: close() would wait for that server, and not even SIGKILL ends a
 * process that waits so. A pipe, a socket or a device is closed in a separate thread. */
void unasked_drop(int fd);

/* close(2) of a listening socket and of its connections that were never accepted. */
void unasked_close_listener(int fd);

#endif
