/* What verbs with targets share: the command line, and one request for several targets. Chooses
 * between the daemon and the direct way, and says what became of each target. */
#ifndef CEDE_CLI_TARGETS_H
#define CEDE_CLI_TARGETS_H

#include "cli/client.h"

/* A target as a person types it into a request: what proto_target() takes, a user's name for the
 * number before /, and %12 for #12, which a shell takes for a comment. CLI_OK, or CLI_USAGE with
 * the message printed. */
int target_parse(const char *verb, const char *text, struct request *r);

/* "#12 train", and whose job it is where that is another user's. */
#define TARGET_TEXT 160
const char *target_text(char buf[static TARGET_TEXT], const json_t *job);

/* Waits for the end of what a daemon has begun, and says what became of it. 0 or -errno. */
typedef int (*finish_fn)(struct client *c, const struct request *r, const json_t *reply,
                         struct error *err);

/* All targets are tried. Returns the exit status: CLI_FAILED if any failed, CLI_USAGE, before
 * anything is done, if one cannot be a target. finish: NULL for what is done when the reply comes;
 * else a daemon is required. */
int targets_do(const char *verb, const struct request *what, char *const *targets, int n,
               finish_fn finish);

/* The same for all GPU programs that no job owns, that this user may set and that nobody detached.
 */
int targets_do_others(const struct request *what);

/* A verb that takes targets and no option but -h. Returns the exit status. */
int targets_verb(int argc, char **argv, const char *verb, const char *help, enum proto_op op,
                 finish_fn finish);

#endif
