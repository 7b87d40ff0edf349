/* See link.h. The control page is mapped over read-only zeros of this process and replaced by such
 * zeros when the daemon goes: readers need no lock, and find that everything may pass. Read-only
 * memory is not charged, so that the kernel cannot refuse it after the page is gone. */
#include "gate/link.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/take_fds.h"
#include "gate/page.h"

static struct gate_control no_page;
static struct gate_slot no_slot;
struct gate_control *_Atomic gate_page = &no_page;
struct gate_slot *link_slot = &no_slot;

static struct own_fd daemon_fd = {.fd = -1};
static struct own_fd waker[2] = {{.fd = -1}, {.fd = -1}}; /* a pair: one is read, one written */

/* ---- descriptors ----------------------------------------------------------------------------- */

/* Sockets, not a pipe: what is sent cannot end up in a file that got the number meanwhile, nor
 * raise SIGPIPE when the program has closed the other end. */
static bool waker_ready(void)
{
    int ends[2];
    if (own_fd_intact(&waker[0]) && own_fd_intact(&waker[1]))
        return true;
    own_fd_close(&waker[0]);
    own_fd_close(&waker[1]);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
        return false;
    own_fd_set(&waker[0], ends[0]);
    own_fd_set(&waker[1], ends[1]);
    return true;
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* fd -1: zeros. */
static bool cover_control(int fd)
{
    int flags = MAP_FIXED | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
    return mmap(gate_control(), GATE_PAGE, PROT_READ, flags, fd, 0) != MAP_FAILED;
}

bool link_reserve(void)
{
    if (gate_control() != &no_page)
        return true;
    void *p = mmap(NULL, GATE_PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p != MAP_FAILED)
        gate_page = p;
    return p != MAP_FAILED;
}

/* The pointer changes first: a child of fork() may see the moment between. */
static void drop_pages(void)
{
    struct gate_slot *old = link_slot;
    link_slot = &no_slot;
    if (old != &no_slot)
        munmap(old, GATE_PAGE);
    if (gate_control() != &no_page && !cover_control(-1))
        gate_page = &no_page; /* what is mapped there is not looked at any more */
}

/* ---- the connection -------------------------------------------------------------------------- */

static int link_connect(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const char *path = secure_getenv("CEDE_GATE");
    path = path && path[0] == '/' ? path : "/run/cede/gate";
    if (strlen(path) >= sizeof(a.sun_path))
        return -1;
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static bool receive_welcome(int fd, int pages[2])
{
    struct gate_msg m = {0};
    struct iovec io = {&m, sizeof(m)};
    union {
        char buf[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } c;
    struct msghdr h = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = c.buf, .msg_controllen = sizeof(c.buf)};
    ssize_t n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0 || !take_fds(&h, pages, 2))
        return false;
    if (n == (ssize_t)sizeof(m) && m.type == GATE_WELCOME && m.magic == GATE_MAGIC &&
        m.version == GATE_VERSION && maps_safely(pages[0], GATE_PAGE) &&
        maps_safely(pages[1], GATE_PAGE))
        return true;
    close(pages[0]);
    close(pages[1]);
    return false;
}

bool link_ask(struct link_welcome *w)
{
    const struct gate_msg hello = {
        .type = GATE_HELLO, .magic = GATE_MAGIC, .version = GATE_VERSION};
    int pages[2], fd = link_connect();
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (fd < 0)
        return false;
    own_fd_set(&w->socket, fd);
    if (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) != (ssize_t)sizeof(hello) ||
        poll(&p, 1, LINK_CONNECT_MS) != 1 || !own_fd_intact(&w->socket) ||
        !receive_welcome(fd, pages)) {
        own_fd_close(&w->socket);
        return false;
    }
    own_fd_set(&w->control, pages[0]);
    own_fd_set(&w->slot, pages[1]);
    return true;
}

bool link_take_locked(struct link_welcome *w)
{
    bool ok = own_fd_intact(&w->socket) && own_fd_intact(&w->control) && own_fd_intact(&w->slot) &&
              link_reserve();
    void *slot =
        ok ? mmap(NULL, GATE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, w->slot.fd, 0) : MAP_FAILED;
    if (slot != MAP_FAILED)
        link_slot = slot;
    ok = slot != MAP_FAILED && cover_control(w->control.fd);
    daemon_fd = w->socket;
    own_fd_close(&w->control);
    own_fd_close(&w->slot);
    if (!ok)
        link_drop_locked();
    return ok;
}

void link_drop_locked(void)
{
    own_fd_close(&daemon_fd);
    drop_pages();
}

bool link_up_locked(void)
{
    return daemon_fd.fd >= 0;
}

bool link_intact_locked(void)
{
    return own_fd_intact(&daemon_fd);
}

void link_send_locked(const void *message, size_t bytes)
{
    if (own_fd_intact(&daemon_fd))
        send(daemon_fd.fd, message, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* ---- the background thread's sleep ----------------------------------------------------------- */

bool link_watch_locked(struct pollfd p[static 2])
{
    bool ready = waker_ready();
    p[0] = (struct pollfd){.fd = daemon_fd.fd, .events = POLLIN};
    p[1] = (struct pollfd){.fd = ready ? waker[0].fd : -1, .events = POLLIN};
    return ready;
}

void link_look_locked(const struct pollfd p[static 2])
{
    char one;
    for (int i = 0; i < 64 && p[1].revents && own_fd_intact(&waker[0]); i++) {
        if (recv(waker[0].fd, &one, sizeof(one), MSG_DONTWAIT) < 0)
            break; /* each wake was a message */
    }
    /* The daemon sends nothing after its welcome: what is there to read is its end. */
    if (daemon_fd.fd >= 0 && (!link_intact_locked() || (p[0].fd == daemon_fd.fd && p[0].revents)))
        link_drop_locked();
}

void link_wake_locked(void)
{
    if (own_fd_intact(&waker[1]))
        send(waker[1].fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void link_in_child(void)
{
    own_fd_close(&daemon_fd);
    own_fd_close(&waker[0]);
    own_fd_close(&waker[1]);
    drop_pages();
}
