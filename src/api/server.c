/* See server.h. Must not block: every socket call here is MSG_DONTWAIT, and each turn of the loop
 * takes one request per client, so that none starves the others. Answering takes time from all jobs
 * on the machine, so the time that a user's connections and requests took is paid for by backoff,
 * in which the user's requests wait. The thread's processor time is charged, because time in which
 * other programs had the processor is no fault of the user's. Connecting and closing are charged as
 * well: connections of a user with a debt wait, and with a large debt they are refused. The user of
 * a connection is known only after accept(), so while there are some to refuse, no connection is
 * accepted for most of the time. */
#include "api/server.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "api/peer.h"
#include "api/replies.h"
#include "api/take_back.h"
#include "base/accept.h"
#include "base/principal.h"
#include "base/quota.h"
#include "base/shared_page.h"
#include "base/unasked_fds.h"

#define BACKLOG          128
#define ACCEPTS_PER_TURN 32
#define ASKS_PER_USER    4 /* requests that wait for a reply */
#define SAMPLE_MS        1000
#define BACKOFF_PART     4                     /* a user waits 4 times what a request took */
#define BACKOFF_MIN_NS   (20 * NSEC_PER_MSEC)  /* shorter waits are deferred until they add up */
#define BACKOFF_LOOK_MS  5                     /* between checks whether waits are over */
#define FLOOD_NS         (200 * NSEC_PER_MSEC) /* longer waits refuse the user's connections */
#define AWAY_NS          NSEC_PER_MSEC         /* time for refusing, per turn of the loop */
#define DEBT_MAX_NS      NSEC_PER_SEC          /* the longest wait for connecting */
#define CONNECTION_NS    (10 * NSEC_PER_USEC)  /* cost of a connection in the event loop */
#define DESCRIPTORS_NS   (5 * NSEC_PER_MSEC)   /* cost of closing unasked descriptors in a thread */

/* A request that waits for the engine's next tick. */
struct ask {
    struct verb verb;
    struct server *server; /* NULL: it has stopped */
    uint64_t connection;   /* number of the client, which may have gone */
    LIST_ENTRY(ask) link;
};

struct client {
    uv_poll_t poll;
    struct server *server;
    int fd;
    struct ucred cred; /* of the process that called connect() */
    uid_t principal;   /* the uid for which limits are counted */
    bool reserved;     /* it connected as administrator */
    bool guest;        /* it connected to the socket for containers */
    struct pidns ns;   /* a guest's pid namespace */
    bool hints;        /* it has a page for hints */
    bool backs_off;    /* nothing is received from it during backoff, */
    bool asks;         /* nor while it waits for a reply */
    uint64_t number, since_ticks;
    LIST_ENTRY(client) link;
};

/* A listening socket. */
struct listener {
    uv_poll_t poll;
    struct acceptor acceptor; /* has the descriptor, which the server owns */
    bool guests;              /* it is the one for containers */
    char path[108];           /* "": the listener is not in use */
    ino_t inode;              /* of the socket at path */
};

struct server {
    struct listener listeners[2]; /* for all users; for guests */
    uv_timer_t sampler;           /* runs while a client has a page */
    uv_timer_t backoff;           /* runs while a client backs off, or no connection is accepted */
    bool accepts_nobody;          /* no connection is accepted now */
    struct principals principals;
    char *flood_text; /* the refusal for a user that connects too often */
    struct quotas users;
    uint64_t next_number;
    struct verbs *verbs;
    LIST_HEAD(, ask) asks;
    gid_t admin_gid;
    bool stopping;
    unsigned closing; /* handles whose closing callback is to come */
    LIST_HEAD(, client) clients;
    unsigned nclients;
    char buf[PROTO_MESSAGE_MAX + 1];
};

static void free_when_closed(struct server *s)
{
    if (!s->stopping || s->closing)
        return;
    principals_free(&s->principals);
    free(s->flood_text);
    free(s);
}

static void user_charge(struct server *s, uid_t principal, uint64_t took_ns)
{
    quota_charge(quota_of(&s->users, principal), monotonic_ns(), took_ns * BACKOFF_PART);
}

