/* Pages shared with programs that are not trusted, and how they are handed over. */
#ifndef CEDE_LIB_SHARE_H
#define CEDE_LIB_SHARE_H

#include <stddef.h>

enum share_writer {
    SHARE_THEIRS, /* this mapping can only read */
    SHARE_OURS,   /* only this mapping can write */
    SHARE_BOTH,
};
/* Zeroed memory in a descriptor, mapped here; its size is sealed, so that using it never faults.
 * NULL: no memory or descriptors; *fd is -1 then. The caller's: munmap() and close(). */
void *shared_page(const char *name, size_t size, enum share_writer writer, int *fd);

#define SEND_FDS_MAX 2
/* One message with descriptors over a SEQPACKET socket; does not wait. 0 or -EPIPE (the other side
 * is gone, or does not read). */
int send_with_fds(int fd, const void *data, size_t n, const int *fds, unsigned nfds);

#endif
