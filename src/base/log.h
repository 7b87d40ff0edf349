/* Writes one-line messages to standard error, and never waits: a line for which a pipe, a terminal
 * or a socket has no room is dropped, and the next line that fits is preceded by the number of
 * dropped ones. Must not be used from several threads. */
#ifndef CEDE_BASE_LOG_H
#define CEDE_BASE_LOG_H

#include <sys/types.h>
#include <syslog.h>

#include "base/util.h"

/* name stands before each line or, if systemd's journal reads standard error, the level does, as
 * "<3>". level, LOG_ERR to LOG_DEBUG, is the last that is shown. Without this call they are "cede"
 * and LOG_WARNING. */
void log_open(const char *name, int level);
void log_set_level(int level);
void log_say(int level, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* A message about what a principal (base/principal.h) did or asked for. Of one principal
 * LOG_USER_BURST lines are written at once, and one in LOG_USER_NS in the long run; the next line
 * is preceded by the number of those left out. */
#define LOG_USER_BURST 50U
#define LOG_USER_NS    (100 * NSEC_PER_MSEC)
void log_user(uid_t principal, int level, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