static void on_client_closed(uv_handle_t *h)
{
    struct client *c = h->data;
    struct server *s = c->server;
    uint64_t started = verbs_cpu_ns(s->verbs);
    unasked_close(c->fd);
    user_charge(s, c->principal, verbs_cpu_ns(s->verbs) - started);
    free(c);
    s->closing--;
    free_when_closed(s);
}

static void client_disconnect(struct client *c)
{
    struct server *s = c->server;
    LIST_REMOVE(c, link);
    if (!c->hints)
        s->nclients--;
    else
        hints_close(s->verbs->hints, c->number);
    if (s->verbs->traces)
        traces_close(s->verbs->traces, c->number);
    engine_try_no_more(s->verbs->engine, c->number);
    s->closing++;
    uv_close((uv_handle_t *)&c->poll, on_client_closed);
}

/* Sends a reply, with descriptor `with` (-1: none). False: the client does not read, or has gone.
 */
static bool reply(int fd, const char *text, size_t n, int with)
{
    if (!text)
        return false;
    n = n ? n : strlen(text);
    if (with >= 0)
        return send_with_fds(fd, text, n, &with, 1) == 0;
    return send(fd, text, n, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR) == (ssize_t)n;
}

static void refuse(int fd, int code, const char *why)
{
    struct error err;
    error_set(&err, code, "%s", why);
    _cleanup_free_ char *text = reply_refusal(code, &err, ADMIN_NO_GROUP);
    (void)reply(fd, text, 0, -1);
}

static void no_descriptors(int fd)
{
    refuse(fd, -EMFILE, "the daemon has no descriptors left; try again later");
}

static void on_sample(uv_timer_t *t)
{
    struct server *s = t->data;
    hints_sample(s->verbs->hints, monotonic_ns());
    if (!hints_count(s->verbs->hints))
        uv_timer_stop(t);
}

static void has_page(struct client *c)
{
    struct server *s = c->server;
    c->hints = true;
    s->nclients--;
    hints_sample(s->verbs->hints, monotonic_ns());
    if (!uv_is_active((uv_handle_t *)&s->sampler))
        uv_timer_start(&s->sampler, on_sample, SAMPLE_MS, SAMPLE_MS);
}

static bool quota_exceeded(struct server *s, uid_t uid, bool admin, uint64_t ns)
{
    return !admin && quota_of(&s->users, uid)->paid_ns > monotonic_ns() + ns;
}

/* Whether its user has used up its time, or has ASKS_PER_USER requests in progress. */
static bool client_waits(struct client *c)
{
    const struct ask *a;
    unsigned n = 0;
    for (a = LIST_FIRST(&c->server->asks); a; a = LIST_NEXT(a, link))
        n += !a->verb.who.admin && a->verb.who.principal == c->principal;
    return quota_exceeded(c->server, c->principal, c->reserved, BACKOFF_MIN_NS) ||
           (!c->reserved && n >= ASKS_PER_USER);
}

static void on_request(uv_poll_t *h, int status, int events);
static void on_connect(uv_poll_t *h, int status, int events);

static bool listeners_start(struct server *s)
{
    bool all = true;
    for (size_t i = 0; i < ARRAY_SIZE(s->listeners); i++)
        all &= !s->listeners[i].path[0] ||
               uv_poll_start(&s->listeners[i].poll, UV_READABLE, on_connect) == 0;
    return all;
}

static void on_backoff(uv_timer_t *t)
{
    struct server *s = t->data;
    bool more = false;
    if (s->accepts_nobody)
        s->accepts_nobody = !listeners_start(s);
    for (struct client *c = LIST_FIRST(&s->clients), *next; c; c = next) {
        next = LIST_NEXT(c, link);
        if (!c->backs_off)
            continue;
        c->backs_off = client_waits(c);
        more |= c->backs_off;
        if (!c->backs_off && !c->asks &&
            uv_poll_start(&c->poll, UV_READABLE | UV_DISCONNECT, on_request) < 0)
            client_disconnect(c);
    }
    if (!more && !s->accepts_nobody)
        uv_timer_stop(t);
}

static void backoff_start(struct server *s)
{
    if (!uv_is_active((uv_handle_t *)&s->backoff))
        uv_timer_start(&s->backoff, on_backoff, BACKOFF_LOOK_MS, BACKOFF_LOOK_MS);
}

static void client_back_off(struct client *c)
{
    c->backs_off = true;
    uv_poll_stop(&c->poll);
    backoff_start(c->server);
}

