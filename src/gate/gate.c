/* See gate.h. One connection a process; a thread of its own waits for its end and tries again, and
 * says when work has ended that is not worth saying at once.
 *
 * The two pages are mapped over zeroed memory of this process and replaced by such memory again
 * when the daemon goes: readers need no lock, and find an open gate. */
#include "gate/gate.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "lib/take_fds.h"
#include "lib/util.h"

#define CONNECT_MS 100
#define RETRY_MS   1000
#define CHECK_MS   5000 /* are the descriptors that the thread sleeps on its own still? */
#define LOOK_NS    (50 * NSEC_PER_MSEC) /* a waiting thread: is the daemon there still? */
#define HUNG_NS    (5 * NSEC_PER_SEC)   /* it has not moved its beat: it hangs */
#define STALL_NS   (100 * NSEC_PER_MSEC)
/* The next command is handed over so long before the device runs dry: a thread's way out of sleep.
 */
#define LEAD_NS      (200 * NSEC_PER_USEC)
#define SHORT_NS     (1000 * NSEC_PER_USEC) /* commands whose end comes sooner than a clock's */
#define LINGER_MS    2
#define LINGER_BELOW (NSEC_PER_SEC / 2) /* jobs with a smaller limit than this do not hurry */
#define GIVE_UP_NS   (10 * NSEC_PER_SEC)
#define GIVE_UP_HOST (20 * NSEC_PER_MSEC)

struct account {
    uint32_t queued, waiting;
    uint32_t ends; /* a futex: changes with each end of work */
    uint32_t sleepers;
    uint64_t queued_ns;
    uint64_t progress_ns; /* when work last ended, or began with an empty device */
    bool wants;           /* as the daemon was told */
};

/* A descriptor of ours. A program may close what it did not open, and get its number for something
 * else: that is the program's then, and not touched. */
struct own_fd {
    int fd; /* -1: none */
    dev_t dev;
    ino_t ino;
};

static struct gate_control nobody;
struct gate_control *gate_page = &nobody;

static struct gate {
    pthread_mutex_t lock;
    struct gate_slot *slot;
    struct own_fd link;
    struct own_fd wake[2]; /* a pipe, from whoever changes `wants` to the keeper */
    bool started, dead;
    bool hung; /* the daemon was found hanging when its beat was hung_beat */
    uint32_t hung_beat;
    unsigned ndevices;
    struct gate_msg devices[GATE_DEVICES];
    struct account v[GATE_DEVICES];
    int host_waits;
    uint32_t threshold; /* CEDE_GATE_THRESHOLD: that many commands instead of a time */
} g = {.lock = PTHREAD_MUTEX_INITIALIZER, .link = {.fd = -1}, .wake = {{.fd = -1}, {.fd = -1}}};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static void futex_wait(const void *word, uint32_t value, uint64_t ns, bool shared)
{
    struct timespec t = {(time_t)(ns / NSEC_PER_SEC), (long)(ns % NSEC_PER_SEC)};
    syscall(SYS_futex, word, FUTEX_WAIT | (shared ? 0 : FUTEX_PRIVATE_FLAG), value, &t, NULL, 0);
}

static void futex_wake(const void *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, NULL, NULL, 0);
}

/* ---- the connection -------------------------------------------------------------------------- */

static bool ours(const struct own_fd *o)
{
    struct stat st;
    return o->fd >= 0 && fstat(o->fd, &st) == 0 && st.st_dev == o->dev && st.st_ino == o->ino;
}

static void disown(struct own_fd *o)
{
    if (ours(o))
        close(o->fd);
    o->fd = -1;
}

static void own(struct own_fd *o, int fd)
{
    struct stat st = {0};
    fstat(fd, &st);
    *o = (struct own_fd){.fd = fd, .dev = st.st_dev, .ino = st.st_ino};
}

static bool can_wake(void)
{
    return ours(&g.wake[0]) && ours(&g.wake[1]);
}

static bool make_wake(void)
{
    int ends[2];
    disown(&g.wake[0]);
    disown(&g.wake[1]);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return false;
    own(&g.wake[0], ends[0]);
    own(&g.wake[1], ends[1]);
    return true;
}

static bool cover(void *at, int fd, int prot)
{
    return mmap(at, GATE_PAGE, prot,
                MAP_FIXED | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED), fd,
                0) != MAP_FAILED;
}

static void disconnect(void)
{
    disown(&g.link);
    cover(gate_page, -1, PROT_READ | PROT_WRITE);
    cover(g.slot, -1, PROT_READ | PROT_WRITE);
    for (unsigned i = 0; i < GATE_DEVICES; i++) {
        g.v[i].wants = false;
        g.v[i].ends++;
        futex_wake(&g.v[i].ends);
    }
}

