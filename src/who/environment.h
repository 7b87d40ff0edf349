/* Arguments and environment of a program, such as CEDE_CLASS, its own or inherited. */
#ifndef CEDE_WHO_ENVIRONMENT_H
#define CEDE_WHO_ENVIRONMENT_H

#include "who/identify.h"

/* Reads arguments and variables of exactly this program, not of one that exec(2) puts in its place
 * meanwhile. Words for cede that it lacks, and all variables if it has written over its
 * environment, come from its nearest ancestor that has them, else from the first process of its
 * container, if that is root's or the same user's. 0; -ESRCH, -EACCES; -EAGAIN: the process calls
 * exec(2) again and again. */
int environment_read(struct proc_id id, const char *container, struct pairs wanted,
                     struct identify_answer *out);

#endif