static void accept_nobody(struct server *s)
{
    s->accepts_nobody = true;
    for (size_t i = 0; i < ARRAY_SIZE(s->listeners); i++) {
        if (s->listeners[i].path[0])
            uv_poll_stop(&s->listeners[i].poll);
    }
    backoff_start(s);
}

static struct client *client_of(const struct server *s, uint64_t connection)
{
    struct client *c = LIST_FIRST(&s->clients);
    while (c && c->number != connection)
        c = LIST_NEXT(c, link);
    return c;
}

/* Sends the reply. False: the client did not get it and is disconnected. */
static bool client_deliver(struct client *c, const struct verb *v, const char *text)
{
    if (v->fd >= 0)
        has_page(c);
    c->asks = false;
    const bool got = reply(c->fd, text, v->reply_bytes, v->fd);
    if (!got ||
        (!c->backs_off && uv_poll_start(&c->poll, UV_READABLE | UV_DISCONNECT, on_request) < 0))
        client_disconnect(c);
    else if (c->server->verbs->traces)
        traces_begin(c->server->verbs->traces, c->number, c->fd, monotonic_ns());
    return got;
}

/* Whether the client still waits: it has not closed its end. One that has only shut down sending
 * still waits. */
static bool ask_awaited(const struct verb *v)
{
    const struct ask *a = v->arg;
    const struct client *c = a->server ? client_of(a->server, a->connection) : NULL;
    struct pollfd p = {.fd = c ? c->fd : -1};
    return c && (poll(&p, 1, 0) <= 0 || !(p.revents & (POLLHUP | POLLERR)));
}

static void answered(struct verb *v, char *text)
{
    struct ask *a = v->arg;
    struct server *s = a->server;
    struct client *c = s ? client_of(s, a->connection) : NULL;
    const bool got = c && client_deliver(c, v, text);
    if (s && !got)
        take_back(v, v->verbs->engine, "the one who asked waits no longer");
    if (!c && v->fd >= 0)
        hints_close(v->verbs->hints, a->connection);
    if (!c && v->verbs->traces)
        traces_close(v->verbs->traces, a->connection);
    if (s) {
        LIST_REMOVE(a, link);
        user_charge(s, v->who.principal, v->took_ns);
    }
    close_p(&v->fd);
    free(text);
    free(a);
}

static void client_ask(struct client *c, size_t n)
{
    struct server *s = c->server;
    struct caller who = {.uid = c->cred.uid,
                         .principal = c->principal,
                         .pid = c->cred.pid,
                         .admin = !c->guest && peer_is_admin(c->fd, &c->cred, s->admin_gid),
                         .admin_gid = s->admin_gid,
                         .guest = c->guest,
                         .ns = c->ns,
                         .connection = c->number,
                         .since_ticks = c->since_ticks};
    struct ask *a = calloc(1, sizeof(*a));
    if (!a) {
        client_disconnect(c);
        return;
    }
    verb_parse(&a->verb, s->verbs, &who, s->buf, n);
    a->verb.awaited = ask_awaited;
    a->verb.done = answered;
    a->verb.arg = a;
    a->server = s;
    a->connection = c->number;
    LIST_INSERT_HEAD(&s->asks, a, link);
    c->asks = true;
    uv_poll_stop(&c->poll);
    engine_submit(s->verbs->engine, &a->verb.command);
}

/* Receives one message, if the client has sent one. */
static void client_take(struct client *c, int status)
{
    struct server *s = c->server;
    /* MSG_TRUNC: the true length of a message that does not fit. */
    ssize_t n = unasked_recv(c->fd, s->buf, sizeof(s->buf), MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR) && status == 0)
        return;
    if (n < 0 && errno == EBADMSG) {
        refuse(c->fd, -EBADMSG, "no request brings descriptors");
        user_charge(s, c->principal, DESCRIPTORS_NS);
        client_disconnect(c);
    } else if (n <= 0) { /* gone, or an empty message, which looks the same */
        client_disconnect(c);
    } else if (n > PROTO_MESSAGE_MAX) {
        struct error err;
        error_set(&err, -EMSGSIZE, "message of more than %d bytes", PROTO_MESSAGE_MAX);
        refuse(c->fd, -EMSGSIZE, err.text);
        client_disconnect(c);
    } else {
        client_ask(c, (size_t)n);
    }
}

