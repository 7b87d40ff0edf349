/* Processes that schedule GPU programs, and are none. */
#ifndef CEDE_LIB_SCHEDULERS_H
#define CEDE_LIB_SCHEDULERS_H

#include "lib/procfs.h"

/* A process of cede, or the control daemon of MPS. Everybody may choose a process's name, so that
 * alone does not make it one. */
bool proc_is_scheduler(const struct proc_stat *st, uid_t uid);

#endif
