/* One-line messages on standard error. Keeps no state of its own. */
#ifndef CEDE_LIB_LOG_H
#define CEDE_LIB_LOG_H

#include <stdbool.h>
#include <syslog.h>

#include "lib/util.h"

struct logger {
    int level;     /* LOG_ERR .. LOG_DEBUG: the last that is shown */
    bool prefixed; /* "<3>" before the line, for a journal that reads our standard error */
};

void logger_init(struct logger *l, int level);
void logger_say(const struct logger *l, int level, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
