/* cede-softgpu: runs one engine for each software GPU in real time, for client processes.
 *
 * One thread, one epoll loop. Time on the GPUs is CLOCK_MONOTONIC; what happens inside them happens
 * at its exact time, however late this process was scheduled: it only learns and reports it later.
 * What clients send is stamped when it is received.
 *
 * A connection is a context (one compute and three copy groups, gone with the connection) or a
 * control connection; what was set through one of those stays when it closes, as on a real GPU.
 * No client can hold the server up: it never waits for one, keeps at most SOFT_OUTSTANDING_MAX
 * completions for one that does not read, and closes the connection of one that breaks proto.h.
 * It must not decide anything about scheduling. */
#include "device/soft/server.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "device/ops.h"
#include "device/soft/client.h"
#include "device/soft/engine.h"
#include "device/soft/proto.h"
#include "device/soft/server_impl.h"
#include "lib/procfs.h"
#include "lib/util.h"

#define READS_A_TURN 64 /* messages of one connection before the others get their turn */

/* ---- connections ---- */

static int watch(struct server *s, int op, int fd, uint32_t events, void *ptr)
{
    struct epoll_event ev = {.events = events, .data.ptr = ptr};
    return epoll_ctl(s->epoll, op, fd, &ev) < 0 ? -errno : 0;
}

static bool same_gang(const struct conn *a, const struct conn *b)
{
    return a != b && b->kind == CONN_CONTEXT && a->uid == b->uid && a->gang == b->gang;
}

static void context_end(struct server *s, struct conn *c)
{
    struct gpu *g = &s->gpus[c->gpu];
    for (unsigned i = 0; i < SOFT_CONTEXT_GROUPS; i++) {
        softgpu_group_remove(s->fabric.engines[c->gpu], c->groups[i], s->now_ns);
        g->owners[c->groups[i]] = NULL;
    }
    g->contexts--;
    soft_memory_end(s, c);
    /* Collectives of the others are never complete: their kernels occupy the GPU in their turns
     * until their programs end. */
    for (struct conn *o = s->conns.next; c->gang && o != &s->conns; o = o->next) {
        if (same_gang(c, o))
            o->gang = 0;
    }
}

/* Ends a connection at once; the struct goes when no event of this round can point to it. */
static void conn_end(struct server *s, struct conn *c, const char *why)
{
    if (c->kind == CONN_DEAD)
        return;
    if (why)
        fprintf(stderr, "cede-softgpu: closed the connection of process %d: %s\n", c->proc.pid,
                why);
    if (c->kind == CONN_CONTEXT)
        context_end(s, c);
    c->kind = CONN_DEAD;
    close(c->fd);
    if (!s->accepting)
        s->accepting = watch(s, EPOLL_CTL_MOD, s->listener, EPOLLIN, &s->listener) == 0;
}

static void conns_bury(struct server *s)
{
    for (struct conn *c = s->conns.next, *next; c != &s->conns; c = next) {
        next = c->next;
        if (c->kind != CONN_DEAD)
            continue;
        c->prev->next = c->next;
        c->next->prev = c->prev;
        free(c);
    }
}

static void conn_append(struct server *s, struct conn *c)
{
    c->prev = s->conns.prev;
    c->next = &s->conns;
    c->prev->next = c;
    s->conns.prev = c;
}

static void accept_conn(struct server *s)
{
    _cleanup_close_ int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        /* No descriptors left: waiting connections would wake us for ever. */
        if ((errno == EMFILE || errno == ENFILE) &&
            watch(s, EPOLL_CTL_MOD, s->listener, 0, &s->listener) == 0)
            s->accepting = false;
        return;
    }
    struct ucred cred;
    socklen_t len = sizeof(cred);
    struct proc_stat st;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 ||
        proc_stat_read(cred.pid, &st) < 0)
        return;
    /* Not calloc: most of it is the ring. */
    struct conn *c = malloc(sizeof(*c));
    if (!c)
        return;
    memset(c, 0, offsetof(struct conn, unsent));
    c->kind = CONN_NEW;
    c->proc = st.id;
    c->uid = cred.uid;
    c->reply_ns = SOFTGPU_NEVER;
    if (watch(s, EPOLL_CTL_ADD, fd, EPOLLIN, c) < 0) {
        free(c);
        return;
    }
    c->fd = TAKE_FD(fd);
    conn_append(s, c);
}

