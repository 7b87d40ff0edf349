/* libcede and the daemon: finds it, gets the page, tells class and weight, notices its end. Only
 * cede_link_set() and cede_connect() ever wait; a hint looks at most once a second, without
 * waiting. No thread of our own: what a program did not start, it need not end. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "lib/socket_path.h"
#include "lib/take_fds.h"
#include "libcede/client.h"

#define MS_NS         1000000ULL
#define LOOK_NS       (1000 * MS_NS)
#define LOOK_ASKED_NS MS_NS
#define REFUSED_NS    (10000 * MS_NS) /* a daemon that has no page for us is left alone so long */
#define SET_MS        1000
#define ANSWER_MAX    65536

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cede *list;

uint64_t cede_client_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 * MS_NS + (uint64_t)t.tv_nsec;
}

/* ---- the connection: with `talk` held, or all locks of a fork -------------------------------- */

/* A program may close descriptors that it did not open, and get the number for something else. */
static bool still_ours(const struct cede *c)
{
    struct stat st;
    return c->fd >= 0 && fstat(c->fd, &st) == 0 && st.st_dev == c->fd_dev && st.st_ino == c->fd_ino;
}

static void take_page(struct cede *c, struct hints_page *page)
{
    pthread_mutex_lock(&c->lock);
    struct hints_page *old = c->page;
    c->page = page;
    cede_client_publish(c);
    pthread_mutex_unlock(&c->lock);
    if (old)
        munmap(old, HINTS_PAGE);
}

static void hang_up(struct cede *c)
{
    if (still_ours(c))
        close(c->fd);
    c->fd = -1;
    c->owed = 0;
    take_page(c, NULL);
}

static int dial(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct ucred peer;
    socklen_t n = sizeof(peer);
    if (strlen(path) >= sizeof(a.sun_path))
        return -1;
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 &&
        (peer.uid == 0 || peer.uid == geteuid()))
        return fd;
    close(fd);
    return -1;
}

static bool say(struct cede *c, const char *text)
{
    if (send(c->fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        hang_up(c);
        return false;
    }
    c->owed++;
    return true;
}

static void call_daemon(struct cede *c)
{
    char path[128];
    struct stat st;
    for (unsigned i = 0; c->fd < 0 && cede_socket_at(i, path, sizeof(path)); i++)
        c->fd = dial(path);
    if (c->fd < 0)
        return;
    if (fstat(c->fd, &st) < 0) {
        close(c->fd);
        c->fd = -1;
        return;
    }
    c->fd_dev = st.st_dev;
    c->fd_ino = st.st_ino;
    c->asked_ns = cede_client_now_ns();
    say(c, "{\"v\":1,\"op\":\"hints\"}");
}

static bool say_set(struct cede *c, int cls, int weight)
{
    static const char *const names[] = {"latency", "normal", "batch"};
    char text[128], a[32] = "", b[32] = "";
    if (cls >= 0)
        snprintf(a, sizeof(a), ",\"class\":\"%s\"", names[cls]);
    if (weight >= 0)
        snprintf(b, sizeof(b), ",\"weight\":%d", weight);
    snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"set\",\"target\":%d%s%s}", (int)c->pid, a, b);
    return say(c, text);
}

/* ---- what it answers ------------------------------------------------------------------------- */

/* A number of an answer's own; quotes within texts are escaped, so this finds none of those. */
static long number(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    return at ? strtol(at + strlen(key), NULL, 10) : 0;
}

static void welcomed(struct cede *c, const char *text, int fd)
{
    void *page = MAP_FAILED;
    if (fd >= 0 && strstr(text, "\"ok\":true") && number(text, "\"hints\":") == HINTS_VERSION &&
        maps_safely(fd, HINTS_PAGE))
        page = mmap(NULL, HINTS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        hang_up(c);
        c->asked_ns = cede_client_now_ns() + REFUSED_NS;
        return;
    }
    c->pid = (pid_t)number(text, "\"pid\":");
    take_page(c, page);
    if ((c->told_class >= 0 || c->told_weight >= 0) && say_set(c, c->told_class, c->told_weight))
        c->told_class = c->told_weight = -1;
}

