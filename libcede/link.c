/* libcede and the daemon; see handle.h. A hint checks the connection at most once a second, without
 * waiting. No thread of our own: a program need not end what it did not start. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cancel_guard.h"
#include "base/socket_path.h"
#include "base/take_fds.h"
#include "libcede/clock.h"
#include "libcede/handle.h"

#define CHECK_NS       NSEC_PER_SEC        /* between two checks of the connection */
#define CHECK_ASKED_NS NSEC_PER_MSEC       /* the same, while a page was asked for */
#define REFUSED_NS     (10 * NSEC_PER_SEC) /* until a daemon that was no use is asked again */
#define SET_NS         NSEC_PER_SEC        /* for the answer to class and weight */
#define FIND_MS        100                 /* for a page, before class and weight are sent */
#define ANSWER_MAX     65536

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cede *list;

/* ---- the connection: with `talk` held, or all locks of a fork -------------------------------- */

/* False too where the program has closed our descriptor and has the number for something else. */
static bool link_intact(const struct cede *c)
{
    struct stat st;
    return c->link.fd >= 0 && fstat(c->link.fd, &st) == 0 && st.st_dev == c->link.fd_dev &&
           st.st_ino == c->link.fd_ino;
}

static void link_set_page(struct cede *c, struct hints_page *page)
{
    pthread_mutex_lock(&c->lock);
    struct hints_page *old = cede_hints_set_page(&c->hints, page);
    pthread_mutex_unlock(&c->lock);
    if (old)
        munmap(old, HINTS_PAGE);
}

static void link_drop(struct cede *c)
{
    if (link_intact(c))
        close(c->link.fd);
    c->link.fd = -1;
    c->link.answers_due = 0;
    link_set_page(c, NULL);
}

/* Ends a connection that is of no use, and makes no other for a while. */
static void link_refuse(struct cede *c)
{
    link_drop(c);
    c->link.asked_ns = cede_clock_now_ns() + REFUSED_NS;
}

static int link_dial(const struct sockaddr_un *a, bool given)
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

static bool link_send(struct cede *c, const char *text)
{
    if (send(c->link.fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        link_drop(c);
        return false;
    }
    c->link.answers_due++;
    return true;
}

/* -1: no daemon listens. */
static int link_dial_first(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = -1;
    for (unsigned i = 0; fd < 0 && cede_socket_at(i, a.sun_path, sizeof(a.sun_path)); i++)
        fd = link_dial(&a, i == 0);
    return fd;
}

static void link_find_daemon(struct cede *c)
{
    struct stat st;
    _cleanup_close_ int fd = link_dial_first();
    if (fd < 0 || fstat(fd, &st) < 0)
        return;
    c->link.fd = TAKE_FD(fd);
    c->link.fd_dev = st.st_dev;
    c->link.fd_ino = st.st_ino;
    c->link.asked_ns = cede_clock_now_ns();
    link_send(c, "{\"v\":1,\"op\":\"hints\"}");
}

static void set_text(const struct cede *c, int class, int weight, char *text, size_t size)
{
    static const char *const names[] = {"latency", "normal", "batch"};
    char a[32] = "", b[32] = "";
    if (class >= 0)
        snprintf(a, sizeof(a), ",\"class\":\"%s\"", names[class]);
    if (weight >= 0)
        snprintf(b, sizeof(b), ",\"weight\":%d", weight);
    snprintf(text, size, "{\"v\":1,\"op\":\"set\",\"target\":%d%s%s}", (int)c->link.pid, a, b);
}

/* ---- the daemon's answers -------------------------------------------------------------------- */

/* A number at the answer's top level: quotes within texts are escaped, so no text has the key. */
static long link_number(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    return at ? strtol(at + strlen(key), NULL, 10) : 0;
}

static void link_take_answer(struct cede *c, const char *text, int fd)
{
    void *page = MAP_FAILED;
    if (fd >= 0 && strstr(text, "\"ok\":true") &&
        link_number(text, "\"hints\":") == HINTS_VERSION && maps_safely(fd, HINTS_PAGE))
        page = mmap(NULL, HINTS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        link_refuse(c);
        return;
    }
    c->link.pid = (pid_t)link_number(text, "\"pid\":");
    c->link.met = true;
    link_set_page(c, page);
    char set[128];
    set_text(c, c->link.class, c->link.weight, set, sizeof(set));
    if ((c->link.class >= 0 || c->link.weight >= 0) && link_send(c, set))
        c->link.class = c->link.weight = -1;
}

/* Of an answer. */
static int link_code(const char *text)
{
    long e = link_number(text, "\"errno\":");
    return strstr(text, "\"ok\":true") ? 0 : e > 0 && e < 4096 ? -(int)e : -EPROTO;
}

/* Takes one message, its result in *code. False: none has come, or the connection is gone. */
static bool link_receive(struct cede *c, int *code)
{
    _cleanup_free_ char *text = malloc(ANSWER_MAX + 1);
    _cleanup_close_ int fd = -1;
    struct iovec io = {text, ANSWER_MAX};
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } cb;
    struct msghdr h = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = cb.buf, .msg_controllen = sizeof(cb.buf)};
    if (!text)
        return false;
    ssize_t n = recvmsg(c->link.fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            link_drop(c);
        return false;
    }
    text[n] = '\0';
    if (!take_fds(&h, &fd, 1))
        fd = -1;
    if (!c->link.answers_due) { /* a daemon only answers; else it could keep a hint reading */
        link_refuse(c);
        return false;
    }
    c->link.answers_due--;
    *code = link_code(text);
    if (!c->hints.page)
        link_take_answer(c, text, fd);
    return true;
}

