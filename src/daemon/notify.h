/* What the service manager and the log hear from the daemon. Keeps no state of its own. */
#ifndef CEDE_DAEMON_NOTIFY_H
#define CEDE_DAEMON_NOTIFY_H

#include <stdbool.h>
#include <syslog.h>

#include "common/util.h"

/* One-line messages on standard error. */
struct logger {
    int level;     /* LOG_ERR .. LOG_DEBUG: the last that is shown */
    bool prefixed; /* "<3>" before the line, for a journal that reads our standard error */
};

void logger_init(struct logger *l, int level);
void logger_say(const struct logger *l, int level, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* The sd_notify(3) protocol: "READY=1\nSTATUS=...". 0: sent, or nobody listens; or -errno. */
int notify_send(const char *state);

#endif
