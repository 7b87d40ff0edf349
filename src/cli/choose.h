/* Selects the jobs that targets on the command line name from a reply to ps. */
#ifndef CEDE_CLI_CHOOSE_H
#define CEDE_CLI_CHOOSE_H

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"

/* Keeps in all.jobs only jobs that a target names, in their order. CLI_OK; CLI_FAILED if a target
 * names none, CLI_USAGE if one is not a valid target, after a message. */
int choose_jobs(const char *verb, json_t *all, char *const *targets, int n);

/* Asks the daemon for the number of a pid's job, because pids in a container are not the daemon's.
 * UINT64_MAX: it is in none. */
int choose_job_of(pid_t pid, uint64_t *number, struct error *err);

#endif
