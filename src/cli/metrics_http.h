/* Serves metrics over HTTP: GET and HEAD of /metrics, by libmicrohttpd, which is opened when it is
 * needed. Trusts no scraper: places, times and sizes are limited. */
#ifndef CEDE_CLI_METRICS_HTTP_H
#define CEDE_CLI_METRICS_HTTP_H

#include "cli/metrics_text.h"
#include "lib/util.h"

/* Makes the text of each format (malloc) or NULL; called from one thread, once a second at most. */
typedef void metrics_source(void *ctx, char *texts[METRICS_FORMATS]);

/* A listening socket for "ADDR:PORT" or "[ADDR]:PORT", numeric; port 0: a free one. */
int metrics_listen(const char *where, struct error *err);
/* The socket that systemd handed over, or -1. */
int metrics_handed_over(void);

/* Until SIGTERM or SIGINT; says where on standard error. Takes listen_fd. 0, or -errno if it could
 * not begin. */
int metrics_serve(int listen_fd, metrics_source *source, void *ctx, struct error *err);

#endif
