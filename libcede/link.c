/* libcede and the daemon; see handle.h. A hint checks the connection at most once a second, without
 * waiting. No thread of our own: a program need not end what it did not start. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cancel_guard.h"
#include "base/socket_path.h"
#include "base/take_fds.h"
#include "libcede/clock.h"
#include "libcede/handle.h"

#define CHECK_NS       NSEC_PER_SEC          /* between two checks of the connection */
#define CHECK_ASKED_NS NSEC_PER_MSEC         /* the same, while a page was asked for */
#define REFUSED_NS     (10 * NSEC_PER_SEC)   /* until a daemon that was no use is asked again */
#define FIND_NS        (100 * NSEC_PER_MSEC) /* for a page, before anything is asked */
#define ROOM_NS        (100 * NSEC_PER_MSEC) /* for an answer, while others wait for room */
#define ASK_NS         NSEC_PER_SEC          /* for all other answers */
#define ERRNO_MAX      4095

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, cede) list = LIST_HEAD_INITIALIZER(list);

/* ---- messages -------------------------------------------------------------------------------- */

static int link_dial_at(const struct sockaddr_un *a, bool given)
{
    struct ucred peer;
    socklen_t n = sizeof(peer);
    if (!cede_socket_trusted(a->sun_path, given))
        return -1;
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)a, sizeof(*a)) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0 ||
        !cede_peer_trusted(peer.uid, given))
        return -1;
    return TAKE_FD(fd);
}

/* -1: no daemon listens. */
static int link_dial(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = -1;
    for (unsigned i = 0; fd < 0 && cede_socket_at(i, a.sun_path, sizeof(a.sun_path)); i++)
        fd = link_dial_at(&a, i == 0);
    return fd;
}

static bool link_send(int fd, const struct link_ask *ask)
{
    return send(fd, ask, sizeof(*ask), MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(*ask);
}

/* Takes a message that comes within wait_ns, and the descriptor that came with it (-1: none).
 * -EAGAIN: none has come. -ENOTCONN: the connection is gone. -EPROTO: it is no answer, as of a
 * daemon that is too busy for one more connection, or of another release. */
static int link_receive(int fd, uint64_t wait_ns, struct link_answer *answer, int *page)
{
    const uint64_t end_ns = cede_clock_now_ns() + wait_ns;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct iovec io = {answer, sizeof(*answer)};
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } cb;
    struct msghdr h = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = cb.buf, .msg_controllen = sizeof(cb.buf)};
    ssize_t n;
    *page = -1;
    while ((n = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            return -ENOTCONN;
        uint64_t left_ns = saturating_sub(end_ns, cede_clock_now_ns());
        if (!left_ns)
            return -EAGAIN;
        poll(&p, 1, (int)(left_ns / NSEC_PER_MSEC) + 1);
    }
    if (!take_fds(&h, page, 1))
        *page = -1;
    return n == (ssize_t)sizeof(*answer) && !(h.msg_flags & MSG_TRUNC) &&
                   answer->magic == LINK_MAGIC && answer->code <= 0 && answer->code >= -ERRNO_MAX
               ? 0
               : -EPROTO;
}

/* ---- the connection that has the page: with `talk` held, or all locks of a fork -------------- */

static void link_set_page(struct cede *c, struct hints_page *page)
{
    struct hints_page *old = HOLDING(&c->lock, cede_hints_set_page(&c->hints, page));
    if (old)
        munmap(old, HINTS_PAGE);
}

/* pause_ns: until a daemon is asked again. */
static void link_drop(struct cede *c, uint64_t pause_ns)
{
    own_fd_close(&c->link.own);
    c->link.sets = false;
    c->link.asked_ns = cede_clock_now_ns() + pause_ns;
    link_set_page(c, NULL);
}

static void link_find_daemon(struct cede *c)
{
    const struct link_ask ask = {.magic = LINK_MAGIC, .op = LINK_HINTS};
    _cleanup_close_ int fd = link_dial();
    if (fd < 0 || !link_send(fd, &ask))
        return;
    own_fd_set(&c->link.own, TAKE_FD(fd));
    c->link.asked_ns = cede_clock_now_ns();
}

