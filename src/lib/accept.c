/* See accept.h. */
#include "lib/accept.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/unasked.h"

/* Connections of one call that were refused or had gone, before a pause. */
#define FAILURES_MAX 16

int bind_for_all(int fd, const struct sockaddr_un *a)
{
    const mode_t mask = umask(0111);
    int r = bind(fd, (const struct sockaddr *)a, sizeof(*a)) < 0 ? -errno : 0;
    umask(mask);
    return r;
}

static int accept_take(const struct acceptor *a)
{
    int fd = accept4(a->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

static void spare_open(struct acceptor *a)
{
    if (a->spare < 0)
        a->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void acceptor_init(struct acceptor *a, int fd, void (*refuse)(int fd))
{
    *a = (struct acceptor){.fd = fd, .spare = -1, .refuse = refuse};
    spare_open(a);
}

void acceptor_close(struct acceptor *a)
{
    if (a->spare >= 0)
        close(a->spare);
    a->spare = -1;
}

/* 0: refused one; -EAGAIN: there was none (without descriptors accept() does not look); -EMFILE,
 * ...: not even with the reserve. */
static int refuse_one(struct acceptor *a)
{
    if (a->spare < 0)
        return -EMFILE;
    acceptor_close(a);
    int fd = accept_take(a);
    if (fd >= 0) {
        if (a->refuse)
            a->refuse(fd);
        unasked_close(fd);
    }
    spare_open(a);
    return fd < 0 ? fd : 0;
}

int acceptor_next(struct acceptor *a)
{
    spare_open(a); /* where it was lost */
    for (unsigned i = 0; i < FAILURES_MAX; i++) {
        int fd = accept_take(a);
        if (fd >= 0 || fd == -EAGAIN)
            return fd;
        if (fd == -EINTR || fd == -ECONNABORTED)
            continue;
        /* -ENOMEM, -ENOBUFS: a descriptor is of no help. */
        int r = fd == -EMFILE || fd == -ENFILE ? refuse_one(a) : fd;
        if (r == -EAGAIN)
            return r;
        if (r < 0)
            break;
    }
    return -EBUSY;
}
