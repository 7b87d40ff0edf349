/* Serves metrics over HTTP: GET and HEAD of /metrics, by libmicrohttpd, which is opened at run
 * time. No scraper is trusted: numbers, times and sizes of connections are limited. */
#ifndef CEDE_AGENTS_METRICS_HTTP_H
#define CEDE_AGENTS_METRICS_HTTP_H

#include "agents/prometheus/metrics.h"
#include "base/util.h"

/* Makes the text of each format (malloc) or NULL. One thread calls it, at most once per second. */
typedef void metrics_source(void *ctx, char *texts[METRICS_FORMATS]);

/* Makes a listening socket for "ADDR:PORT" or "[ADDR]:PORT", numeric; port 0: any free port. */
int metrics_listen(const char *where, struct error *err);
/* The socket that systemd handed over, or -1. */
int metrics_handed_over(void);

/* Serves until SIGTERM or SIGINT, and prints the address to standard error. Closes listen_fd. 0, or
 * -errno if it could not begin. */
int metrics_serve(int listen_fd, metrics_source *source, void *ctx, struct error *err);

#endif
