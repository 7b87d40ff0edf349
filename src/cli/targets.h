/* Verbs with targets: the command line, and one request for each target. A transient daemon is
 * started if none runs, and the outcome for each target is printed. */
#ifndef CEDE_CLI_TARGETS_H
#define CEDE_CLI_TARGETS_H

#include "api/client.h"

/* Puts a target of the command line into a request. In addition to proto_target()'s forms it may
 * have a user's name before /, and %12 for #12, which a shell takes for a comment. CLI_OK, or
 * CLI_USAGE after a message. */
int target_parse(const char *verb, const char *text, struct request *r);

/* "#12 train", with the user's name if the job is another user's. */
#define TARGET_TEXT 160
const char *target_text(char buf[static TARGET_TEXT], const json_t *job);

/* Waits for the end of an operation of the daemon, and prints the outcome. 0 or -errno. */
typedef int (*finish_fn)(struct client *c, const struct request *r, const json_t *reply,
                         struct error *err);

/* Tries all targets. Returns the exit status: CLI_FAILED if any failed; CLI_USAGE, before any
 * request, if one is not a valid target. finish: NULL if the request is done when its reply comes.
 */
int targets_do(const char *verb, const struct request *what, char *const *targets, int n,
               finish_fn finish);

/* The same for all GPU programs in no job that this user may set and that were not detached. */
int targets_do_others(const struct request *what);

/* Why the memory of a swapped job is in host memory, and what brings it back; NULL: it is not. */
const char *memory_away(const json_t *job);
void say_memory_away(const json_t *job);

/* Says so and returns true if the daemon found nothing to undo for the job, as its reply has it. */
bool say_vain(const json_t *job, const json_t *reply);

/* Says that no target is given; CLI_USAGE. */
int targets_none(const char *verb);

/* A verb that takes targets and no option but -h. Returns the exit status. */
int targets_verb(int argc, char **argv, const char *verb, const char *help,
                 const struct request *what, finish_fn finish);

#endif
