/* What the environment says to `cede run`, where its options say nothing. */
#ifndef CEDE_CLI_RUN_WORDS_H
#define CEDE_CLI_RUN_WORDS_H

#include "control/proto.h"

/* CEDE_CLASS, CEDE_WEIGHT and CEDE_NAME into the request. As for ceded, it is a word that lowers:
 * what would raise, or is none, is reported on standard error and has no effect. */
void run_words(struct request *r);

/* CEDE_POOL; NULL: it is not there, empty, 0 or no. */
const char *run_words_pool(void);

#endif