/* $CEDE_GATE (cede run sets it), else the system's daemon. */
static int reach(void)
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

/* Takes the pages; false: it is not a daemon of this version. */
static bool take_welcome(int fd)
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
    int fds[2];
    if (n < 0 || !take_fds(&h, fds, 2))
        return false;
    bool ok = n == (ssize_t)sizeof(m) && m.type == GATE_WELCOME && m.magic == GATE_MAGIC &&
              m.version == GATE_VERSION && maps_safely(fds[0], GATE_PAGE) &&
              maps_safely(fds[1], GATE_PAGE) && cover(g.slot, fds[1], PROT_READ | PROT_WRITE) &&
              cover(gate_page, fds[0], PROT_READ);
    close(fds[0]);
    close(fds[1]);
    return ok;
}

/* With the lock held. Waits for the daemon's answer for up to CONNECT_MS. */
static void connect_now(void)
{
    int fd = reach();
    if (fd < 0)
        return;
    own(&g.link, fd);
    struct gate_msg hello = {.type = GATE_HELLO, .magic = GATE_MAGIC, .version = GATE_VERSION};
    struct pollfd p = {.fd = fd, .events = POLLIN};
    bool ok = send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) == (ssize_t)sizeof(hello) &&
              poll(&p, 1, CONNECT_MS) == 1 && take_welcome(fd);
    for (unsigned i = 0; i < g.ndevices && ok; i++)
        ok = send(fd, &g.devices[i], sizeof(g.devices[i]), MSG_NOSIGNAL) > 0;
    if (!ok)
        disconnect();
}

/* ---- what the daemon is told ----------------------------------------------------------------- */

