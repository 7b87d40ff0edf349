/* See client.h. */
#include "api/client.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/json_text.h"
#include "base/paths.h"
#include "who/users.h"

/* Limits each wait on the socket. -ETIMEDOUT: no time is left. */
static int limit_waits(int fd, uint64_t until_ns)
{
    uint64_t us = CLIENT_TIMEOUT_MS * 1000;
    if (until_ns) {
        uint64_t now = monotonic_ns();
        us = min_u64(us, until_ns > now ? (until_ns - now) / NSEC_PER_USEC : 0);
    }
    const struct timeval tv = {.tv_sec = (time_t)(us / 1000000),
                               .tv_usec = (suseconds_t)(us % 1000000)};
    if (us == 0) /* a timeout of 0 would be no limit */
        return -ETIMEDOUT;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    return 0;
}

int client_connect(struct client *c, const char *path, bool given, uint64_t until_ns,
                   struct error *err)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(sa.sun_path))
        return error_set(err, -ENAMETOOLONG, "socket path %s is longer than %zu bytes", path,
                         sizeof(sa.sun_path) - 1);
    memcpy(sa.sun_path, path, strlen(path) + 1);

    if (!cede_socket_trusted(path, given))
        return error_set(err, -EPERM,
                         "not trusting the daemon at %s: another user has put the socket there; "
                         "remove it, or set CEDE_DIR",
                         path);
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(err, -errno, "cannot make a socket: %s", strerror(errno));
    if (limit_waits(fd, until_ns) < 0)
        return error_set(err, -ETIMEDOUT, "the daemon at %s accepts no connection", path);
    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
        int e = errno;
        if (e == ENOENT || e == ECONNREFUSED || e == ENOTDIR)
            return error_set(err, -ENOENT, "no daemon is running");
        if (e == EAGAIN)
            return error_set(err, -ETIMEDOUT, "the daemon at %s accepts no connection", path);
        return error_set(err, -e, "cannot connect to %s: %s", path, strerror(e));
    }
    struct ucred peer;
    socklen_t n = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
        return error_set(err, -errno, "cannot find out whose daemon listens at %s: %s", path,
                         strerror(errno));
    if (!cede_peer_trusted(peer.uid, given))
        return error_set(err, -EPERM,
                         "not trusting the daemon at %s: it runs as user %u, neither root nor you",
                         path, (unsigned)peer.uid);
    *c = (struct client){
        .fd = TAKE_FD(fd), .daemon_pid = peer.pid, .daemon_uid = peer.uid, .until_ns = until_ns};
    snprintf(c->socket, sizeof(c->socket), "%s", path);
    return 0;
}

int client_open(struct client *c, struct error *err)
{
    return client_open_until(c, 0, err);
}

int client_open_until(struct client *c, uint64_t until_ns, struct error *err)
{
    char path[512];
    int result = error_set(err, -ENOENT, "no daemon is running");
    c->fd = -1;
    for (unsigned i = 0; cede_socket_at(i, path, sizeof(path)); i++) {
        struct error e = {""};
        int r = client_connect(c, path, i == 0, until_ns, &e);
        if (r == 0)
            return 0;
        /* The error of a daemon that cannot be used says more than that there is none. */
        if (result == -ENOENT)
            result = error_set(err, r, "%s", e.text);
    }
    return result;
}

void client_close(struct client *c)
{
    close_p(&c->fd);
    c->fd = -1;
}

/* Says which group the administrators' is. */
static const char *name_admins(const json_t *reply, const char *text, char *buf, size_t size)
{
    const json_t *gid = json_object_get(reply, "admin_gid");
    const char *at = strstr(text, ADMINS_GROUP);
    char group[GROUP_TEXT];
    if (!gid || !at)
        return text;
    const int before = (int)(at - text);
    const char *after = at + strlen(ADMINS_GROUP);
    if (json_is_integer(gid))
        snprintf(buf, size, "%.*sgroup %s%s", before, text,
                 group_text(group, (gid_t)json_integer_value(gid)), after);
    else
        snprintf(buf, size,
                 "%.*s%s (to name it, write `group = cede` into [daemon] of /etc/cede/cede.conf)%s",
                 before, text, ADMINS_GROUP, after);
    return buf;
}

