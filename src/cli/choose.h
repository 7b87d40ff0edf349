/* The jobs that a person means, of all that a daemon has told. */
#ifndef CEDE_CLI_CHOOSE_H
#define CEDE_CLI_CHOOSE_H

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/util.h"

/* Keeps in all.jobs those that the targets name; each once, in their order. CLI_OK; CLI_FAILED if a
 * target names none, CLI_USAGE if one can be no target, with the message printed. */
int choose_jobs(const char *verb, json_t *all, char *const *targets, int n);

/* The number of the job that a process is in, UINT64_MAX if in none: only the daemon knows that of
 * one that its parents have left, and in a container its numbers of processes are others. */
int choose_job_of(pid_t pid, uint64_t *number, struct error *err);

#endif
