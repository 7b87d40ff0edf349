/* A hash of what started a program: programs with the same launch are one job. Workers of torchrun,
 * mpirun or Ray, and steps of Slurm, wait for each other, and a person who started one thing is to
 * have one share.
 *
 * A forged number gains nothing, since only programs of the job's owner join a job
 * (model_job_of_launch()), and that user may also start a program below the job. So the hash needs
 * no secret, and it stays the same when ceded is restarted. */
#ifndef CEDE_API_RULES_LAUNCH_H
#define CEDE_API_RULES_LAUNCH_H

#include "api/rules/facts.h"
#include "api/rules/match.h"

/* The launch of a program that is classified as `o`; *out 0: it is a job by itself. Reads /proc; an
 * error is one of proc_unsure(). */
int launch_of(const struct facts *f, const struct outcome *o, uint64_t *out);

/* Reads "process", "session", "cgroup", "container" or "step"; false: another text. */
bool launch_parse(const char *text, enum launch_by *out);
const char *launch_name(enum launch_by by); /* LAUNCH_ANY: "" */

#endif
