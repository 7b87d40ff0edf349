/* HTTP for serve.c and serve.cpp, by libmicrohttpd: one thread reads requests and sends answers,
 * and a request that waits takes none. It knows nothing of models. C11 and C++17. */
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H
#include <cede/scope.h>
#ifdef __cplusplus
extern "C" {
#endif

struct http;
struct http_request { /* until it is answered */
    char body[4096];
    uint64_t deadline_us; /* of the header Deadline-Ms; 0: none */
    unsigned size, status;
    int taken;
    char answer[192];
    struct MHD_Connection *connection;
};

/* Calls on_request(), which must not wait, for each POST to the path at 127.0.0.1. port: NULL is
 * 8000, and 0 any free one. Returns at SIGTERM or SIGINT, or when the scope is cancelled; requests
 * come until http_close(). NULL, with a message: it cannot listen. A request whose Deadline-Ms is
 * no number is answered with 400, and one that is late already with 503. */
struct http *http_serve(const char *port, const char *path,
                        void (*on_request)(void *arg, struct http_request *), void *arg,
                        const struct cede_scope *scope);
/* From any thread, once for each request. */
__attribute__((format(printf, 3, 4))) void http_answer(struct http_request *q, unsigned status,
                                                       const char *format, ...);
/* Waits until all requests are answered. 0; h is NULL: what to exit with, 2 for a wrong port. */
int http_close(struct http *h);

#ifdef __cplusplus
}
#endif
#endif