/* 0, -EAGAIN (socket full) or another error, after which the connection has ended. */
static int conn_send(struct server *s, struct conn *c, struct soft_msg *m)
{
    m->version = SOFT_VERSION;
    if (send(c->fd, m, soft_msg_size(m->type), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        return 0;
    int e = errno;
    if (e == EAGAIN)
        return -EAGAIN;
    conn_end(s, c, NULL);
    return -e;
}

/* An answer to a client that asks one thing at a time always fits, or the client does not read. */
static void conn_answer(struct server *s, struct conn *c, struct soft_msg *m)
{
    if (conn_send(s, c, m) == -EAGAIN)
        conn_end(s, c, "it does not read its answers");
}

static void conn_answer_result(struct server *s, struct conn *c, int result)
{
    struct soft_msg m = soft_result(s, result);
    conn_answer(s, c, &m);
}

/* ---- contexts ---- */

/* The first rank begins the gang. */
static int join_gang(struct server *s, struct conn *c)
{
    uint32_t present = 0;
    if (c->gang == 0 || c->ranks < 2 || c->ranks > s->fabric.n)
        return -EINVAL;
    for (const struct conn *o = s->conns.next; o != &s->conns; o = o->next) {
        if (!same_gang(c, o))
            continue;
        if (o->ranks != c->ranks || o->gpu == c->gpu || ++present == c->ranks)
            return -EINVAL;
        c->gang_number = o->gang_number;
    }
    if (present == 0)
        c->gang_number = s->gangs++;
    return 0;
}

static int open_context(struct server *s, struct conn *c, const struct soft_msg *m)
{
    uint32_t gpu = m->u.open.gpu;
    if (gpu >= s->fabric.n)
        return -ENODEV;
    struct gpu *g = &s->gpus[gpu];
    struct softgpu *e = s->fabric.engines[gpu];
    c->gpu = gpu;
    c->gang = m->u.open.gang;
    c->ranks = m->u.open.ranks;
    if ((c->gang || c->ranks) && join_gang(s, c) < 0)
        return -EINVAL;
    if (g->contexts * SOFT_CONTEXT_GROUPS + SOFT_CONTEXT_GROUPS > g->owners_cap) {
        /* Doubled, so that growing costs little in the long run. The engine rounds its groups up:
         * group numbers are the lowest free ones, so they stay below what was asked for. */
        uint32_t n = (g->contexts + 1) * 2;
        int r = softgpu_reserve(e, n * SOFT_CONTEXT_GROUPS, n * SOFT_OUTSTANDING_MAX);
        struct conn **p =
            r == 0 ? reallocarray(g->owners, n * SOFT_CONTEXT_GROUPS, sizeof(struct conn *)) : NULL;
        if (!p)
            return -ENOMEM;
        g->owners = p;
        g->owners_cap = n * SOFT_CONTEXT_GROUPS;
    }
    for (unsigned i = 0; i < SOFT_CONTEXT_GROUPS; i++) {
        int r = softgpu_group_add(e, s->now_ns, &c->groups[i]);
        while (r < 0 && i-- > 0)
            softgpu_group_remove(e, c->groups[i], s->now_ns);
        if (r < 0)
            return r;
        g->owners[c->groups[i]] = c;
    }
    g->contexts++;
    c->kind = CONN_CONTEXT;
    c->memory_bytes = 0;
    c->swap_at_ns = SOFTGPU_NEVER;
    c->key = s->next_key;
    s->next_key += SOFT_CONTEXT_GROUPS;
    /* To the end of the list: that keeps it in the order of the keys. */
    c->prev->next = c->next;
    c->next->prev = c->prev;
    conn_append(s, c);
    return 0;
}

static int send_completion(struct server *s, struct conn *c, const struct softgpu_completion *k)
{
    struct soft_msg m = {
        .type = SOFT_COMPLETION,
        .u.completion = {k->cookie, k->submit_ns, k->start_ns, k->end_ns},
    };
    int r = conn_send(s, c, &m);
    if (r == 0)
        c->outstanding--;
    return r;
}

static void conn_deliver(struct server *s, struct conn *c, const struct softgpu_completion *k)
{
    if (c->unsent_n == 0 && send_completion(s, c, k) != -EAGAIN)
        return;
    /* Room is certain: the ring holds as many as may be outstanding. */
    c->unsent[(c->unsent_first + c->unsent_n++) % SOFT_OUTSTANDING_MAX] = *k;
    if (c->unsent_n == 1)
        watch(s, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLOUT, c);
}

static void deliver_unsent(struct server *s, struct conn *c)
{
    while (c->unsent_n > 0) {
        int r = send_completion(s, c, &c->unsent[c->unsent_first]);
        if (r < 0)
            return;
        c->unsent_first = (c->unsent_first + 1) % SOFT_OUTSTANDING_MAX;
        c->unsent_n--;
    }
    watch(s, EPOLL_CTL_MOD, c->fd, EPOLLIN, c);
}

/* False: against the rules. */
static bool conn_submit(struct server *s, struct conn *c, const struct soft_msg *m)
{
    struct softgpu_kernel k = {m->u.submit.stream,
                               m->u.submit.duration_ns,
                               m->u.submit.sm_fraction,
                               m->u.submit.cookie,
                               c->ranks,
                               (uint64_t)c->gang_number << 32 | c->collectives++};
    /* A client that does not read its completions ends here too. */
    if (c->outstanding >= SOFT_OUTSTANDING_MAX || m->u.submit.zero != 0)
        return false;
    if (softgpu_submit(s->fabric.engines[c->gpu], c->groups[0], &k, s->now_ns) < 0)
        return false;
    c->outstanding++;
    return true;
}

/* ---- messages, time ---- */

/* False: against the rules. `out`: to be sent, if it has a type. */
static bool conn_handle_control(struct server *s, struct conn *c, const struct soft_msg *m,
                                struct soft_msg *out)
{
    if (c->reply_ns != SOFTGPU_NEVER)
        return false; /* one at a time */
    switch (m->type) {
    case SOFT_LIST:
        return soft_list(s, m, out);
    case SOFT_MEMORY:
        return soft_memory(s, m, out);
    case SOFT_SWAP:
        return soft_swap_step(s, c, m);
    case SOFT_TIMESLICE:
    case SOFT_SUSPEND:
    case SOFT_RESUME:
        return soft_control(s, c, m);
    default:
        return false;
    }
}

static bool conn_handle(struct server *s, struct conn *c, const struct soft_msg *m, size_t n)
{
    struct soft_msg out = {.type = 0};
    bool ok = true;
    if (n < offsetof(struct soft_msg, u) || m->version != SOFT_VERSION ||
        n != soft_msg_size(m->type))
        return false;
    switch (c->kind) {
    case CONN_NEW:
        ok = m->type == SOFT_OPEN_CONTEXT || m->type == SOFT_OPEN_CONTROL;
        if (m->type == SOFT_OPEN_CONTROL)
            c->kind = CONN_CONTROL;
        if (ok)
            out = soft_result(s, m->type == SOFT_OPEN_CONTEXT ? open_context(s, c, m) : 0);
        break;
    case CONN_CONTEXT:
        ok = m->type == SOFT_ALLOC ? soft_alloc(s, c, m, &out)
                                   : m->type == SOFT_SUBMIT && conn_submit(s, c, m);
        break;
    case CONN_CONTROL:
        ok = conn_handle_control(s, c, m, &out);
        break;
    case CONN_DEAD:
        break;
    }
    if (ok && out.type)
        conn_answer(s, c, &out);
    return ok;
}

static void pass_time(struct server *s)
{
    s->now_ns = monotonic_ns();
    fabric_advance(&s->fabric, s->now_ns);
}

static void conn_read(struct server *s, struct conn *c)
{
    for (int i = 0; i < READS_A_TURN && c->kind != CONN_DEAD; i++) {
        struct soft_msg m;
        /* MSG_TRUNC: the real length, also of one that is too long. */
        ssize_t n = recv(c->fd, &m, sizeof(m), MSG_DONTWAIT | MSG_TRUNC);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        pass_time(s); /* not earlier: nothing may count as submitted before it was sent */
        if (n <= 0)
            conn_end(s, c, NULL);
        else if (!conn_handle(s, c, &m, (size_t)n))
            conn_end(s, c, "a message against the protocol, or too many kernels outstanding");
    }
}

static void catch_up(struct server *s)
{
    pass_time(s);
    for (unsigned i = 0; i < s->fabric.n; i++) {
        struct softgpu_completion k;
        while (softgpu_pop_completion(s->fabric.engines[i], &k)) {
            /* Ending a connection removes its groups, and with them its completions: whoever comes
             * out here has an owner. */
            conn_deliver(s, s->gpus[i].owners[k.group], &k);
        }
    }
    soft_swap_due(s);
    for (struct conn *c = s->conns.next; c != &s->conns; c = c->next) {
        if (c->kind == CONN_CONTROL && c->reply_ns <= s->now_ns) {
            c->reply_ns = SOFTGPU_NEVER;
            conn_answer_result(s, c, c->result);
        }
    }
}

static void set_timer(struct server *s)
{
    uint64_t t = fabric_next_event_ns(&s->fabric);
    for (struct conn *c = s->conns.next; c != &s->conns; c = c->next) {
        if (c->kind == CONN_CONTROL || c->kind == CONN_CONTEXT)
            t = min_u64(t, c->kind == CONN_CONTROL ? c->reply_ns : c->swap_at_ns);
    }
    struct itimerspec when = {{0, 0}, {0, 0}}; /* off */
    if (t != SOFTGPU_NEVER) {
        when.it_value.tv_sec = (time_t)(t / NSEC_PER_SEC);
        when.it_value.tv_nsec = (long)(t % NSEC_PER_SEC);
    }
    timerfd_settime(s->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static int serve(struct server *s)
{
    for (;;) {
        struct epoll_event ev[64];
        catch_up(s);
        conns_bury(s);
        set_timer(s);
        int n = epoll_wait(s->epoll, ev, (int)ARRAY_SIZE(ev), -1);
        if (n < 0 && errno != EINTR)
            return -errno;
        for (int i = 0; i < n; i++) {
            struct conn *c = ev[i].data.ptr;
            if (ev[i].data.ptr == &s->signals)
                return 0;
            if (ev[i].data.ptr == &s->timer) {
                uint64_t times;
                (void)!read(s->timer, &times, sizeof(times));
            } else if (ev[i].data.ptr == &s->listener) {
                accept_conn(s);
            } else {
                if (c->kind != CONN_DEAD && (ev[i].events & EPOLLOUT))
                    deliver_unsent(s, c);
                if (c->kind != CONN_DEAD && (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
                    conn_read(s, c);
            }
        }
    }
}

/* ---- set-up ---- */

/* The socket's directory: made for this user only, or, if it is there, one in which no other user
 * can put a socket in our place. Returned open, to be locked while the socket is made. */
static int open_dir(const char *path, struct error *err)
{
    char dir[sizeof(((struct sockaddr_un *)0)->sun_path)] = ".";
    const char *slash = strrchr(path, '/');
    if (slash)
        snprintf(dir, sizeof(dir), "%.*s", (int)(slash == path ? 1 : slash - path), path);
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return error_set(err, -errno, "cannot make the directory %s: %s", dir, strerror(errno));
    _cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set(err, -errno, "cannot open the directory %s: %s", dir, strerror(errno));
    bool mine = st.st_uid == geteuid() || st.st_uid == 0;
    if (!mine || ((st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX)))
        return error_set(err, -EPERM, "others can write in %s: choose another --socket", dir);
    return TAKE_FD(fd);
}

static int make_socket(struct server *s, const char *path, struct error *err)
{
    struct stat st;
    if (strlen(path) >= sizeof(s->addr.sun_path))
        return error_set(err, -ENAMETOOLONG, "the socket's path is longer than %zu bytes: %s",
                         sizeof(s->addr.sun_path) - 1, path);
    s->addr.sun_family = AF_UNIX;
    memcpy(s->addr.sun_path, path, strlen(path) + 1);

    /* Locked: two servers that start at once must not both find the same stale socket. */
    _cleanup_close_ int dir = open_dir(path, err);
    if (dir < 0)
        return dir;
    if (flock(dir, LOCK_EX) < 0)
        return error_set(err, -errno, "cannot lock the directory of %s: %s", path, strerror(errno));

    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    _cleanup_close_ int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || probe < 0)
        return error_set(err, -errno, "cannot make a socket: %s", strerror(errno));
    if (lstat(path, &st) == 0) {
        if (!S_ISSOCK(st.st_mode))
            return error_set(err, -EEXIST, "%s is there and no socket: choose another --socket",
                             path);
        if (connect(probe, (struct sockaddr *)&s->addr, sizeof(s->addr)) == 0 ||
            errno != ECONNREFUSED)
            return error_set(err, -EADDRINUSE,
                             "a server has %s already: stop it or choose another --socket", path);
        if (unlink(path) < 0)
            return error_set(err, -errno, "cannot remove the stale socket %s: %s", path,
                             strerror(errno));
    }
    /* The mode before bind() is the file's from the first moment. */
    if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&s->addr, sizeof(s->addr)) < 0 ||
        lstat(path, &st) < 0 || listen(fd, SOMAXCONN) < 0)
        return error_set(err, -errno, "cannot listen on %s: %s", path, strerror(errno));
    s->inode = st.st_ino;
    s->listener = TAKE_FD(fd);
    return 0;
}

static int server_open(struct server *s, const char *path, unsigned ngpus, struct error *err)
{
    struct softgpu_params p;
    sigset_t set;
    int r = 0;
    /* Keys of an earlier server must not mean anything to this one: count from the time. No server
     * makes groups faster than one a nanosecond. */
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    s->next_key = (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;

    softgpu_params_h200(&p);
    for (struct fabric *f = &s->fabric; f->n < ngpus; f->n++) {
        p.seed = f->n + 1;
        r = softgpu_new(&p, SOFT_CONTEXT_GROUPS, SOFT_OUTSTANDING_MAX, &f->engines[f->n]);
        if (r < 0)
            return error_set(err, r, "cannot set up GPU %u: %s", f->n, strerror(-r));
    }
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    s->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (s->signals < 0 || s->timer < 0 || s->epoll < 0)
        return error_set(err, -errno, "cannot set up the event loop: %s", strerror(errno));
    r = make_socket(s, path, err);
    if (r < 0)
        return r;
    if ((r = watch(s, EPOLL_CTL_ADD, s->signals, EPOLLIN, &s->signals)) < 0 ||
        (r = watch(s, EPOLL_CTL_ADD, s->timer, EPOLLIN, &s->timer)) < 0 ||
        (r = watch(s, EPOLL_CTL_ADD, s->listener, EPOLLIN, &s->listener)) < 0)
        return error_set(err, r, "cannot set up the event loop: %s", strerror(-r));
    s->accepting = true;

    struct rlimit lim;
    if (getrlimit(RLIMIT_NOFILE, &lim) == 0) {
        lim.rlim_cur = lim.rlim_max; /* a descriptor for each client; failing, there are fewer */
        setrlimit(RLIMIT_NOFILE, &lim);
    }
    return 0;
}

static void server_close(struct server *s)
{
    struct stat st;
    if (s->listener >= 0 && lstat(s->addr.sun_path, &st) == 0 && st.st_ino == s->inode)
        unlink(s->addr.sun_path);
    for (struct conn *c = s->conns.next; c != &s->conns; c = c->next)
        conn_end(s, c, NULL);
    conns_bury(s);
    for (unsigned i = 0; i < s->fabric.n; i++) {
        softgpu_free(s->fabric.engines[i]);
        free(s->gpus[i].owners);
    }
    close_p(&s->epoll);
    close_p(&s->listener);
    close_p(&s->timer);
    close_p(&s->signals);
}

static const char usage[] =
    "Usage: cede-softgpu [--socket PATH] [--gpus N] [--memory SIZE] [--grants FILE]\n"
    "A software GPU with an H200's timing, for programs of this user: cede's demo and tests.\n"
    "\n"
    "  --socket PATH  where to listen (default: $CEDE_SOFT_SOCKET, else\n"
    "                 $XDG_RUNTIME_DIR/cede-softgpu, else /tmp/cede-softgpu-UID/socket)\n"
    "  --gpus N       how many GPUs (1..16, default 1)\n"
    "  --memory SIZE  of each, such as 40G (default 141 GB); there is nothing behind it\n"
    "  --grants FILE  for tests: only those may steer a program that kernel.yama.ptrace_scope=1\n"
    "                 would let, by the grants in FILE\n";

int soft_server_main(int argc, char **argv)
{
    static const struct option options[] = {
        {"socket", required_argument, NULL, 's'}, {"gpus", required_argument, NULL, 'g'},
        {"memory", required_argument, NULL, 'm'}, {"grants", required_argument, NULL, 'y'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
    };
    struct server s = {.epoll = -1, .listener = -1, .timer = -1, .signals = -1};
    char path[sizeof(s.addr.sun_path)];
    const char *where = NULL;
    uint64_t ngpus = 1, memory_bytes = SOFT_MEMORY_BYTES;
    s.conns.prev = s.conns.next = &s.conns;
    optind = 1;
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 's') {
            where = optarg;
        } else if (o == 'g') {
            if (parse_u64(optarg, 1, DEVICE_GPUS_MAX, &ngpus) < 0) {
                fprintf(stderr, "cede-softgpu: --gpus takes 1 to %d, not '%s'\n", DEVICE_GPUS_MAX,
                        optarg);
                return 2;
            }
        } else if (o == 'm') {
            if (parse_bytes(optarg, 1ULL << 50, &memory_bytes) < 0 || !memory_bytes) {
                fprintf(stderr,
                        "cede-softgpu: --memory takes a size such as 40G, up to 1024T, not '%s'\n",
                        optarg);
                return 2;
            }
        } else if (o == 'y') {
            s.grants = optarg;
        } else {
            fputs(usage, o == 'h' ? stdout : stderr);
            return o == 'h' ? 0 : 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "cede-softgpu: unexpected argument '%s'\n%s", argv[optind], usage);
        return 2;
    }

    struct error err = {""};
    int r = 0;
    if (!where) {
        r = soft_default_path(path, sizeof(path));
        if (r < 0)
            error_set(&err, r, "the default socket path is too long: use --socket");
        where = path;
    }
    for (unsigned i = 0; i < DEVICE_GPUS_MAX; i++)
        s.gpus[i].memory_bytes = memory_bytes;
    if (r == 0)
        r = server_open(&s, where, (unsigned)ngpus, &err);
    if (r == 0) {
        printf("listening on %s\n", where);
        fflush(stdout);
        r = serve(&s);
        if (r < 0)
            error_set(&err, r, "the event loop failed: %s", strerror(-r));
    }
    server_close(&s);
    if (r < 0)
        fprintf(stderr, "cede-softgpu: %s\n", err.text);
    return r < 0 ? 1 : 0;
}
