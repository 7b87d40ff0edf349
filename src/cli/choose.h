/* The jobs that a person means, of all that a daemon has told. */
#ifndef CEDE_CLI_CHOOSE_H
#define CEDE_CLI_CHOOSE_H

#include <jansson.h>

/* Keeps in all.jobs those that the targets name; each once, in their order. CLI_OK; CLI_FAILED if a
 * target names none, CLI_USAGE if one can be no target, with the message printed. */
int choose_jobs(const char *verb, json_t *all, char *const *targets, int n);

#endif
