/* See metrics_http.h. A thread of libmicrohttpd reads requests and asks for the text. The main
 * thread waits for the end and closes old connections twice per second, because the library's time
 * limit begins anew with each byte. The library uses poll(): with epoll, on a busy machine, it
 * sometimes never noticed such a closed connection, or accepted no more connections.
 *
 * All connections share an answer, so that slow readers keep one text, not one each. */
#include "agents/prometheus/metrics_http.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/cli_error.h"
#include "base/symbols.h"

#define SLOTS           256
#define FULL            (SLOTS / 2) /* with more connections, AGE_FULL_S holds instead of AGE_S */
#define AGE_S           6           /* more than ceded may take to answer */
#define AGE_FULL_S      1
#define SWEEP_MS        500
#define REQUEST_BYTES   16384 /* request line and headers of one connection, and its answer's */
#define FRESH_MS        1000
#define LISTEN_FD_FIRST 3 /* sd_listen_fds(3) */

/* ---- libmicrohttpd, as its header declares it (0.9.75) --------------------------------------- */

struct MHD_Daemon;
struct MHD_Connection;
struct MHD_Response;

enum { MHD_NO, MHD_YES };
enum {
    MHD_USE_INTERNAL_POLLING_THREAD = 8,
    MHD_USE_POLL = 64,
    MHD_USE_ITC = 1024, /* without it the library's end shuts the socket down, which is systemd's */
};
enum {
    MHD_OPTION_END = 0,
    MHD_OPTION_CONNECTION_MEMORY_LIMIT = 1, /* size_t */
    MHD_OPTION_CONNECTION_LIMIT = 2,        /* unsigned */
    MHD_OPTION_CONNECTION_TIMEOUT = 3,      /* unsigned, s */
    MHD_OPTION_LISTEN_SOCKET = 12,          /* int */
    MHD_OPTION_NOTIFY_CONNECTION = 27,      /* function, its first argument */
};
enum { MHD_HEADER_KIND = 1 };
enum { MHD_RESPMEM_PERSISTENT, MHD_RESPMEM_MUST_FREE };
enum { MHD_CONNECTION_NOTIFY_STARTED, MHD_CONNECTION_NOTIFY_CLOSED };
#define MHD_CONNECTION_INFO_CONNECTION_FD 6

typedef int mhd_handler(void *ctx, struct MHD_Connection *c, const char *url, const char *method,
                        const char *version, const char *upload, size_t *upload_size,
                        void **request);
typedef void mhd_notify(void *ctx, struct MHD_Connection *c, void **slot, int what);

struct mhd {
    struct MHD_Daemon *(*start_daemon)(unsigned flags, uint16_t port, void *accept_policy,
                                       void *policy_ctx, mhd_handler *handler, void *ctx, ...);
    void (*stop_daemon)(struct MHD_Daemon *d);
    struct MHD_Response *(*create_response_from_buffer)(size_t size, void *buffer, int mode);
    int (*add_response_header)(struct MHD_Response *r, const char *name, const char *value);
    int (*queue_response)(struct MHD_Connection *c, unsigned status, struct MHD_Response *r);
    void (*destroy_response)(struct MHD_Response *r);
    const char *(*lookup_connection_value)(struct MHD_Connection *c, int kind, const char *key);
    const int *(*get_connection_info)(struct MHD_Connection *c, int what, ...);
};

static int mhd_open(struct mhd *m, struct error *err)
{
#define MHD_SYMBOL(name)                                                                           \
    {                                                                                              \
        "MHD_" #name, offsetof(struct mhd, name)                                                   \
    }
    static const struct symbol symbols[] = {
        MHD_SYMBOL(start_daemon),
        MHD_SYMBOL(stop_daemon),
        MHD_SYMBOL(create_response_from_buffer),
        MHD_SYMBOL(add_response_header),
        MHD_SYMBOL(queue_response),
        MHD_SYMBOL(destroy_response),
        MHD_SYMBOL(lookup_connection_value),
        MHD_SYMBOL(get_connection_info),
    };
    void *lib = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL); /* never closed */
    if (!lib)
        return error_set(
            err, -ENOENT,
            "cannot serve HTTP without libmicrohttpd.so.12: install libmicrohttpd12 "
            "(Debian 12), libmicrohttpd12t64 (Debian 13, Ubuntu 24.04) or libmicrohttpd (Fedora), "
            "or use `cede metrics -o FILE`");
    const char *missing = symbols_find(lib, symbols, ARRAY_SIZE(symbols), m);
    if (missing)
        return error_set(err, -ENOSYS, "libmicrohttpd.so.12 has no %s", missing);
    return 0;
}