/* One message, if there is one; its result in *code. False: there is none, or no connection. */
static bool hear(struct cede *c, int *code)
{
    char *text = malloc(ANSWER_MAX + 1);
    struct iovec io = {text, ANSWER_MAX};
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } cb;
    struct msghdr h = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = cb.buf, .msg_controllen = sizeof(cb.buf)};
    ssize_t n = text ? recvmsg(c->fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) : -1;
    if (n <= 0) {
        if (n == 0 || (text && errno != EAGAIN && errno != EINTR))
            hang_up(c);
        free(text);
        return false;
    }
    text[n] = '\0';
    int fd = -1;
    if (!take_fds(&h, &fd, 1))
        fd = -1;
    c->owed -= c->owed > 0;
    long e = strstr(text, "\"ok\":true") ? 0 : number(text, "\"errno\":");
    *code = strstr(text, "\"ok\":true") ? 0 : e > 0 && e < 4096 ? -(int)e : -EPROTO;
    if (!c->page)
        welcomed(c, text, fd);
    if (fd >= 0)
        close(fd);
    free(text);
    return true;
}

static void hear_all(struct cede *c, int wait_ms)
{
    int code;
    uint64_t end = cede_client_now_ns() + (unsigned)wait_ms * MS_NS;
    while (c->fd >= 0) {
        if (hear(c, &code))
            continue;
        uint64_t now = cede_client_now_ns();
        if (c->fd < 0 || c->page || now >= end)
            return;
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        poll(&p, 1, (int)((end - now) / MS_NS) + 1);
    }
}

static void look(struct cede *c, int wait_ms)
{
    uint64_t now = cede_client_now_ns();
    if (c->fd >= 0 && !still_ours(c))
        hang_up(c);
    if (c->fd >= 0)
        hear_all(c, 0);
    if (c->fd < 0 && now >= c->asked_ns)
        call_daemon(c);
    if (c->fd >= 0 && !c->page)
        hear_all(c, wait_ms);
    bool soon = c->fd >= 0 && !c->page && now - c->asked_ns < LOOK_NS;
    pthread_mutex_lock(&c->lock);
    c->look_ns = cede_client_now_ns() + (soon ? LOOK_ASKED_NS : LOOK_NS);
    pthread_mutex_unlock(&c->lock);
}

void cede_link_look(struct cede *c, int wait_ms)
{
    int saved = errno;
    if (wait_ms ? pthread_mutex_lock(&c->talk) == 0 : pthread_mutex_trylock(&c->talk) == 0) {
        look(c, wait_ms);
        pthread_mutex_unlock(&c->talk);
    }
    errno = saved;
}

/* With `talk` held. */
static int set_now(struct cede *c, int cls, int weight)
{
    int code = 0;
    look(c, 100);
    if (c->page && say_set(c, cls, weight)) {
        uint64_t end = cede_client_now_ns() + SET_MS * MS_NS;
        while (c->fd >= 0 && c->owed) {
            if (hear(c, &code))
                continue;
            uint64_t now = cede_client_now_ns();
            if (now >= end)
                return -ETIMEDOUT;
            struct pollfd p = {.fd = c->fd, .events = POLLIN};
            if (c->fd >= 0)
                poll(&p, 1, (int)((end - now) / MS_NS) + 1);
        }
        if (c->fd >= 0)
            return code;
    }
    /* Nobody is there, or not any more: for the next one. */
    c->told_class = cls >= 0 ? cls : c->told_class;
    c->told_weight = weight >= 0 ? weight : c->told_weight;
    return 0;
}

int cede_link_set(struct cede *c, int cls, int weight)
{
    int saved = errno;
    pthread_mutex_lock(&c->talk);
    int r = set_now(c, cls, weight);
    pthread_mutex_unlock(&c->talk);
    errno = saved;
    return r;
}

/* ---- forks ----------------------------------------------------------------------------------- */

static void before_fork(void)
{
    pthread_mutex_lock(&list_lock);
    for (struct cede *c = list; c; c = c->next)
        pthread_mutex_lock(&c->lock);
}

static void after_fork(void)
{
    for (struct cede *c = list; c; c = c->next)
        pthread_mutex_unlock(&c->lock);
    pthread_mutex_unlock(&list_lock);
}

/* The child speaks for itself, on a connection and a page of its own. */
static void in_child(void)
{
    for (struct cede *c = list; c; c = c->next) {
        if (still_ours(c))
            close(c->fd);
        if (c->page)
            munmap(c->page, HINTS_PAGE);
        c->fd = -1;
        c->page = NULL;
        c->owed = 0;
        c->look_ns = c->asked_ns = 0;
        c->generation++;
        c->lead_forked = c->lead != NULL;
        cede_client_reset(c);
        pthread_mutex_init(&c->talk, NULL); /* its holder is not here */
    }
    after_fork();
}

int cede_link_add(struct cede *c)
{
    static bool watching; /* forks */
    pthread_mutex_lock(&list_lock);
    int r = watching ? 0 : -pthread_atfork(before_fork, after_fork, in_child);
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
    hang_up(c);
}
