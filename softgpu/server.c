/* cede-softgpu: runs one engine for each software GPU in real time, for client processes.
 *
 * One thread, one epoll loop. Time on the GPUs is CLOCK_MONOTONIC; what happens inside them happens
 * at its exact time, however late this process was scheduled: it only learns and reports it later.
 * What clients send is stamped when it is received, or has the time of its launch with it.
 *
 * A connection is a context (one compute and three copy groups, gone with the connection; clients
 * of an MPS server have the compute group together, gone with the last) or a control connection;
 * what was set through one of those stays when it closes, as on a real GPU. No client can hold the
 * server up: it never waits for one, keeps at most SOFT_OUTSTANDING_MAX completions for one that
 * does not read, and closes the connection of one that breaks proto.h. It must not decide anything
 * about scheduling. */
#include "softgpu/server.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/options.h"
#include "base/socket_path.h"
#include "base/unasked_fds.h"
#include "base/util.h"
#include "softgpu/server_impl.h"

#define READS_A_TURN 64            /* messages of one connection before the others get their turn */
#define MEMORY_BYTES 141000000000U /* an H200's */

/* ---- connections ---- */

/* Ends a connection at once; the struct goes when the round is over. */
static void conn_end(struct server *s, struct conn *c, const char *why)
{
    if (c->kind == CONN_DEAD)
        return;
    if (why)
        fprintf(stderr, "cede-softgpu: closed the connection of process %d: %s\n", c->proc.pid,
                why);
    if (c->kind == CONN_CONTEXT)
        context_end(s, c);
    if (c->kind == CONN_CONTROL)
        TAILQ_REMOVE(&s->controls, c, link);
    c->kind = CONN_DEAD;
    s->buries = true;
    epoll_ctl(s->polls, EPOLL_CTL_DEL, c->fd, NULL); /* a thread may close it later */
    unasked_close(c->fd);
    s->accepting = true;
}

static void conns_bury(struct server *s)
{
    struct conn *c;
    size_t n = 0;
    if (!s->buries)
        return;
    for_each_conn_from (s, 0, c) {
        if (c->kind == CONN_DEAD)
            free(c);
        else
            s->conns[n++] = c;
    }
    s->nconns = n;
    s->buries = false;
}

static void accept_conn(struct server *s)
{
    _cleanup_(unasked_close_p) int fd =
        accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        /* No descriptors left: waiting connections would wake us for ever. */
        s->accepting = errno != EMFILE && errno != ENFILE;
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
    struct epoll_event in = {.events = EPOLLIN, .data.ptr = c};
    if (!c || list_grow(&s->conns, s->nconns, &s->conns_cap, sizeof(void *)) < 0 ||
        epoll_ctl(s->polls, EPOLL_CTL_ADD, fd, &in) < 0) {
        free(c);
        return;
    }
    memset(c, 0, offsetof(struct conn, unsent));
    c->proc = st.id;
    c->uid = cred.uid;
    c->reply_ns = c->swap_at_ns = SOFTGPU_NEVER;
    c->key = s->next_key;
    s->next_key += SOFT_CONTEXT_GROUPS;
    c->fd = TAKE_FD(fd);
    s->conns[s->nconns++] = c;
}