/* ---- connections ----------------------------------------------------------------------------- */

struct http_slot {
    int fd; /* < 0: free */
    uint64_t since_ns;
};

struct http {
    struct mhd mhd;
    metrics_source *source;
    void *ctx;
    struct MHD_Response *answers[METRICS_FORMATS];
    uint64_t answers_at_ns;
    struct MHD_Response *not_found, *not_allowed, *unavailable;

    pthread_mutex_t lock; /* of slots, which the library's and the main thread use */
    struct http_slot slots[SLOTS];
};

/* The library closes a descriptor only after this notification, so those in slots are open. */
static void http_notify(void *ctx, struct MHD_Connection *c, void **mine, int what)
{
    struct http *h = ctx;
    pthread_mutex_lock(&h->lock);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const int *fd = h->mhd.get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        struct http_slot *p = h->slots;
        while (p < h->slots + SLOTS && p->fd >= 0)
            p++;
        if (fd && p < h->slots + SLOTS) {
            *p = (struct http_slot){*fd, monotonic_ns()};
            *mine = p;
        }
    } else if (*mine) {
        ((struct http_slot *)*mine)->fd = -1;
        *mine = NULL;
    }
    pthread_mutex_unlock(&h->lock);
}

static void http_sweep(struct http *h)
{
    unsigned taken = 0;
    pthread_mutex_lock(&h->lock);
    uint64_t now = monotonic_ns();
    for (unsigned i = 0; i < SLOTS; i++)
        taken += h->slots[i].fd >= 0;
    uint64_t most_ns = (taken > FULL ? AGE_FULL_S : AGE_S) * NSEC_PER_SEC;
    for_each (p, h->slots, SLOTS) {
        if (p->fd >= 0 && now - p->since_ns > most_ns)
            shutdown(p->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&h->lock);
}

/* ---- answers --------------------------------------------------------------------------------- */

static struct MHD_Response *http_response(const struct http *h, char *text, int mode,
                                          const char *type)
{
    struct MHD_Response *r = h->mhd.create_response_from_buffer(strlen(text), text, mode);
    if (!r)
        return NULL;
    h->mhd.add_response_header(r, "Content-Type", type);
    h->mhd.add_response_header(r, "Connection", "close");
    return r;
}

static void http_forget(struct http *h)
{
    for (int f = 0; f < METRICS_FORMATS; f++) {
        if (h->answers[f])
            h->mhd.destroy_response(h->answers[f]); /* connections have their own references */
        h->answers[f] = NULL;
    }
}

static void http_refresh(struct http *h)
{
    if (h->answers_at_ns && monotonic_ns() - h->answers_at_ns < FRESH_MS * NSEC_PER_MSEC)
        return;
    char *texts[METRICS_FORMATS] = {NULL};
    h->source(h->ctx, texts);
    http_forget(h);
    for (int f = 0; f < METRICS_FORMATS; f++) {
        const char *type = metrics_content_type((enum metrics_format)f);
        if (texts[f])
            h->answers[f] = http_response(h, texts[f], MHD_RESPMEM_MUST_FREE, type);
        if (texts[f] && !h->answers[f])
            free(texts[f]);
    }
    h->answers_at_ns = monotonic_ns(); /* when it came: a late answer is used as long as others */
}

static bool wants_open(const struct http *h, struct MHD_Connection *c)
{
    const char *accept = h->mhd.lookup_connection_value(c, MHD_HEADER_KIND, "Accept");
    return accept && strcasestr(accept, "application/openmetrics-text");
}

/* Answers at the first call, before any body is read: the library then ends the connection. */
static int http_handle(void *ctx, struct MHD_Connection *c, const char *url, const char *method,
                       const char *version, const char *upload, size_t *upload_size, void **request)
{
    struct http *h = ctx;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return h->mhd.queue_response(c, 405, h->not_allowed);
    if (strcmp(url, "/metrics") != 0)
        return h->mhd.queue_response(c, 404, h->not_found);
    http_refresh(h);
    struct MHD_Response *r = h->answers[wants_open(h, c) ? METRICS_OPEN : METRICS_PLAIN];
    return r ? h->mhd.queue_response(c, 200, r) : h->mhd.queue_response(c, 503, h->unavailable);
}

static bool http_prepare(struct http *h)
{
    static char not_found[] = "the metrics are at /metrics\n";
    static char not_allowed[] = "only GET and HEAD\n";
    static char unavailable[] = "out of memory\n";
    static const char type[] = "text/plain; charset=utf-8";
    h->not_found = http_response(h, not_found, MHD_RESPMEM_PERSISTENT, type);
    h->not_allowed = http_response(h, not_allowed, MHD_RESPMEM_PERSISTENT, type);
    h->unavailable = http_response(h, unavailable, MHD_RESPMEM_PERSISTENT, type);
    if (h->not_allowed)
        h->mhd.add_response_header(h->not_allowed, "Allow", "GET, HEAD");
    for (unsigned i = 0; i < SLOTS; i++)
        h->slots[i].fd = -1;
    return h->not_found && h->not_allowed && h->unavailable;
}

static void say_address(int fd)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof(a);
    char host[64], port[8];
    if (getsockname(fd, (struct sockaddr *)&a, &n) < 0 ||
        getnameinfo((struct sockaddr *)&a, n, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return;
    bool v6 = a.ss_family == AF_INET6;
    cli_error("serving http://%s%s%s:%s/metrics", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

static void http_wait_for_end(struct http *h, const sigset_t *ends)
{
    const struct timespec pause = {.tv_nsec = SWEEP_MS * 1000000L};
    while (sigtimedwait(ends, NULL, &pause) < 0)
        http_sweep(h);
}

int metrics_serve(int listen_fd, metrics_source *source, void *ctx, struct error *err)
{
    struct http *h = calloc(1, sizeof(*h));
    if (!h)
        return error_set(err, -ENOMEM, "out of memory");
    pthread_mutex_init(&h->lock, NULL);
    h->source = source;
    h->ctx = ctx;
    int r = mhd_open(&h->mhd, err);
    if (r < 0)
        goto out;
    if (!http_prepare(h)) {
        r = error_set(err, -ENOMEM, "out of memory");
        goto out_responses;
    }
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, NULL); /* the library's thread inherits the mask */
    struct MHD_Daemon *d = h->mhd.start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC, 0, NULL, NULL, http_handle, h,
        MHD_OPTION_LISTEN_SOCKET, listen_fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)SLOTS,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)AGE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)REQUEST_BYTES, MHD_OPTION_NOTIFY_CONNECTION, http_notify, h, MHD_OPTION_END);
    if (d) {
        say_address(listen_fd);
        http_wait_for_end(h, &ends);
        h->mhd.stop_daemon(d);
    } else {
        r = error_set(err, -EIO, "libmicrohttpd does not start: %s", strerror(errno));
    }
    listen_fd = -1; /* the library has closed it */
    http_forget(h);