static void on_request(uv_poll_t *h, int status, int events)
{
    struct client *c = h->data;
    struct server *s = c->server;
    uid_t principal = c->principal;
    if (client_waits(c)) {
        client_back_off(c);
        return;
    }
    uint64_t started = verbs_cpu_ns(s->verbs);
    client_take(c, status);
    user_charge(s, principal, verbs_cpu_ns(s->verbs) - started);
}

/* Why there is no room for another connection; NULL: there is. */
static const char *no_room(const struct server *s, uid_t principal, bool admin)
{
    if (s->nclients >= SERVER_CLIENTS_MAX)
        return "too many connections; try again later";
    unsigned others = 0, same = 0;
    for (const struct client *c = LIST_FIRST(&s->clients); c && !admin; c = LIST_NEXT(c, link)) {
        others += !c->reserved && !c->hints;
        same += !c->reserved && !c->hints && c->principal == principal;
    }
    if (same >= SERVER_CLIENTS_PER_USER)
        return "you have too many connections already; close some";
    if (others >= SERVER_CLIENTS_MAX - SERVER_CLIENTS_RESERVED)
        return "too many connections; try again later";
    return NULL;
}

/* Begins to receive, after backoff if the user has a debt. */
static void client_begin(struct client *c)
{
    if (client_waits(c))
        client_back_off(c);
    else if (uv_poll_start(&c->poll, UV_READABLE | UV_DISCONNECT, on_request) < 0)
        client_disconnect(c);
    else
        client_take(c, 0); /* most clients send at once */
}

/* Takes over a connection. False: it is refused because the user connects too often. */
static bool admit(struct listener *l, int fd, const struct ucred *cred, uid_t principal)
{
    struct server *s = l->poll.data;
    struct pidns ns = {.level = 0};
    bool admin = !l->guests && peer_is_admin(fd, cred, s->admin_gid),
         flood = quota_exceeded(s, principal, admin, FLOOD_NS);
    const char *why = flood                                        ? NULL
                      : l->guests && peer_pidns(fd, cred, &ns) < 0 ? "you have ended"
                                                                   : no_room(s, principal, admin);
    struct client *c = flood || why ? NULL : calloc(1, sizeof(*c));
    if (flood)
        (void)reply(fd, s->flood_text, 0, -1);
    if (why)
        refuse(fd, -EUSERS, why);
    if (!c || uv_poll_init(l->poll.loop, &c->poll, fd) < 0) {
        free(c);
        unasked_close(fd);
        return !flood;
    }
    c->poll.data = c;
    c->server = s;
    c->number = ++s->next_number;
    c->since_ticks = proc_ticks_now();
    c->fd = fd;
    c->cred = *cred;
    c->principal = principal;
    c->reserved = admin;
    c->guest = l->guests;
    c->ns = ns;
    LIST_INSERT_HEAD(&s->clients, c, link);
    s->nclients++;
    client_begin(c);
    return true;
}

/* Connections of a user that floods stand before others in the backlog, so they are accepted and
 * refused for AWAY_NS per turn. */
static void on_connect(uv_poll_t *h, int status, int events)
{
    struct server *s = h->data;
    struct listener *l = (struct listener *)h; /* its first member */
    uint64_t started = verbs_cpu_ns(s->verbs), away_ns = 0;
    for (unsigned taken = 0; taken < ACCEPTS_PER_TURN && away_ns < AWAY_NS;) {
        int fd = acceptor_next(&l->acceptor);
        struct ucred cred;
        socklen_t len = sizeof(cred);
        if (fd == -EBUSY)
            accept_nobody(s);
        if (fd < 0)
            break;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0) {
            unasked_close(fd);
            continue;
        }
        uid_t principal =
            (l->guests ? principal_of_guest : principal_of)(&s->principals, cred.uid, cred.pid);
        bool in = admit(l, fd, &cred, principal);
        uint64_t now = verbs_cpu_ns(s->verbs), took = now - started;
        started = now;
        taken += in;
        away_ns += in ? 0 : took;
        /* Refusing goes on while the user pays, so it costs a quarter more than its time. */
        if (!quota_exceeded(s, principal, false, DEBT_MAX_NS))
            user_charge(s, principal, took + took / BACKOFF_PART + (in ? CONNECTION_NS : 0));
    }
    if (away_ns && !s->accepts_nobody)
        accept_nobody(s);
}

