/* A descriptor whose last close() waits for minutes, for tests of sockets that take messages from
 * anybody. setsockopt() is replaced in the test that includes this, so that the kernel does as one
 * that cannot refuse descriptors. */
#ifndef CEDE_TESTS_LINGERING_H
#define CEDE_TESTS_LINGERING_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define LINGER_S      600
#define LINGER_LIMIT  60 /* seconds until the test is killed: the machine may be busy */
#define PASSRIGHTS_NO 83

int setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
    if (level == SOL_SOCKET && name == PASSRIGHTS_NO) {
        errno = ENOPROTOOPT;
        return -1;
    }
    return (int)syscall(SYS_setsockopt, fd, level, name, value, size);
}

struct lingering {
    int listener, peer, fd;
};

/* A connection over loopback with more in it than its other end takes, which never reads. */
static inline struct lingering lingering_new(void)
{
    static const char data[65536];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct linger wait = {.l_onoff = 1, .l_linger = LINGER_S};
    socklen_t size = sizeof(a);
    struct lingering l = {.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                          .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    setsockopt(l.listener, SOL_SOCKET, SO_RCVBUF, &(int){2048}, sizeof(int));
    assert_int_equal(bind(l.listener, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(l.listener, 1), 0);
    assert_int_equal(getsockname(l.listener, (struct sockaddr *)&a, &size), 0);
    assert_int_equal(connect(l.fd, (struct sockaddr *)&a, sizeof(a)), 0);
    l.peer = accept4(l.listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(l.peer >= 0);
    for (int full = 0; full < 3;) {
        if (send(l.fd, data, sizeof(data), MSG_DONTWAIT) < 0) {
            usleep(20000);
            full++;
        }
    }
    assert_int_equal(setsockopt(l.fd, SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)), 0);
    alarm(LINGER_LIMIT);
    return l;
}

/* Goes along with a message, and is then nobody else's. */
static inline void lingering_send(struct lingering *l, int to, const void *data, size_t n)
{
    struct iovec io = {(void *)(uintptr_t)data, n};
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } c = {.buf = {0}};
    struct msghdr h = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = c.buf, .msg_controllen = sizeof(c.buf)};
    struct cmsghdr *cm = CMSG_FIRSTHDR(&h);
    cm->cmsg_level = SOL_SOCKET;
    cm->cmsg_type = SCM_RIGHTS;
    cm->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(cm), &l->fd, sizeof(int));
    assert_int_equal(sendmsg(to, &h, MSG_NOSIGNAL), n);
    close(l->fd);
}

static inline void lingering_end(struct lingering *l)
{
    alarm(0);
    close(l->peer);
    close(l->listener);
}

#endif