/* Waits for the next message until end_ns. False: that is past, or the connection is gone. */
static bool link_wait(struct cede *c, uint64_t end_ns)
{
    uint64_t now = cede_clock_now_ns();
    if (c->link.fd < 0 || now >= end_ns)
        return false;
    struct pollfd p = {.fd = c->link.fd, .events = POLLIN};
    poll(&p, 1, (int)((end_ns - now) / NSEC_PER_MSEC) + 1);
    return true;
}

/* Waits until all requests are answered: what the last answer says; -ENOTCONN: the connection is
 * gone; -EINPROGRESS: there is none by then. */
static int link_answer(struct cede *c, uint64_t wait_ns)
{
    int code = 0;
    uint64_t end_ns = cede_clock_now_ns() + wait_ns;
    while (c->link.fd >= 0 && c->link.answers_due) {
        if (!link_receive(c, &code) && !link_wait(c, end_ns))
            break;
    }
    return c->link.fd < 0 ? -ENOTCONN : c->link.answers_due ? -EINPROGRESS : code;
}

/* Takes all messages that are there; for at most wait_ms until there is a page. */
static void link_receive_all(struct cede *c, int wait_ms)
{
    int code;
    uint64_t end_ns = cede_clock_now_ns() + (unsigned)wait_ms * NSEC_PER_MSEC;
    while (c->link.fd >= 0) {
        if (!link_receive(c, &code) && (c->hints.page || !link_wait(c, end_ns)))
            return;
    }
}

static void link_check(struct cede *c, int wait_ms)
{
    uint64_t now = cede_clock_now_ns();
    if (c->link.fd >= 0 && !link_intact(c))
        link_drop(c);
    if (c->link.fd >= 0)
        link_receive_all(c, 0);
    if (c->link.fd < 0 && now >= c->link.asked_ns)
        link_find_daemon(c);
    if (c->link.fd >= 0 && !c->hints.page)
        link_receive_all(c, wait_ms);
    bool soon = c->link.fd >= 0 && !c->hints.page && now - c->link.asked_ns < CHECK_NS;
    pthread_mutex_lock(&c->lock);
    c->check_ns = cede_clock_now_ns() + (soon ? CHECK_ASKED_NS : CHECK_NS);
    pthread_mutex_unlock(&c->lock);
}

void cede_link_check(struct cede *c, int wait_ms)
{
    WHOLE_CALL;
    if (wait_ms ? pthread_mutex_lock(&c->talk) == 0 : pthread_mutex_trylock(&c->talk) == 0) {
        link_check(c, wait_ms);
        pthread_mutex_unlock(&c->talk);
    }
}

/* What was asked for by this connection, and not answered in time, does not happen later: it ends.
 */