static int late(const struct client *c, struct error *err)
{
    if (c->until_ns)
        return error_set(err, -ETIMEDOUT, "the daemon (pid %d) gave no answer in time",
                         (int)c->daemon_pid);
    return error_set(err, -ETIMEDOUT, "the daemon (pid %d) gave no answer within %d s",
                     (int)c->daemon_pid, CLIENT_TIMEOUT_MS / 1000);
}

static int receive(struct client *c, json_t **out, struct error *err)
{
    *out = NULL;
    char buf[PROTO_MESSAGE_MAX]; /* on the stack, as free() of so much is slow */
    ssize_t n = recv_last(c->fd, buf, PROTO_MESSAGE_MAX, MSG_TRUNC);
    if (n < 0 && errno == EAGAIN) {
        /* After this the daemon cannot answer, and takes back what it does nevertheless. An answer
         * that came before counts. */
        shutdown(c->fd, SHUT_RDWR);
        n = recv(c->fd, buf, PROTO_MESSAGE_MAX, MSG_TRUNC | MSG_DONTWAIT);
        if (n <= 0)
            return late(c, err);
    }
    if (n == 0 || (n < 0 && errno == ECONNRESET))
        return error_set(err, -EPIPE, "the daemon (pid %d) closed the connection without an answer",
                         (int)c->daemon_pid);
    if (n < 0)
        return error_set(err, -errno, "cannot receive the daemon's answer: %s", strerror(errno));
    if (n > PROTO_MESSAGE_MAX)
        return error_set(err, -EMSGSIZE, "the daemon's answer has %zd bytes, more than %d", n,
                         PROTO_MESSAGE_MAX);
    json_error_t je;
    *out = json_loadb(buf, (size_t)n, JSON_REJECT_DUPLICATES, &je);
    return json_is_object(*out)
               ? 0
               : error_set(err, -EPROTO, "the daemon's answer is not an object in JSON");
}

