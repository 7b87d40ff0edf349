/* See unasked_fds.h. Must not wait, and must not take a descriptor into this process, because
 * close() of a file in a file system in user space waits for that file system. unasked_drop() is
 * for the one call that does (pidfd_getfd). */
#include "base/unasked_fds.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

#define LINGER_NS   NSEC_PER_MSEC
#define STACK_BYTES 65536 /* glibc takes what is thread-local from it */
#define KEPT_MAX    1024

void unasked_refuse(int fd)
{
    (void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &(int){0}, sizeof(int));
}

/* Looks at a message without taking it. The references to its descriptors that the kernel drops
 * then are not the last ones. */
static ssize_t unasked_look(int fd, int flags, bool *brings)
{
    struct msghdr h = {.msg_iovlen = 0};
    ssize_t n = recvmsg(fd, &h, flags | MSG_PEEK);
    *brings = n >= 0 && (h.msg_flags & MSG_CTRUNC);
    return n;
}

ssize_t unasked_recv(int fd, void *buf, size_t size, int flags)
{
    bool brings = false;
    ssize_t n = unasked_look(fd, flags, &brings);
    if (brings)
        errno = EBADMSG;
    return brings || n < 0 ? -1 : recv(fd, buf, size, flags);
}

static void on_lingered(int number)
{
    (void)number;
}

/* A signal interrupts a close() that waits, so a timer bounds each wait. */
static void *close_main(void *arg)
{
    const int fd = (int)(intptr_t)arg;
    struct sigevent tick = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGURG};
    const struct itimerspec each = {.it_value.tv_nsec = LINGER_NS,
                                    .it_interval.tv_nsec = LINGER_NS};
    timer_t timer;
    sigset_t set;
    tick._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    sigemptyset(&set);
    sigaddset(&set, SIGURG);
    const bool ticks = timer_create(CLOCK_MONOTONIC, &tick, &timer) == 0 &&
                       timer_settime(timer, 0, &each, NULL) == 0;
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    close(fd);
    if (ticks)
        timer_delete(timer);
    return NULL;
}

/* The thread has ordinary priority, not the daemon's real-time one, and takes none of the process's
 * signals. */
static int close_apart(int fd)
{
    const struct sigaction lingered = {.sa_handler = on_lingered};
    const struct sched_param none = {.sched_priority = 0};
    pthread_attr_t a;
    pthread_t thread;
    sigset_t all, before;
    if (sigaction(SIGURG, &lingered, NULL) < 0 || pthread_attr_init(&a) != 0)
        return -EAGAIN;
    pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&a, STACK_BYTES);
    pthread_attr_setinheritsched(&a, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&a, SCHED_OTHER);
    pthread_attr_setschedparam(&a, &none);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&thread, &a, close_main, (void *)(intptr_t)fd);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&a);
    return -r;
}

/* With SO_PASSCRED a message without descriptors is seen too, and an empty one differs from the end
 * of the connection. The first look may return the error of a peer that has gone. */
static bool has_unread(int fd)
{
    bool brings = false;
    ssize_t n = -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int));
    for (int i = 0; i < 2 && n < 0; i++)
        n = unasked_look(fd, MSG_DONTWAIT, &brings);
    return brings;
}

void unasked_close(int fd)
{
    shutdown(fd, SHUT_RDWR); /* nothing more gets in after the look */
    if (!has_unread(fd) || close_apart(fd) < 0)
        close(fd);
}

int foreign_stat(int at, const char *path, struct statx *out)
{
    const int flags = AT_STATX_DONT_SYNC | AT_EMPTY_PATH;
    return statx(at, path, flags, STATX_BASIC_STATS, out) < 0 ? -errno : 0;
}

void unasked_drop(int fd)
{
    static unsigned kept;
    struct statx st;
    const bool is_known = foreign_stat(fd, "", &st) == 0;
    if ((!is_known || S_ISREG(st.stx_mode) || S_ISDIR(st.stx_mode)) && kept < KEPT_MAX)
        kept++;
    else if (close_apart(fd) < 0)
        close(fd);
}

void unasked_close_listener(int fd)
{
    shutdown(fd, SHUT_RDWR);
    for (int peer; (peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;)
        unasked_close(peer);
    close(fd);
}