static void say(unsigned i, bool wants)
{
    struct account *a = &g.v[i];
    struct gate_msg m = {.type = GATE_DEMAND, .device = i};
    if (a->wants == wants || g.link.fd < 0)
        return;
    if (!ours(&g.link)) {
        disconnect();
        return;
    }
    a->wants = wants;
    atomic_store(&g.slot->device[i].wants, wants);
    /* A full socket: it has messages to read, and will look at the slot. */
    send(g.link.fd, &m, 8, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (wants && ours(&g.wake[1]) && write(g.wake[1].fd, "", 1) < 0)
        return; /* full: it will wake up */
}

static bool hurries(unsigned i)
{
    return gate_limit_ns((int)i) >= LINGER_BELOW;
}

/* With the lock held, after queued or waiting has changed. */
static void review(unsigned i)
{
    struct account *a = &g.v[i];
    if (a->queued || a->waiting)
        say(i, true);
    else if (hurries(i))
        say(i, false);
}

/* Ends that nobody hurries to tell, and work that does not end because it waits for the host.
 * Returns how long there is nothing to look after, in ms; -1: until woken. */
static int look_after(void)
{
    uint64_t now = now_ns();
    int next = -1;
    for (unsigned i = 0; i < g.ndevices; i++) {
        struct account *a = &g.v[i];
        if (!a->wants)
            continue;
        bool idle = !a->queued && !a->waiting;
        uint64_t since = now - a->progress_ns;
        bool stalled = a->queued && since > (g.host_waits > 0 ? GIVE_UP_HOST : GIVE_UP_NS);
        if ((idle && since >= LINGER_MS * NSEC_PER_MSEC) || stalled) {
            say(i, false);
            continue;
        }
        int ms = idle || g.host_waits > 0 || !hurries(i) ? LINGER_MS : 1000;
        next = next < 0 || ms < next ? ms : next;
    }
    return next;
}

static void *keeper(void *unused)
{
    pthread_setname_np(pthread_self(), "cede-gate");
    pthread_mutex_lock(&g.lock);
    for (;;) {
        int ms = look_after();
        struct pollfd p[2] = {
            {.fd = g.link.fd, .events = POLLIN},
            {.fd = can_wake() || make_wake() ? g.wake[0].fd : -1, .events = POLLIN}};
        if (g.link.fd < 0 || p[1].fd < 0)
            ms = RETRY_MS;
        ms = ms < 0 ? CHECK_MS : ms;
        pthread_mutex_unlock(&g.lock);
        poll(p, 2, ms);
        pthread_mutex_lock(&g.lock);
        char some[64];
        if (p[1].revents && ours(&g.wake[0]) && read(g.wake[0].fd, some, sizeof(some)) < 0)
            p[1].revents = 0; /* nothing to read: somebody else has */
        if (g.link.fd < 0)
            connect_now();
        else if (!ours(&g.link) || (p[0].fd == g.link.fd && p[0].revents))
            disconnect(); /* it says nothing: that is its end */
    }
    return NULL;
}

/* ---- beginning, forking ---------------------------------------------------------------------- */

static void before_fork(void)
{
    pthread_mutex_lock(&g.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&g.lock);
}

/* The child has no keeper and must not write into its parent's slot: it is not scheduled by this
 * connection. APIs of accelerators do not outlive a fork; a child that begins anew is found again.
 */
static void in_child(void)
{
    disconnect();
    disown(&g.wake[0]);
    disown(&g.wake[1]);
    g.started = false;
    g.ndevices = 0;
    memset(g.v, 0, sizeof(g.v));
    pthread_mutex_init(&g.lock, NULL);
}

static bool start(void)
{
    if (g.started || g.dead)
        return g.started;
    if (gate_page == &nobody) {
        char *pages =
            mmap(NULL, 2 * GATE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        g.dead = pages == MAP_FAILED || pthread_atfork(before_fork, after_fork, in_child) != 0;
        if (g.dead)
            return false;
        g.slot = (struct gate_slot *)(pages + GATE_PAGE);
        gate_page = (struct gate_control *)pages;
        const char *n = secure_getenv("CEDE_GATE_THRESHOLD");
        g.threshold = n ? (uint32_t)strtoul(n, NULL, 10) : 0;
    }
    if (!can_wake() && !make_wake())
        return false;
    connect_now();
    pthread_t t;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old); /* the program's signals are not for us */
    g.started = pthread_create(&t, NULL, keeper, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (g.started)
        pthread_detach(t);
    else
        disconnect();
    return g.started;
}

int gate_device_add(const char *name, const char *id, unsigned level)
{
    int number = -1, saved = errno;
    struct gate_msg m = {.type = GATE_DEVICE, .level = level};
    strncpy(m.name, name, sizeof(m.name) - 1);
    strncpy(m.id, id, sizeof(m.id) - 1);
    pthread_mutex_lock(&g.lock);
    start();
    for (unsigned i = 0; i < g.ndevices && number < 0; i++) {
        if (strcmp(g.devices[i].name, m.name) == 0 && strcmp(g.devices[i].id, m.id) == 0)
            number = (int)i;
    }
    if (number < 0 && g.ndevices < GATE_DEVICES) {
        number = (int)g.ndevices++;
        m.device = (uint32_t)number;
        g.devices[number] = m;
        if (ours(&g.link))
            send(g.link.fd, &m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    pthread_mutex_unlock(&g.lock);
    errno = saved;
    return number;
}

/* ---- submissions ----------------------------------------------------------------------------- */

bool gate_device_active(int device)
{
    return atomic_load_explicit(&gate_page->device[device].state, memory_order_relaxed) != 0;
}

uint64_t gate_limit_ns(int device)
{
    uint32_t us = atomic_load_explicit(&gate_page->device[device].limit_us, memory_order_relaxed);
    return us ? us * NSEC_PER_USEC : UINT64_MAX;
}

/* Not by a daemon that hangs. */
static bool closed(int device)
{
    uint32_t s = atomic_load_explicit(&gate_page->device[device].state, memory_order_acquire);
    return s & GATE_CLOSED &&
           !(__atomic_load_n(&g.hung, __ATOMIC_RELAXED) &&
             atomic_load(&gate_page->beat) == __atomic_load_n(&g.hung_beat, __ATOMIC_RELAXED));
}

/* Without the lock. The daemon's end is seen by the keeper, which opens the page. */
static void wait_open(int device)
{
    uint32_t beat = atomic_load(&gate_page->beat);
    uint64_t alive = now_ns();
    while (closed(device)) {
        uint32_t state = atomic_load(&gate_page->device[device].state);
        if (state & GATE_CLOSED)
            futex_wait(&gate_page->device[device].state, state, LOOK_NS, true);
        uint32_t b = atomic_load(&gate_page->beat);
        uint64_t now = now_ns();
        if (b != beat)
            alive = now;
        beat = b;
        if (now - alive > HUNG_NS) {
            __atomic_store_n(&g.hung_beat, b, __ATOMIC_RELAXED);
            __atomic_store_n(&g.hung, true, __ATOMIC_RELAXED);
        }
    }
}

void gate_pass(int device)
{
    if (!closed(device))
        return;
    int saved = errno;
    pthread_mutex_lock(&g.lock);
    g.v[device].waiting++;
    review((unsigned)device);
    pthread_mutex_unlock(&g.lock);
    wait_open(device);
    pthread_mutex_lock(&g.lock);
    g.v[device].waiting--;
    review((unsigned)device);
    pthread_mutex_unlock(&g.lock);
    errno = saved;
}

/* What is queued behind the running command and the rest of that one: of a short one nothing,
 * because its end is told sooner than a clock would wake anybody. With the lock held. */
static uint64_t behind(const struct account *a, uint64_t now, bool *is_short)
{
    uint64_t each = a->queued ? a->queued_ns / a->queued : 0, done = now - a->progress_ns;
    *is_short = each < SHORT_NS;
    return a->queued_ns - (*is_short ? each : min_u64(done, each));
}

/* How long until this much more may be queued; 0: now. With the lock held. */
static uint64_t too_much(const struct account *a, int device, uint64_t est_ns, uint64_t now)
{
    bool is_short;
    if (!a->queued)
        return 0;
    if (g.threshold)
        return a->queued < g.threshold ? 0 : STALL_NS;
    uint64_t limit = gate_limit_ns(device), left = behind(a, now, &is_short);
    if (left <= LEAD_NS || (est_ns < limit && left <= limit - est_ns))
        return 0;
    return is_short ? STALL_NS : left - LEAD_NS;
}

/* Whether an end of work is worth waking those who wait for room: each time would take the time of
 * a device that is this processor. */
static bool room(const struct account *a, int device)
{
    bool is_short;
    uint64_t limit = gate_limit_ns(device), left = behind(a, a->progress_ns, &is_short);
    return g.threshold || !a->queued || (is_short && left <= max_u64(LEAD_NS, limit) / 2);
}

/* Called and left with the lock held: until there is room, or work that is queued does not move. */
static void wait_room(int device, uint64_t est_ns, void (**flush)(void *), void *arg)
{
    struct account *a = &g.v[device];
    uint64_t begun = now_ns(), ns;
    uint32_t ends = a->ends;
    while ((ns = too_much(a, device, est_ns, now_ns())) > 0 && !closed(device)) {
        uint64_t now = now_ns();
        if (a->ends != ends)
            begun = now;
        ends = a->ends;
        if (now - begun > max_u64(STALL_NS, 2 * a->queued_ns) || g.host_waits > 0)
            break;
        a->sleepers++;
        pthread_mutex_unlock(&g.lock);
        if (*flush)
            (*flush)(arg);
        *flush = NULL;
        futex_wait(&a->ends, ends, min_u64(ns, STALL_NS), false);
        pthread_mutex_lock(&g.lock);
        a->sleepers--;
    }
}

void gate_admit(int device, uint64_t est_ns, bool may_wait, void (*flush)(void *), void *arg)
{
    struct account *a = &g.v[device];
    int saved = errno;
    pthread_mutex_lock(&g.lock);
    a->waiting++;
    review((unsigned)device);
    while (may_wait) {
        if (closed(device)) {
            pthread_mutex_unlock(&g.lock);
            if (flush)
                flush(arg);
            flush = NULL;
            wait_open(device);
            pthread_mutex_lock(&g.lock);
            continue;
        }
        wait_room(device, est_ns, &flush, arg);
        if (!closed(device))
            break;
    }
    a->waiting--;
    if (!a->queued)
        a->progress_ns = now_ns();
    a->queued++;
    a->queued_ns += est_ns;
    review((unsigned)device);
    pthread_mutex_unlock(&g.lock);
    errno = saved;
}

void gate_done(int device, uint64_t est_ns, uint64_t ns)
{
    struct account *a = &g.v[device];
    int saved = errno;
    pthread_mutex_lock(&g.lock);
    if (a->queued) { /* else it was queued before a fork */
        a->queued--;
        a->queued_ns -= min_u64(est_ns, a->queued_ns);
    }
    a->progress_ns = now_ns();
    a->ends++;
    atomic_fetch_add_explicit(&g.slot->device[device].busy_ns, ns, memory_order_relaxed);
    review((unsigned)device);
    if (a->sleepers && room(a, device))
        futex_wake(&a->ends);
    pthread_mutex_unlock(&g.lock);
    errno = saved;
}

void gate_queued(int device, uint64_t ns)
{
    struct account *a = &g.v[device];
    int saved = errno;
    pthread_mutex_lock(&g.lock);
    if (ns < a->queued_ns || !a->queued)
        a->progress_ns = now_ns();
    a->queued = ns > 0;
    a->queued_ns = ns;
    review((unsigned)device);
    pthread_mutex_unlock(&g.lock);
    errno = saved;
}

int gate_host_waits(int change)
{
    if (!change)
        return __atomic_load_n(&g.host_waits, __ATOMIC_RELAXED);
    pthread_mutex_lock(&g.lock);
    int n = __atomic_add_fetch(&g.host_waits, change, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < g.ndevices && change < 0; i++) {
        g.v[i].progress_ns = now_ns();
        review(i);
    }
    pthread_mutex_unlock(&g.lock);
    return n;
}

void gate_pass_all(void)
{
    for (unsigned i = 0; i < __atomic_load_n(&g.ndevices, __ATOMIC_RELAXED); i++)
        gate_pass((int)i);
}