static int remove_stale(const char *path, struct error *err)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : error_set(err, -errno, "%s: %s", path, strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return error_set(err, -EEXIST, "%s is there and is not a socket: remove it", path);
    if (unlink(path) < 0 && errno != ENOENT)
        return error_set(err, -errno, "cannot remove the old socket %s: %s", path, strerror(errno));
    return 0;
}

int server_listen(const char *path, struct error *err)
{
    const size_t most = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;
    if (strlen(path) > most)
        return error_set(err, -ENAMETOOLONG, "socket path %s has more than %zu bytes", path, most);
    int r = remove_stale(path, err);
    if (r < 0)
        return r;
    /* Connecting requires the right to write, and every user may connect: SO_PEERCRED shows the
     * user, and rights.c what that user may do. */
    r = listen_for_all(path, BACKLOG);
    return r < 0 ? error_set(err, r, "cannot listen on %s: %s", path, strerror(-r)) : r;
}

ino_t server_inode(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 ? st.st_ino : 0;
}

static int listener_start(struct server *s, struct listener *l, uv_loop_t *loop, const char *path,
                          struct error *err)
{
    int fd = server_listen(path, err);
    if (fd < 0)
        return fd;
    int r = uv_poll_init(loop, &l->poll, fd);
    if (r < 0) {
        close(fd);
        unlink(path);
        return error_set(err, r, "cannot watch %s: %s", path, strerror(-r));
    }
    snprintf(l->path, sizeof(l->path), "%s", path);
    l->inode = server_inode(path);
    l->poll.data = s;
    acceptor_init(&l->acceptor, fd, no_descriptors);
    uv_poll_start(&l->poll, UV_READABLE, on_connect);
    return 0;
}

int server_listen_guests(struct server *s, const char *path, struct error *err)
{
    s->listeners[1].guests = true;
    return listener_start(s, &s->listeners[1], s->backoff.loop, path, err);
}

int server_start(uv_loop_t *loop, const char *path, struct verbs *verbs, gid_t admin_gid,
                 struct server **out, struct error *err)
{
    struct error flood;
    error_set(&flood, -EAGAIN,
              "your programs connect so often, or ask so much, that the daemon takes no connection "
              "of theirs for a while: try again in a second");
    struct server *s = calloc(1, sizeof(*s));
    int r = s ? listener_start(s, &s->listeners[0], loop, path, err)
              : error_set(err, -ENOMEM, "out of memory");
    if (r < 0) {
        free(s);
        return r;
    }
    uv_timer_init(loop, &s->sampler);
    s->sampler.data = s;
    uv_timer_init(loop, &s->backoff);
    s->backoff.data = s;
    s->verbs = verbs;
    s->flood_text =
        reply_refusal(-EAGAIN, &flood, ADMIN_NO_GROUP); /* NULL: refused without a text */
    s->admin_gid = admin_gid;
    *out = s;
    return 0;
}

void server_set_group(struct server *s, gid_t admin_gid)
{
    s->admin_gid = admin_gid;
}

static void on_server_closed(uv_handle_t *h)
{
    struct server *s = h->data;
    s->closing--;
    free_when_closed(s);
}

static void listener_stop(struct server *s, struct listener *l)
{
    if (!l->path[0])
        return;
    if (server_inode(l->path) == l->inode) /* else it is a successor's socket */
        unlink(l->path);
    s->closing++;
    uv_close((uv_handle_t *)&l->poll, on_server_closed);
    unasked_close_listener(l->acceptor.fd);
    acceptor_close(&l->acceptor);
}

void server_stop(struct server *s)
{
    s->stopping = true;
    for (size_t i = 0; i < ARRAY_SIZE(s->listeners); i++)
        listener_stop(s, &s->listeners[i]);
    for (struct ask *a = LIST_FIRST(&s->asks); a; a = LIST_NEXT(a, link))
        a->server = NULL;
    while (!LIST_EMPTY(&s->clients))
        client_disconnect(LIST_FIRST(&s->clients));
    s->closing += 2;
    uv_close((uv_handle_t *)&s->backoff, on_server_closed);
    uv_close((uv_handle_t *)&s->sampler, on_server_closed);
}
