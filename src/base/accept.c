/* See accept.h. */
#include "base/accept.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/unasked_fds.h"

/* After so many connections that were refused or had gone, one call gives up, for a pause. */
#define FAILURES_MAX 16

int listen_for_all(const char *path, int backlog)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    const mode_t mask = umask(0111);
    int r = bind(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 ? -errno : 0;
    umask(mask);
    unasked_refuse(fd);
    if (r == 0 && listen(fd, backlog) < 0)
        r = -errno;
    return r < 0 ? r : TAKE_FD(fd);
}

static int accept_take(const struct acceptor *a)
{
    int fd = accept4(a->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

/* Also called when the reserve was lost because no descriptor was left for it. */
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

/* 0: a connection was refused. -EAGAIN: there was none; accept() does not look for one before it
 * has a descriptor. Another error: the reserve was not enough. */
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
    spare_open(a);
    for (unsigned i = 0; i < FAILURES_MAX; i++) {
        int fd = accept_take(a);
        if (fd >= 0 || fd == -EAGAIN)
            return fd;
        if (fd == -EINTR || fd == -ECONNABORTED)
            continue;
        /* A free descriptor does not help against -ENOMEM and -ENOBUFS. */
        int r = fd == -EMFILE || fd == -ENFILE ? refuse_one(a) : fd;
        if (r == -EAGAIN)
            return r;
        if (r < 0)
            break;
    }
    return -EBUSY;
}