int client_send(struct client *c, const struct request *r, struct error *err)
{
    _cleanup_free_ char *text = proto_format(r);
    if (!text)
        return error_set(err, -ENOMEM, "out of memory");
    if (c->until_ns && limit_waits(c->fd, c->until_ns) < 0)
        return late(c, err);
    ssize_t n;
    do
        n = send(c->fd, text, strlen(text), MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    /* A daemon that refuses a connection closes it after a message that says why. */
    if (n < 0 && errno != EPIPE && errno != ECONNRESET) {
        int e = errno == EAGAIN ? ETIMEDOUT : errno;
        return error_set(err, -e, "cannot send to the daemon (pid %d): %s", (int)c->daemon_pid,
                         strerror(e));
    }
    return 0;
}

int client_receive(struct client *c, json_t **reply, struct error *err)
{
    *reply = NULL;
    _cleanup_json_ json_t *got = NULL;
    int code = receive(c, &got, err);
    if (code < 0)
        return code;
    const json_t *version = json_object_get(got, "v"), *ok = json_object_get(got, "ok");
    if (json_integer_value(version) != PROTO_VERSION || !json_is_boolean(ok))
        code = error_set(
            err, -EPROTO,
            "the daemon (pid %d) speaks another version of the protocol: restart it after "
            "an update",
            (int)c->daemon_pid);
    else if (!json_is_true(ok)) {
        json_int_t e = json_get_int(got, "errno");
        const char *why = json_get_text(got, "error");
        char named[400];
        why = why ? name_admins(got, why, named, sizeof(named)) : NULL;
        code = error_set(err, e > 0 && e < 4096 ? -(int)e : -EPROTO, "%s",
                         why ? why : "the daemon refused and gave no reason");
    }
    if (code == 0)
        *reply = json_incref(got);
    return code;
}

int client_call(struct client *c, const struct request *r, json_t **reply, struct error *err)
{
    *reply = NULL;
    int code = client_send(c, r, err);
    return code < 0 ? code : client_receive(c, reply, err);
}

int client_job(struct client *c, json_int_t number, json_t **job, struct error *err)
{
    const struct request r = {.op = OP_PS, .number = (uint64_t)number - 1};
    _cleanup_json_ json_t *page = NULL;
    *job = NULL;
    int code = client_call(c, &r, &page, err);
    if (code < 0)
        return code;
    json_t *first = json_array_get(json_object_get(page, "jobs"), 0);
    if (json_get_int(first, "number") == number)
        *job = json_incref(first);
    return *job ? 0 : error_set(err, -ESRCH, "the job has ended");
}

bool client_ps_page(json_t **all, json_t *page, struct request *r)
{
    json_t *jobs = json_object_get(page, "jobs");
    size_t n = json_array_size(jobs);
    json_int_t last = json_get_int(json_array_get(jobs, n ? n - 1 : 0), "number");
    /* Numbers must grow from page to page, or a broken daemon would keep the client for ever. */
    bool more = json_get_true(page, "more") && last > (json_int_t)r->number;
    r->number = last > 0 ? (uint64_t)last : 0;
    if (!*all) {
        *all = json_incref(page);
        if (!json_is_array(jobs))
            json_object_set_new(*all, "jobs", json_array());
    } else {
        json_array_extend(json_object_get(*all, "jobs"), jobs);
    }
    json_decref(page);
    if (more)
        return true;
    json_object_del(*all, "v");
    json_object_del(*all, "ok");
    json_object_del(*all, "more");
    json_object_set_new(*all, "daemon", json_true());
    return false;
}

static int ps_pages(struct client *c, struct request r, json_t **out, struct error *err)
{
    _cleanup_json_ json_t *all = NULL;
    json_t *page;
    do {
        const int code = client_call(c, &r, &page, err);
        if (code < 0)
            return code;
    } while (client_ps_page(&all, page, &r));
    *out = json_incref(all);
    return 0;
}

int client_ps(struct client *c, bool brief, json_t **out, struct error *err)
{
    return ps_pages(c, (struct request){.op = OP_PS, .brief = brief}, out, err);
}

int client_ask(const struct request *r, json_t **reply, struct error *err)
{
    _cleanup_client_ struct client c = {.fd = -1};
    const int code = client_open(&c, err);
    return code < 0 ? code : client_call(&c, r, reply, err);
}

int client_ask_ps(bool brief, json_t **out, struct error *err)
{
    _cleanup_client_ struct client c = {.fd = -1};
    const int code = client_open(&c, err);
    return code < 0 ? code : client_ps(&c, brief, out, err);
}

int client_sums(struct client *c, json_t **out, struct error *err)
{
    return ps_pages(c, (struct request){.op = OP_PS, .summed = true}, out, err);
}

int client_trace(struct client *c, struct error *err)
{
    const struct request r = {.op = OP_TRACE};
    _cleanup_json_ json_t *reply = NULL;
    int code = client_call(c, &r, &reply, err);
    if (code == 0 && json_get_int(reply, "trace") != TRACE_VERSION)
        code = error_set(err, -EPROTO,
                         "the daemon (pid %d) traces as another version does: restart it after an "
                         "update",
                         (int)c->daemon_pid);
    return code;
}

int client_events(const struct client *c, struct trace_event v[static TRACE_BATCH],
                  struct error *err)
{
    const ssize_t n = recv(c->fd, v, TRACE_BATCH * sizeof(*v), MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return -EAGAIN;
    if (n <= 0)
        return error_set(err, -EPIPE, "the connection to ceded has ended");
    if ((size_t)n > TRACE_BATCH * sizeof(*v) || (size_t)n % sizeof(*v))
        return error_set(err, -EPROTO, "ceded sends what is no trace: is it of another version?");
    return (int)((size_t)n / sizeof(*v));
}
