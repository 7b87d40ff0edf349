/* Takes descriptors and pages from another process, which may send anything, and keeps nothing that
 * was not asked for. libcede and the gate contain this file too, so it needs libc alone. */
#ifndef CEDE_BASE_TAKE_FDS_H
#define CEDE_BASE_TAKE_FDS_H

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Takes exactly n descriptors that came with a message, which the caller closes. False: it was
 * another number, and all were closed. */
static inline bool take_fds(struct msghdr *h, int *fds, unsigned n)
{
    unsigned got = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
            int fd;
            memcpy(&fd, (char *)c + at, sizeof(fd));
            if (got < n)
                fds[got] = fd;
            else
                close(fd);
            got++;
        }
    }
    for (unsigned i = 0; got != n && i < got && i < n; i++)
        close(fds[i]);
    return got == n;
}

/* Whether a mapping of this size never faults, whatever the sender does later. */
static inline bool maps_safely(int fd, size_t bytes)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &st) == 0 &&
           st.st_size >= (off_t)bytes;
}

#endif
