/* See fixture.h. */
#include "fixture.h"

#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

struct device_driver *d;
char path[64];

size_t processes(void)
{
    struct pid_list l = {0};
    assert_int_equal(d->ops->processes(d, &l, NULL), 0);
    size_t n = l.n;
    for (size_t i = 0; i < n; i++)
        assert_int_equal(l.v[i], getpid());
    pid_list_free(&l);
    return n;
}

int begin(void **state)
{
    struct error err;
    snprintf(path, sizeof(path), "/tmp/cede-device-gate-%d", getpid());
    assert_int_equal(device_gate.open(path, &d, &err), 0);
    assert_int_equal(access(path, F_OK), -1); /* not before it is asked */
    assert_int_equal(processes(), 0);
    return 0;
}

int end(void **state)
{
    device_close(d);
    assert_int_equal(access(path, F_OK), -1);
    return 0;
}

int connect_raw(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

bool closed(int fd)
{
    char buf[512];
    ssize_t n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

struct pages welcomed(void)
{
    struct pages p = {.fd = connect_raw()};
    struct gate_msg m = {.type = GATE_HELLO, .magic = GATE_MAGIC, .version = GATE_VERSION};
    struct iovec io = {&m, sizeof(m)};
    char c[CMSG_SPACE(2 * sizeof(int))];
    struct msghdr h = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof(c)};
    assert_int_equal(send(p.fd, &m, sizeof(m), 0), sizeof(m));
    processes(); /* accepts */
    processes(); /* hears */
    assert_int_equal(recvmsg(p.fd, &h, MSG_CMSG_CLOEXEC), sizeof(m));
    assert_int_equal(m.type, GATE_WELCOME);
    int fds[2];
    memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&h)), sizeof(fds));
    p.control_fd = fds[0];
    p.slot_fd = fds[1];
    p.control = mmap(NULL, GATE_PAGE, PROT_READ, MAP_SHARED, p.control_fd, 0);
    p.slot = mmap(NULL, GATE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, p.slot_fd, 0);
    assert_true(p.control != MAP_FAILED && p.slot != MAP_FAILED);
    return p;
}

void leave(struct pages *p)
{
    close(p->fd);
    close(p->control_fd);
    close(p->slot_fd);
    munmap((void *)(uintptr_t)p->control, GATE_PAGE);
    munmap(p->slot, GATE_PAGE);
    processes();
}

void say_device(struct pages *p, unsigned number, const char *name)
{
    struct gate_msg m = {.type = GATE_DEVICE, .device = number, .level = 1};
    snprintf(m.name, sizeof(m.name), "%s", name);
    snprintf(m.id, sizeof(m.id), "id of %s", name);
    assert_int_equal(send(p->fd, &m, sizeof(m), 0), sizeof(m));
    processes();
}

struct group_list scan(pid_t pid)
{
    struct group_list l = {0};
    struct proc_stat st;
    assert_int_equal(proc_stat_read(pid, &st), 0);
    assert_int_equal(d->ops->scan(d, st.id, &l, NULL), 0);
    return l;
}

/* A loop of the caller's. */
static int loop = -1;

static void loop_add(void *arg, int fd)
{
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    assert_int_equal(epoll_ctl(loop, EPOLL_CTL_ADD, fd, &e), 0);
}

static void loop_remove(void *arg, int fd)
{
    assert_int_equal(epoll_ctl(loop, EPOLL_CTL_DEL, fd, NULL), 0);
}

void loop_begin(void)
{
    loop = epoll_create1(EPOLL_CLOEXEC);
    assert_true(loop >= 0);
    d->ops->watch(d, &(struct device_watcher){.add = loop_add, .remove = loop_remove});
}

void loop_end(void)
{
    struct epoll_event e;
    d->ops->watch(d, NULL);
    assert_int_equal(epoll_wait(loop, &e, 1, 0), 0); /* nothing is left in it */
    close(loop);
}

int demand(void)
{
    struct demand_list l = {0};
    assert_int_equal(d->ops->demand(d, &l, NULL), 0);
    int last = l.n ? l.v[l.n - 1].wants : -1;
    demand_list_free(&l);
    return last;
}

/* One turn of the loop. Returns how many descriptors were readable. */
int loop_turn(void)
{
    struct epoll_event e[8];
    int n = epoll_wait(loop, e, 8, 0);
    assert_true(n >= 0);
    for (int i = 0; i < n; i++)
        d->ops->ready(d, e[i].data.fd);
    return n;
}
