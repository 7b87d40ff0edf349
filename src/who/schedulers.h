/* Recognizes processes that schedule GPU programs, so that they are not scheduled themselves. */
#ifndef CEDE_WHO_SCHEDULERS_H
#define CEDE_WHO_SCHEDULERS_H

#include "who/procfs.h"

/* Whether it is a process of cede, a program with which cede checks a driver, a control daemon of
 * MPS of root or our user, or the MPS server of a pool whose keeper lives. The name alone does not
 * count, because every user can choose it. */
bool proc_is_scheduler(const struct proc_stat *st, uid_t uid);

/* Whether it is an MPS server or its control daemon, which have no work of their own: run by root,
 * by our user, or from a file that root has installed under that name. */
bool proc_serves_mps(const struct proc_stat *st, uid_t uid);

/* Whether it is the keeper of a pool (src/memory/pool). Its descendants serve all jobs of the pool,
 * and so do not belong to the job that started it. */
bool proc_is_keeper(const struct proc_stat *st);

#endif
