/* Shares pages with programs that are not trusted, and sends them. */
#ifndef CEDE_BASE_SHARED_PAGE_H
#define CEDE_BASE_SHARED_PAGE_H

#include <stddef.h>

enum share_writer {
    SHARE_THEIRS, /* this mapping can only read */
    SHARE_OURS,   /* only this mapping can write */
    SHARE_BOTH,
};
/* Maps zeroed memory of a new descriptor. Its size is sealed, so that an access never faults. The
 * caller calls munmap() and close(). NULL, with *fd -1: no memory or no descriptor. */
void *shared_page(const char *name, size_t size, enum share_writer writer, int *fd);

#define SEND_FDS_MAX 2
/* Sends one message with descriptors over a SEQPACKET socket without waiting. 0, or -EPIPE: the
 * other side is gone or does not read. */
int send_with_fds(int fd, const void *data, size_t n, const int *fds, unsigned nfds);

#endif
