/* One-line messages on standard error, of this process. Never waits: a line for which a pipe, a
 * terminal or a socket has no room is dropped, and the next one that fits says how many were. Must
 * not be used from several threads. */
#ifndef CEDE_LIB_LOG_H
#define CEDE_LIB_LOG_H

#include <stdbool.h>
#include <sys/types.h>
#include <syslog.h>

#include "lib/util.h"

/* name: before each line; or "<3>", for a journal that reads our standard error. level: LOG_ERR ..
 * LOG_DEBUG, the last that is shown. Without this call: "cede", LOG_WARNING. */
void log_open(const char *name, int level);
void log_set_level(int level);
void log_say(int level, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Of what an account (lib/account.h) has done or asked for: LOG_USER_BURST lines at once, one in
 * LOG_USER_NS; the next one says how many were left out. */
#define LOG_USER_BURST 50U
#define LOG_USER_NS    (100 * NSEC_PER_MSEC)
void log_user(uid_t account, int level, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
