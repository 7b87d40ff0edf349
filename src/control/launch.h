/* What started a program, as a number: programs that one thing started are one job. Workers of
 * torchrun, mpirun or Ray, and steps of Slurm, wait for each other, and a person who started one
 * thing is to have one share.
 *
 * A number that is made to be that of another user's launch is of no use: only programs of the
 * job's user join a job (model_job_of_launch()), and that user may start one below it as well. So
 * there is no secret in the number, and it stays the same when ceded is restarted. */
#ifndef CEDE_CONTROL_LAUNCH_H
#define CEDE_CONTROL_LAUNCH_H

#include "control/classify.h"
#include "control/facts.h"

/* Of a program that shall be what `o` says. *out 0: it is a job by itself. Reads /proc; an error is
 * one of proc_unsure(). */
int launch_of(const struct facts *f, const struct outcome *o, uint64_t *out);

/* "process", "session", "cgroup", "container" or "step"; false: it is none of them. */
bool launch_parse(const char *text, enum launch_by *out);
const char *launch_name(enum launch_by by); /* LAUNCH_ANY: "" */

#endif