out_responses:
    if (h->not_found)
        h->mhd.destroy_response(h->not_found);
    if (h->not_allowed)
        h->mhd.destroy_response(h->not_allowed);
    if (h->unavailable)
        h->mhd.destroy_response(h->unavailable);
out:
    if (listen_fd >= 0)
        close(listen_fd);
    free(h);
    return r;
}

/* ---- sockets --------------------------------------------------------------------------------- */

int metrics_listen(const char *where, struct error *err)
{
    char host[64];
    const char *colon = strrchr(where, ':');
    size_t n = colon ? (size_t)(colon - where) : 0;
    bool brackets = n > 1 && where[0] == '[' && where[n - 1] == ']';
    uint64_t port;
    if (!n || n >= sizeof(host) || parse_u64(colon + 1, 0, UINT16_MAX, &port) < 0 ||
        (!brackets && memchr(where, ':', n)))
        return error_set(err, -EINVAL,
                         "--listen: '%s' is no ADDR:PORT, such as 127.0.0.1:9479 or [::1]:9479",
                         where);
    snprintf(host, sizeof(host), "%.*s", (int)(n - 2 * brackets), where + brackets);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *a;
    if (getaddrinfo(host, colon + 1, &hints, &a) != 0)
        return error_set(err, -EINVAL, "--listen: '%s' is no numeric address", host);
    _cleanup_close_ int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int r = fd < 0 ? -errno : 0;
    const int one = 1;
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (fd >= 0 && (bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, SOMAXCONN) < 0))
        r = -errno;
    freeaddrinfo(a);
    if (r < 0)
        return error_set(err, r, "cannot listen on %s: %s", where, strerror(-r));
    return TAKE_FD(fd);
}

int metrics_handed_over(void)
{
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    int listens = 0;
    socklen_t n = sizeof(listens);
    if (!pid || !fds || atol(pid) != (long)getpid() || atol(fds) < 1)
        return -1;
    if (getsockopt(LISTEN_FD_FIRST, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) < 0 || !listens)
        return -1;
    return LISTEN_FD_FIRST;
}