/* Sends, too, the class and weight that waited for a daemon. False: it is no page. */
static bool link_take_page(struct cede *c, const struct link_answer *answer, int fd)
{
    void *page = answer->code == 0 && fd >= 0 && maps_safely(fd, HINTS_PAGE)
                     ? mmap(NULL, HINTS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                     : MAP_FAILED;
    if (page == MAP_FAILED)
        return false;
    c->link.page = answer->page;
    atomic_store(&c->link.met, true);
    link_set_page(c, page);
    c->link.sets = c->link.set.magic && link_send(c->link.own.fd, &c->link.set);
    if (c->link.sets)
        c->link.set.magic = 0;
    return true;
}

/* Takes what has come, and waits for what is due, for at most wait_ns. A daemon that sends anything
 * else loses the connection, or it could keep a hint reading. */
static void link_listen(struct cede *c, uint64_t wait_ns)
{
    while (c->link.own.fd >= 0) {
        struct link_answer answer = {0};
        _cleanup_close_ int fd = -1;
        const bool has = c->hints.page != NULL;
        int r = link_receive(c->link.own.fd, has && !c->link.sets ? 0 : wait_ns, &answer, &fd);
        if (r == -EAGAIN)
            return;
        if (r || (has ? !c->link.sets : !link_take_page(c, &answer, fd)))
            link_drop(c, r == -ENOTCONN ? 0 : REFUSED_NS);
        else if (has)
            c->link.sets = false;
    }
}

static void link_check(struct cede *c, uint64_t wait_ns)
{
    if (c->link.own.fd >= 0 && !own_fd_intact(&c->link.own))
        link_drop(c, 0);
    link_listen(c, wait_ns);
    if (c->link.own.fd < 0 && cede_clock_now_ns() >= c->link.asked_ns) {
        link_find_daemon(c);
        link_listen(c, wait_ns);
    }
    uint64_t now = cede_clock_now_ns();
    bool soon = c->link.own.fd >= 0 && !c->hints.page && now - c->link.asked_ns < CHECK_NS;
    HOLD(&c->lock);
    c->check_ns = now + (soon ? CHECK_ASKED_NS : CHECK_NS);
}

void cede_link_check(struct cede *c, bool wait)
{
    WHOLE_CALL;
    if (wait ? pthread_mutex_lock(&c->talk) == 0 : pthread_mutex_trylock(&c->talk) == 0) {
        link_check(c, wait ? FIND_NS : 0);
        pthread_mutex_unlock(&c->talk);
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

/* With `talk` held. On a connection of its own, which ends: so what was not answered in time does
 * not happen later. */
static int link_ask(struct cede *c, struct link_ask *ask, uint64_t wait_ns, bool *waits)
{
    struct link_answer answer = {0};
    struct pollfd up = {.fd = c->link.own.fd};
    _cleanup_close_ int page = -1;
    *waits = false;
    ask->magic = LINK_MAGIC;
    if (!c->hints.page)
        return -ENOTCONN;
    ask->page = c->link.page;
    _cleanup_close_ int fd = link_dial();
    int r = fd >= 0 && link_send(fd, ask) ? link_receive(fd, wait_ns, &answer, &page) : -ENOTCONN;
    if (r == 0) {
        *waits = answer.waits;
        return answer.code;
    }
    /* Else the daemon has no time for an answer, or for one more connection. */
    return r == -ENOTCONN && poll(&up, 1, 0) != 0 ? r : -EINPROGRESS;
}

int cede_link_ask(struct cede *c, struct link_ask *ask, bool *waits)
{
    WHOLE_CALL;
    HOLD(&c->talk);
    const bool room = ask->op == LINK_ROOM;
    link_check(c, room ? 0 : FIND_NS);
    int r = link_ask(c, ask, room ? ROOM_NS : ASK_NS, waits);
    if (r == -ENOTCONN && ask->op == LINK_SET) { /* kept for the next daemon */
        if (c->link.set.magic && !ask->class)
            ask->class = c->link.set.class;
        if (c->link.set.magic && !ask->weight)
            ask->weight = c->link.set.weight;
        c->link.set = *ask;
        r = 0;
    }
    return r;
}

int cede_link_set(struct cede *c, unsigned class, unsigned weight)
{
    bool waits;
    int r = cede_link_ask(c, &(struct link_ask){.op = LINK_SET, .class = class, .weight = weight},
                          &waits);
    return r == -EINPROGRESS ? -ETIMEDOUT : r;
}

int cede_link_room(struct cede *c, const char *gpu, uint64_t bytes, char *why, size_t size)
{
    struct link_ask ask = {.op = LINK_ROOM, .bytes = bytes};
    bool waits;
    snprintf(ask.gpu, sizeof(ask.gpu), "%s", gpu);
    int r = cede_link_ask(c, &ask, &waits);
    r = r == -EINPROGRESS ? -ETIMEDOUT : r;
    if (r == -EPERM)
        snprintf(why, size, "the daemon makes room for jobs of class latency only");
    else if (r)
        snprintf(why, size, "the daemon makes no room: %s (%d)",
                 r == -ENOTCONN    ? "none is connected"
                 : r == -ETIMEDOUT ? "it did not answer in time"
                                   : "it refused",
                 -r);
    return r;
}

/* ---- forks ----------------------------------------------------------------------------------- */

static void link_before_fork(void)
{
    pthread_mutex_lock(&list_lock);
    for (struct cede *c = LIST_FIRST(&list); c; c = LIST_NEXT(c, entry))
        pthread_mutex_lock(&c->lock);
}

static void link_after_fork(void)
{
    for (struct cede *c = LIST_FIRST(&list); c; c = LIST_NEXT(c, entry))
        pthread_mutex_unlock(&c->lock);
    pthread_mutex_unlock(&list_lock);
}

/* The child has a connection and a page of its own, and begins with no requests. */
static void link_in_child(void)
{
    for (struct cede *c = LIST_FIRST(&list); c; c = LIST_NEXT(c, entry)) {
        own_fd_close(&c->link.own);
        if (c->hints.page)
            munmap(c->hints.page, HINTS_PAGE);
        c->link.sets = false;
        c->check_ns = c->link.asked_ns = 0;
        c->lead_forked = c->lead != NULL;
        c->hints.page = NULL;
        c->hints.generation++;
        cede_hints_reset(&c->hints);
        pthread_mutex_init(&c->talk, NULL); /* its owner is not here */
    }
    link_after_fork();
}

int cede_link_add(struct cede *c)
{
    static bool watching; /* forks */
    HOLD(&list_lock);
    int r = watching ? 0 : -pthread_atfork(link_before_fork, link_after_fork, link_in_child);
    watching |= r == 0;
    if (r == 0)
        LIST_INSERT_HEAD(&list, c, entry);
    return r;
}

void cede_link_remove(struct cede *c)
{
    pthread_mutex_lock(&list_lock);
    LIST_REMOVE(c, entry);
    pthread_mutex_unlock(&list_lock);
    link_drop(c, 0);
}
