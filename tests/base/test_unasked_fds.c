/* Descriptors that come unasked hold nobody up: in a message that is read, in one that is never
 * read, behind an empty one, and on a connection that was never accepted. */
#include "../lingering.h"
#include "../test.h"

#include <fcntl.h>
#include <sys/un.h>

#include "base/unasked_fds.h"

static void pair_of(int *fds)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
}

TEST(in_a_message)
{
    int s[2];
    char buf[8];
    struct lingering l = lingering_new();
    pair_of(s);
    assert_int_equal(send(s[0], "plain", 5, 0), 5);
    lingering_send(&l, s[0], "more", 4);
    assert_int_equal(unasked_recv(s[1], buf, sizeof(buf), MSG_DONTWAIT), 5);
    assert_memory_equal(buf, "plain", 5);
    for (int i = 0; i < 2; i++) {
        errno = 0;
        assert_int_equal(unasked_recv(s[1], buf, sizeof(buf), MSG_DONTWAIT), -1);
        assert_int_equal(errno, EBADMSG);
    }
    unasked_close(s[1]);
    assert_int_equal(send(s[0], "late", 4, MSG_NOSIGNAL), -1);
    close(s[0]);
    lingering_end(&l);
}

TEST(behind_others)
{
    for (int empty = 0; empty < 2; empty++) {
        int s[2];
        struct lingering l = lingering_new();
        pair_of(s);
        assert_int_equal(send(s[0], "x", !empty, 0), !empty);
        lingering_send(&l, s[0], "more", 4);
        if (empty) /* its unread answer leaves an error for the first look */
            assert_int_equal(send(s[1], "answer", 6, 0), 6);
        close(s[0]);
        unasked_close(s[1]);
        lingering_end(&l);
    }
}

TEST(never_accepted)
{
    struct lingering l = lingering_new();
    struct sockaddr_un a = {.sun_family = AF_UNIX}; /* the kernel chooses a name */
    socklen_t size = sizeof(a);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    unasked_refuse(listener);
    assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof(sa_family_t)), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &size), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, size), 0);
    lingering_send(&l, fd, "hello", 5);
    unasked_close_listener(listener);
    close(fd);
    lingering_end(&l);
}

/* The plain case makes no thread, and what is closed is closed at once. */
TEST(nothing_unasked)
{
    int s[2];
    char c;
    pair_of(s);
    assert_int_equal(send(s[1], "bye", 3, 0), 3);
    unasked_close(s[1]);
    assert_int_equal(fcntl(s[1], F_GETFD), -1);
    assert_int_equal(recv(s[0], &c, 1, MSG_TRUNC), 3);
    assert_int_equal(recv(s[0], &c, 1, 0), 0);
    close(s[0]);
}