static int link_ask_by(int fd, char text[static ANSWER_MAX + 1])
{
    if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
        return -ENOTCONN;
    const uint64_t end_ns = cede_clock_now_ns() + SET_NS;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    ssize_t n = -1;
    for (uint64_t now; n < 0 && (now = cede_clock_now_ns()) < end_ns;) {
        poll(&p, 1, (int)((end_ns - now) / NSEC_PER_MSEC) + 1);
        n = recv(fd, text, ANSWER_MAX, MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -ENOTCONN;
    }
    if (n <= 0)
        return n < 0 ? -EINPROGRESS : -ENOTCONN;
    text[n] = '\0';
    return link_code(text);
}

static int link_ask_now(const char *request, bool *waits)
{
    char *text = malloc(ANSWER_MAX + 1);
    _cleanup_close_ int fd = text ? link_dial_first() : -1;
    int r = -ENOTCONN;
    if (fd >= 0) {
        snprintf(text, ANSWER_MAX, "%s", request);
        r = link_ask_by(fd, text);
        *waits = r != -ENOTCONN && strstr(text, "\"waits\":true");
    }
    free(text);
    return r;
}

static bool link_is_up(const struct cede *c)
{
    struct pollfd p = {.fd = c->link.fd};
    return c->link.fd >= 0 && c->hints.page && poll(&p, 1, 0) == 0;
}

/* With `talk` held. */
static int link_set(struct cede *c, int class, int weight)
{
    char text[128];
    bool waits;
    link_check(c, FIND_MS);
    set_text(c, class, weight, text, sizeof(text));
    int r = c->hints.page ? link_ask_now(text, &waits) : -ENOTCONN;
    if (r == -ENOTCONN && link_is_up(c))
        r = -EINPROGRESS; /* it has no time for one more connection */
    if (r != -ENOTCONN)
        return r == -EINPROGRESS ? -ETIMEDOUT : r;
    /* There is no daemon, or not any more: kept for the next one. */
    c->link.class = class >= 0 ? class : c->link.class;
    c->link.weight = weight >= 0 ? weight : c->link.weight;
    return 0;
}

int cede_link_set(struct cede *c, int class, int weight)
{
    WHOLE_CALL;
    pthread_mutex_lock(&c->talk);
    int r = link_set(c, class, weight);
    pthread_mutex_unlock(&c->talk);
    return r;
}

/* With `talk` held. */
static int link_room(struct cede *c, const char *gpu, uint64_t bytes)
{
    char text[160], size[40] = "";
    link_check(c, 0);
    if (c->link.fd < 0 || !c->hints.page)
        return -ENOTCONN;
    if (c->link.answers_due)
        return -ETIMEDOUT; /* one at a time */
    if (bytes)
        snprintf(size, sizeof(size), ",\"memory_bytes\":%llu", (unsigned long long)bytes);
    snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"room\"%s%s%s%s}", size,
             *gpu ? ",\"name\":\"" : "", gpu, *gpu ? "\"" : "");
    if (!link_send(c, text))
        return -ENOTCONN;
    int r = link_answer(c, FIND_MS * NSEC_PER_MSEC);
    return r == -EINPROGRESS ? -ETIMEDOUT : r;
}

int cede_link_room(struct cede *c, const char *gpu, uint64_t bytes, char *why, size_t size)
{
    WHOLE_CALL;
    pthread_mutex_lock(&c->talk);
    int r = link_room(c, gpu, bytes);
    pthread_mutex_unlock(&c->talk);
    if (r == 0)
        snprintf(why, size, "%s", "");
    else if (r == -EPERM)
        snprintf(why, size, "the daemon makes room for jobs of class latency only");
    else
        snprintf(why, size, "the daemon makes no room: %s (%d)",
                 r == -ENOTCONN    ? "none is connected"
                 : r == -ETIMEDOUT ? "it did not answer in time"
                                   : "it refused",
                 -r);
    return r;
}

int cede_link_ask(struct cede *c, const char *text, bool *waits)
{
    WHOLE_CALL;
    int code = -ENOTCONN;
    *waits = false;
    pthread_mutex_lock(&c->talk);
    link_check(c, FIND_MS);
    if (c->link.fd >= 0 && c->hints.page)
        code = link_ask_now(text, waits);
    pthread_mutex_unlock(&c->talk);
    return code;
}

bool cede_link_met(struct cede *c)
{
    pthread_mutex_lock(&c->talk);
    const bool met = c->link.met;
    pthread_mutex_unlock(&c->talk);
    return met;
}

/* ---- forks ----------------------------------------------------------------------------------- */

static void link_before_fork(void)
{
    pthread_mutex_lock(&list_lock);
    for (struct cede *c = list; c; c = c->next)
        pthread_mutex_lock(&c->lock);
}

static void link_after_fork(void)
{
    for (struct cede *c = list; c; c = c->next)
        pthread_mutex_unlock(&c->lock);
    pthread_mutex_unlock(&list_lock);
}

/* The child has a connection and a page of its own, and begins with no requests. */
static void link_in_child(void)
{
    for (struct cede *c = list; c; c = c->next) {
        if (link_intact(c))
            close(c->link.fd);
        if (c->hints.page)
            munmap(c->hints.page, HINTS_PAGE);
        c->link.fd = -1;
        c->link.answers_due = 0;
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
    pthread_mutex_lock(&list_lock);
    int r = watching ? 0 : -pthread_atfork(link_before_fork, link_after_fork, link_in_child);
    watching |= r == 0;
    if (r == 0) {
        c->next = list;
        list = c;
    }
    pthread_mutex_unlock(&list_lock);
    return r;
}

void cede_link_remove(struct cede *c)
{
    pthread_mutex_lock(&list_lock);
    struct cede **p = &list;
    while (*p && *p != c)
        p = &(*p)->next;
    if (*p)
        *p = c->next;
    pthread_mutex_unlock(&list_lock);
    link_drop(c);
}
