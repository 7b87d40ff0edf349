/* See serve_http.h. A connection is suspended from the end of its request until the answer. */
#include "serve_http.h"
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct http {
    struct MHD_Daemon *daemon;
    const char *path;
    void (*on_request)(void *, struct http_request *);
    void *arg;
    unsigned open; /* requests, atomic */
};
static volatile sig_atomic_t ended;
static int failed; /* what http_close() returns */

static void on_signal(int number)
{
    ended = number;
}

/* Reads the header Deadline-Ms. Its answer's status if the request gets that at once, else 0. */
static unsigned read_deadline(struct http_request *q)
{
    char *end;
    const char *header = MHD_lookup_connection_value(q->connection, MHD_HEADER_KIND, "Deadline-Ms");
    const double ms = header ? strtod(header, &end) : 0;
    if (!header)
        return 0;
    if (end == header || *end || !(ms < 1.8e16)) {
        strcpy(q->answer, "{\"error\": \"Deadline-Ms is no number\"}\n");
        return MHD_HTTP_BAD_REQUEST;
    }
    if (ms <= 0) {
        strcpy(q->answer, "{\"error\": \"the deadline has passed\"}\n");
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    }
    q->deadline_us = (uint64_t)(ms * 1000);
    q->deadline_us += !q->deadline_us; /* 0 would be none */
    return 0;
}

/* Called with the head of a request, with parts of its body, with its end, and when it is resumed.
 */
static enum MHD_Result on_part(void *arg, struct MHD_Connection *c, const char *url,
                               const char *method, const char *version, const char *part,
                               size_t *size, void **state)
{
    struct http *h = (struct http *)arg;
    struct http_request *q = (struct http_request *)*state;
    if (!q) {
        *state = q = (struct http_request *)calloc(1, sizeof(*q));
        if (!q)
            return MHD_NO;
        q->connection = c;
        q->status =
            strcmp(method, "POST") || strcmp(url, h->path) ? MHD_HTTP_NOT_FOUND : read_deadline(q);
    } else if (*size) { /* what is too long is cut off */
        const size_t room = sizeof(q->body) - 1 - q->size, n = *size < room ? *size : room;
        memcpy(q->body + q->size, part, n);
        q->size += (unsigned)n;
        *size = 0;
    } else if (q->status) {
        struct MHD_Response *r =
            MHD_create_response_from_buffer(strlen(q->answer), q->answer, MHD_RESPMEM_MUST_COPY);
        enum MHD_Result queued = MHD_queue_response(c, q->status, r);
        MHD_destroy_response(r);
        return queued;
    } else {
        q->taken = 1;
        __atomic_fetch_add(&h->open, 1, __ATOMIC_RELAXED);
        MHD_suspend_connection(c);
        h->on_request(h->arg, q);
    }
    return MHD_YES;
}

/* An answer was sent, or the connection has ended. */
static void on_end(void *arg, struct MHD_Connection *c, void **state,
                   enum MHD_RequestTerminationCode code)
{
    struct http_request *q = (struct http_request *)*state;
    if (q && q->taken)
        __atomic_fetch_sub(&((struct http *)arg)->open, 1, __ATOMIC_RELAXED);
    free(q);
}

/* A socket that listens, or -1, with errno. MHD_start_daemon() would lose errno. */
static int listen_at(uint16_t port)
{
    const int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in at;
    memset(&at, 0, sizeof(at));
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    return bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, SOMAXCONN) ? -1 : fd;
}

struct http *http_serve(const char *port, const char *path,
                        void (*on_request)(void *, struct http_request *), void *arg,
                        const struct cede_scope *scope)
{
    static struct http h;
    char *end;
    port = port ? port : "8000";
    const unsigned long number = strtoul(port, &end, 10);
    if (end == port || *end || number > UINT16_MAX) {
        fprintf(stderr, "the port is %s: give 0 to 65535\n", port);
        return failed = 2, (struct http *)NULL;
    }
    const int fd = listen_at((uint16_t)number);
    if (fd < 0) {
        fprintf(stderr, "127.0.0.1:%s: %s\n", port, strerror(errno));
        return failed = 1, (struct http *)NULL;
    }
    h.path = path;
    h.on_request = on_request;
    h.arg = arg;
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    h.daemon = MHD_start_daemon(
        MHD_USE_ERROR_LOG | MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
        on_part, &h, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, on_end, &h,
        MHD_OPTION_CONNECTION_TIMEOUT, 60U, MHD_OPTION_END);
    if (!h.daemon)
        return failed = 1, (struct http *)NULL; /* it has said why */
    fprintf(stderr, "listening on 127.0.0.1:%d\n",
            MHD_get_daemon_info(h.daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    while (!ended && !cede_scope_cancelled(scope))
        usleep(50000);
    return &h;
}

void http_answer(struct http_request *q, unsigned status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(q->answer, sizeof(q->answer), format, args);
    va_end(args);
    q->status = status;
    MHD_resume_connection(q->connection);
}

int http_close(struct http *h)
{
    if (!h)
        return failed;
    close(MHD_quiesce_daemon(h->daemon)); /* no further connections */
    while (__atomic_load_n(&h->open, __ATOMIC_RELAXED))
        usleep(1000);
    MHD_stop_daemon(h->daemon);
    return 0;
}
