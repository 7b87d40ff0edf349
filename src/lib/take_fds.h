/* Descriptors and pages from another process, which may send what it likes. For libcede and the
 * gate too, in other people's programs: needs libc alone, keeps nothing that was not asked for. */
#ifndef CEDE_LIB_TAKE_FDS_H
#define CEDE_LIB_TAKE_FDS_H

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* What came with a message: exactly n descriptors, the caller's. False: another number, closed. */
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

/* A mapping of so much of it never faults, whatever becomes of its sender. */
static inline bool maps_safely(int fd, size_t bytes)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &st) == 0 &&
           st.st_size >= (off_t)bytes;
}

#endif
