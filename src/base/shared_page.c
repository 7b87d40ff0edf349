/* See shared_page.h. */
#include "base/shared_page.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

void *shared_page(const char *name, size_t size, enum share_writer writer, int *fd)
{
    *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0)
        return NULL;
    void *page = MAP_FAILED;
    if (ftruncate(*fd, (off_t)size) == 0)
        page = mmap(NULL, size, writer == SHARE_THEIRS ? PROT_READ : PROT_READ | PROT_WRITE,
                    MAP_SHARED, *fd, 0);
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL |
                (writer == SHARE_OURS ? F_SEAL_FUTURE_WRITE : 0);
    if (page != MAP_FAILED && fcntl(*fd, F_ADD_SEALS, seals) < 0) {
        munmap(page, size);
        page = MAP_FAILED;
    }
    if (page != MAP_FAILED)
        return page;
    close(*fd);
    *fd = -1;
    return NULL;
}

int send_with_fds(int fd, const void *data, size_t n, const int *fds, unsigned nfds)
{
    struct iovec io = {(void *)(size_t)data, n};
    union {
        char buf[CMSG_SPACE(SEND_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } c = {.buf = {0}};
    if (nfds > SEND_FDS_MAX)
        return -EINVAL;
    struct msghdr h = {.msg_iov = &io,
                       .msg_iovlen = 1,
                       .msg_control = c.buf,
                       .msg_controllen = CMSG_SPACE(nfds * sizeof(int))};
    struct cmsghdr *cm = CMSG_FIRSTHDR(&h);
    cm->cmsg_level = SOL_SOCKET;
    cm->cmsg_type = SCM_RIGHTS;
    cm->cmsg_len = CMSG_LEN(nfds * sizeof(int));
    memcpy(CMSG_DATA(cm), fds, nfds * sizeof(int));
    return sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n ? 0 : -EPIPE;
}
