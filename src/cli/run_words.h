/* Variables of the environment that stand for options of `cede run`. */
#ifndef CEDE_CLI_RUN_WORDS_H
#define CEDE_CLI_RUN_WORDS_H

#include <sys/types.h>

#include "api/proto.h"

/* Puts CEDE_CLASS, CEDE_WEIGHT and CEDE_NAME into the request. As in ceded, they only lower: a
 * value that would raise, or is not valid, is reported on standard error and has no effect. */
void run_words(struct request *r);

/* The value of CEDE_POOL; NULL: it is not set, empty, 0 or no. */
const char *run_words_pool(void);

/* Called in the child that becomes the program: variables with which a service manager addresses
 * the runner by its pid then name the program (sd_listen_fds(3), sd_watchdog_enabled(3)). */
void run_words_pid(pid_t runner);

#endif