/* 0, -EAGAIN (socket full) or another error, after which the connection has ended. */
static int conn_send(struct server *s, struct conn *c, struct soft_msg *m)
{
    m->version = SOFT_VERSION;
    if (send(c->fd, m, soft_msg_size(m->type), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        return 0;
    int e = errno;
    if (e != EAGAIN)
        conn_end(s, c, NULL);
    return -e;
}

/* An answer to a client that asks one thing at a time always fits, or the client does not read. */
static void conn_answer(struct server *s, struct conn *c, struct soft_msg *m)
{
    if (conn_send(s, c, m) == -EAGAIN)
        conn_end(s, c, "it does not read its answers");
}

static void deliver_unsent(struct server *s, struct conn *c)
{
    while (c->unsent_n > 0) {
        const struct softgpu_completion *k = &c->unsent[c->unsent_first];
        struct soft_msg m = {
            .type = SOFT_COMPLETION,
            .u.completion = {k->cookie, k->submit_ns, k->start_ns, k->end_ns},
        };
        if (conn_send(s, c, &m) < 0)
            return;
        c->outstanding--;
        c->unsent_first = (c->unsent_first + 1) % SOFT_OUTSTANDING_MAX;
        c->unsent_n--;
    }
}

/* What does not fit in its socket waits for that. */
static void deliver_waits(struct server *s, struct conn *c)
{
    const bool writes = c->unsent_n > 0;
    struct epoll_event e = {.events = writes ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = c};
    if (c->kind != CONN_DEAD && writes != c->writes &&
        epoll_ctl(s->polls, EPOLL_CTL_MOD, c->fd, &e) == 0)
        c->writes = writes;
}

/* Sends a completion, or keeps it until the client reads. Its context is there: with the connection
 * its groups go, and with them their completions. */
static void deliver(struct server *s, uint32_t gpu, const struct softgpu_completion *k)
{
    struct conn *c = s->gpus[gpu].by_group[k->group];
    /* Room is certain: the ring has as many as may be outstanding. */
    c->unsent[(c->unsent_first + c->unsent_n++) % SOFT_OUTSTANDING_MAX] = *k;
    if (c->unsent_n == 1)
        deliver_unsent(s, c);
    deliver_waits(s, c);
}

static bool control_open(struct server *s, struct conn *c, const struct soft_msg *m,
                         struct soft_msg *answer)
{
    c->kind = CONN_CONTROL;
    TAILQ_INSERT_TAIL(&s->controls, c, link);
    return soft_reply(s, 0, answer);
}

static bool control_watch(struct server *s, struct conn *c, const struct soft_msg *m,
                          struct soft_msg *answer)
{
    c->watches = true;
    return soft_reply(s, 0, answer);
}

/* Those who watch are told, as far as they read. */
static bool context_opens(struct server *s, struct conn *c, const struct soft_msg *m,
                          struct soft_msg *answer)
{
    if (!context_open(s, c, m, answer))
        return false;
    for (struct conn *o = TAILQ_FIRST(&s->controls), *next; o; o = next) {
        struct soft_msg opened = {.type = SOFT_OPENED, .u.opened = {c->proc.pid, c->gpu}};
        next = TAILQ_NEXT(o, link);
        if (c->kind == CONN_CONTEXT && o->watches)
            conn_send(s, o, &opened);
    }
    return true;
}

/* False: against the rules. */
static bool conn_handle(struct server *s, struct conn *c, const struct soft_msg *m, size_t n)
{
    static const struct {
        enum conn_kind from;
        soft_handler *handle;
    } messages[SOFT_TYPES] = {
        [SOFT_OPEN_CONTEXT] = {CONN_NEW, context_opens},
        [SOFT_OPEN_CONTROL] = {CONN_NEW, control_open},
        [SOFT_SUBMIT] = {CONN_CONTEXT, context_submit},
        [SOFT_ALLOC] = {CONN_CONTEXT, context_alloc},
        [SOFT_USES] = {CONN_CONTEXT, context_uses},
        [SOFT_LIST] = {CONN_CONTROL, control_list},
        [SOFT_MEMORY] = {CONN_CONTROL, control_memory},
        [SOFT_SWAP] = {CONN_CONTROL, control_swap},
        [SOFT_COUNTERS] = {CONN_CONTROL, control_counters},
        [SOFT_CONTROL] = {CONN_CONTROL, control_groups},
        [SOFT_SWITCHES] = {CONN_CONTROL, control_switches},
        [SOFT_WATCH] = {CONN_CONTROL, control_watch},
    };
    struct soft_msg answer = {.type = 0};
    if (n < offsetof(struct soft_msg, u) || m->version != SOFT_VERSION ||
        n != soft_msg_size(m->type) || !messages[m->type].handle ||
        messages[m->type].from != c->kind || c->reply_ns != SOFTGPU_NEVER ||
        !messages[m->type].handle(s, c, m, &answer))
        return false;
    if (answer.type)
        conn_answer(s, c, &answer);
    return true;
}

static void server_advance(struct server *s)
{
    s->now_ns = monotonic_ns();
    fabric_advance(&s->fabric, s->now_ns);
}

static void conn_read(struct server *s, struct conn *c)
{
    for (int i = 0; i < READS_A_TURN && c->kind != CONN_DEAD; i++) {
        struct soft_msg m;
        /* MSG_TRUNC: the real length, also of one that is too long. */
        ssize_t n = unasked_recv(c->fd, &m, sizeof(m), MSG_DONTWAIT | MSG_TRUNC);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        server_advance(s); /* not earlier: nothing may count as submitted before it was sent */
        if (n <= 0)
            conn_end(s, c, NULL);
        else if (!conn_handle(s, c, &m, (size_t)n))
            conn_end(s, c, "a message against the protocol, or too many kernels outstanding");
    }
}

/* ---- the loop ---- */

/* Of programs that have lost their channel no work ends any more. */
static void end_reset(struct server *s)
{
    struct softgpu_group_info info;
    struct conn *c;
    bool any = false;
    for (unsigned i = 0; i < s->fabric.n; i++) {
        any |= s->gpus[i].resets != softgpu_resets(s->fabric.engines[i]);
        s->gpus[i].resets = softgpu_resets(s->fabric.engines[i]);
    }
    if (!any)
        return;
    for_each_context (s, c) {
        if (softgpu_group_info(s->fabric.engines[c->gpu], c->groups[0], &info) == 0 && info.reset)
            conn_end(s, c, "a block ran too long while others waited: its channel is reset");
    }
}

/* What has happened by now; returns when something happens next. */
static uint64_t catch_up(struct server *s)
{
    server_advance(s);
    for (unsigned i = 0; i < s->fabric.n; i++) {
        struct softgpu_completion k;
        while (softgpu_pop_completion(s->fabric.engines[i], &k))
            deliver(s, i, &k);
    }
    end_reset(s);
    control_swap_due(s);
    control_switches_due(s);
    uint64_t next_ns = s->swap_due_ns;
    for (struct conn *c = TAILQ_FIRST(&s->controls), *next; c; c = next) {
        next = TAILQ_NEXT(c, link);
        if (c->reply_ns > s->now_ns) {
            next_ns = min_u64(next_ns, c->reply_ns);
            continue;
        }
        struct soft_msg m;
        soft_reply(s, c->result, &m);
        c->reply_ns = SOFTGPU_NEVER;
        conn_answer(s, c, &m);
    }
    return min_u64(next_ns, fabric_next_event_ns(&s->fabric));
}

/* What may be done, at `until_ns` at the latest: into v, of which there is room for n. */
static int await_events(struct server *s, uint64_t until_ns, struct epoll_event *v, int n)
{
    struct pollfd all = {.fd = s->polls, .events = POLLIN};
    struct epoll_event in = {.events = s->accepting ? EPOLLIN : 0, .data.ptr = s};
    if (s->listens != s->accepting && epoll_ctl(s->polls, EPOLL_CTL_MOD, s->listener, &in) == 0)
        s->listens = s->accepting;
    uint64_t now = monotonic_ns(), ns = until_ns > now ? until_ns - now : 0;
    struct timespec t = {(time_t)(ns / NSEC_PER_SEC), (long)(ns % NSEC_PER_SEC)};
    int r = ppoll(&all, 1, until_ns == SOFTGPU_NEVER ? NULL : &t, NULL);
    r = r > 0 ? epoll_wait(s->polls, v, n, 0) : r;
    return r >= 0 ? r : errno == EINTR ? 0 : -errno;
}

/* Until a signal ends it. */
static int serve(struct server *s)
{
    struct epoll_event v[256] = {{0}};
    for (;;) {
        uint64_t next_ns = catch_up(s);
        bool accepts = false;
        conns_bury(s);
        int n = await_events(s, next_ns, v, (int)ARRAY_SIZE(v));
        if (n < 0)
            return n;
        for (int i = 0; i < n; i++) {
            struct conn *c = v[i].data.ptr;
            if (!c)
                return 0;
            if (v[i].data.ptr == s) {
                accepts = true;
                continue;
            }
            if (c->kind != CONN_DEAD && (v[i].events & EPOLLOUT)) {
                deliver_unsent(s, c);
                deliver_waits(s, c);
            }
            if (c->kind != CONN_DEAD && (v[i].events & ~(uint32_t)EPOLLOUT))
                conn_read(s, c);
        }
        if (accepts)
            accept_conn(s);
    }
}

/* The descriptors that are waited for beside connections. */
static int watch_server(struct server *s)
{
    struct epoll_event signals = {.events = EPOLLIN, .data.ptr = NULL};
    struct epoll_event listener = {.events = EPOLLIN, .data.ptr = s};
    if (epoll_ctl(s->polls, EPOLL_CTL_ADD, s->signals, &signals) < 0 ||
        epoll_ctl(s->polls, EPOLL_CTL_ADD, s->listener, &listener) < 0)
        return -errno;
    s->accepting = s->listens = true;
    return 0;
}

/* ---- set-up ---- */

/* The socket's directory: the default one is made for this user only; or, if it is there, one in
 * which no other user can put a socket in our place. Returned open, to be locked while the socket
 * is made. */
static int open_dir(const char *path, struct error *err)
{
    char dir[sizeof(((struct sockaddr_un *)0)->sun_path)] = ".", own[sizeof(dir)];
    const char *slash = strrchr(path, '/');
    if (slash)
        snprintf(dir, sizeof(dir), "%.*s", (int)(slash == path ? 1 : slash - path), path);
    /* A directory that somebody names may be mistyped. */
    if (soft_default_path(own, sizeof(own)) == 0 && strcmp(path, own) == 0 &&
        mkdir(dir, 0700) < 0 && errno != EEXIST)
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
    unasked_refuse(fd);
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
    s->next_key = read_clock_ns(CLOCK_REALTIME);

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
    prctl(PR_SET_TIMERSLACK, 1UL); /* the kernel would add 50 us to each wait */
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    s->polls = epoll_create1(EPOLL_CLOEXEC);
    if (s->signals < 0 || s->polls < 0)
        return error_set(err, -errno, "cannot set up the event loop: %s", strerror(errno));
    r = make_socket(s, path, err);
    if (r < 0)
        return r;
    r = watch_server(s);
    if (r < 0)
        return error_set(err, r, "cannot set up the event loop: %s", strerror(-r));

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
    struct conn *c;
    for_each_conn_from (s, 0, c)
        conn_end(s, c, NULL);
    conns_bury(s);
    for (unsigned i = 0; i < s->fabric.n; i++) {
        softgpu_free(s->fabric.engines[i]);
        free(s->gpus[i].switches);
        free(s->gpus[i].by_group);
    }
    free(s->conns);
    if (s->listener >= 0)
        unasked_close_listener(s->listener);
    close_p(&s->signals);
    close_p(&s->polls);
}

static const char usage[] =
    "Usage: cede-softgpu [--socket PATH] [--gpus N] [--memory SIZE] [--grants FILE]\n"
    "                    [--driver RELEASE] [--inert CONTROL[,...]]\n"
    "A software GPU with an H200's timing, for programs of this user: cede's demo and tests.\n"
    "\n"
    "  --socket PATH     where to listen (default: $CEDE_SOFT_SOCKET, else\n"
    "                    $XDG_RUNTIME_DIR/cede-softgpu, else /tmp/cede-softgpu-UID/socket)\n"
    "  --gpus N          how many GPUs (1..16, default 1)\n"
    "  --memory SIZE     of each, such as 40G (default 141 GB); there is nothing behind it\n"
    "  --grants FILE     for tests: only those may steer a program that\n"
    "                    kernel.yama.ptrace_scope=1 would let, by the grants in FILE\n"
    "  --driver RELEASE  for tests: the release of a driver that ceded compares with what it\n"
    "                    knows, such as 999.1 (default: there is nothing to compare)\n"
    "  --inert CONTROL   for tests: timeslice, suspend or resume, or several with commas between:\n"
    "                    they are accepted and have no effect; second-suspend: every second one\n";

static int read_gpus(void *to, const char *name, const char *text, struct error *err)
{
    return parse_u64(text, 1, DEVICE_GPUS_MAX, to) < 0
               ? error_set(err, -EINVAL, "--%s takes 1 to 16, not '%s'", name, text)
               : 0;
}

static int read_memory(void *to, const char *name, const char *text, struct error *err)
{
    return parse_bytes(text, 1ULL << 50, to) < 0 || !*(uint64_t *)to
               ? error_set(err, -EINVAL, "--%s takes a size such as 40G, up to 1024T, not '%s'",
                           name, text)
               : 0;
}

/* A list of names of controls, as a bit map. */
static int read_inert(void *to, const char *name, const char *text, struct error *err)
{
    static const char *const names[] = {[SOFTGPU_SUSPEND] = "suspend",
                                        [SOFTGPU_TIMESLICE] = "timeslice",
                                        [SOFTGPU_RESUME] = "resume",
                                        [SOFTGPU_PREEMPT] = "",
                                        [INERT_SECOND_SUSPEND] = "second-suspend"};
    for (const char *list = text;; list++) {
        size_t n = strcspn(list, ","), i = 0;
        while (i < ARRAY_SIZE(names) &&
               (!n || strlen(names[i]) != n || strncmp(names[i], list, n) != 0))
            i++;
        if (i == ARRAY_SIZE(names))
            return error_set(err, -EINVAL,
                             "--%s takes timeslice, suspend, second-suspend and resume, with "
                             "commas between, not '%s'",
                             name, text);
        *(uint32_t *)to |= 1U << i;
        list += n;
        if (!*list)
            return 0;
    }
}

/* Whoever forgets CEDE_DIR beside a service would see programs that nobody schedules. */
static void warn_of_service(void)
{
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    if (!secure_getenv("CEDE_DIR") && cede_socket_at(0, path, sizeof(path)) &&
        access(path, F_OK) == 0)
        fprintf(stderr,
                "cede-softgpu: cede and programs turn to the ceded at %s, which may not see this "
                "GPU: for one apart from it, type export CEDE_DIR=$(mktemp -d) first, here and "
                "where they start\n",
                path);
}

int soft_server_main(int argc, char **argv)
{
    struct server s = {.listener = -1, .signals = -1, .polls = -1, .swap_due_ns = SOFTGPU_NEVER};
    const char *where = NULL;
    uint64_t ngpus = 1, memory_bytes = MEMORY_BYTES;
    const struct option_row options[] = {
        {"socket", .text = &where},
        {"gpus", .read = read_gpus, .to = &ngpus},
        {"memory", .read = read_memory, .to = &memory_bytes},
        {"grants", .text = &s.grants},
        {"driver", .text = &s.driver},
        {"inert", .read = read_inert, .to = &s.inert},
    };
    const struct command_line line = {.program = "cede-softgpu", .help = usage};
    char path[sizeof(s.addr.sun_path)];
    struct error err = {""};
    TAILQ_INIT(&s.controls);
    int r = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (r == OPTIONS_GO_ON && optind < argc)
        r = options_wrong(line.program, "unexpected argument '%s'", argv[optind]);
    if (r != OPTIONS_GO_ON)
        return r;
    r = 0;
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
        warn_of_service();
        r = serve(&s);
        if (r < 0)
            error_set(&err, r, "the event loop failed: %s", strerror(-r));
    }
    server_close(&s);
    if (r < 0)
        fprintf(stderr, "cede-softgpu: %s\n", err.text);
    return r < 0 ? 1 : 0;
}
