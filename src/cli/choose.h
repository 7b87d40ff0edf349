/* Selects the jobs that targets on the command line name from a reply to ps. */
#ifndef CEDE_CLI_CHOOSE_H
#define CEDE_CLI_CHOOSE_H

#include <jansson.h>

/* Keeps in all.jobs only jobs that a target names, in their order. CLI_OK; CLI_FAILED if a target
 * names none, CLI_USAGE if one is not a valid target, after a message. */
int choose_jobs(const char *verb, json_t *all, char *const *targets, int n);

#endif
