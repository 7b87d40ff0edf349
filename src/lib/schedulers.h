/* Processes that schedule GPU programs, and are none. */
#ifndef CEDE_LIB_SCHEDULERS_H
#define CEDE_LIB_SCHEDULERS_H

#include "lib/procfs.h"

/* A process of cede, a program of its check of a driver, root's or our own control daemon of
 * MPS, or the MPS server of a pool whose keeper lives. Everybody may choose a process's name, so
 * that alone does not make it one. */
bool proc_is_scheduler(const struct proc_stat *st, uid_t uid);

/* An MPS server or its control daemon, which run nothing of their own: root's, our own user's, or
 * by a file that root has installed under that name. */
bool proc_serves_mps(const struct proc_stat *st, uid_t uid);

/* The keeper of a pool (src/pool), whose descendants serve all that are in it: they are no part of
 * the job that the first of these is in. */
bool proc_is_keeper(const struct proc_stat *st);

#endif
