/* What the environment says to `cede run`, where its options say nothing. */
#ifndef CEDE_CLI_RUN_WORDS_H
#define CEDE_CLI_RUN_WORDS_H

#include <sys/types.h>

#include "control/proto.h"

/* CEDE_CLASS, CEDE_WEIGHT and CEDE_NAME into the request. As for ceded, it is a word that lowers:
 * what would raise, or is none, is reported on standard error and has no effect. */
void run_words(struct request *r);

/* CEDE_POOL; NULL: it is not there, empty, 0 or no. */
const char *run_words_pool(void);

/* In the child that becomes the program: what a service manager says to the process that it
 * started, by its pid, is for the program (sd_listen_fds(3), sd_watchdog_enabled(3)). */
void run_words_pid(pid_t runner);

#endif
