/* The restorers that are on this machine, as /proc shows them. */
#ifndef CEDE_RECOVERY_RESTORERS_H
#define CEDE_RECOVERY_RESTORERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What it is started with, as its descriptors. Its arguments say of what devices and in which
 * directory, for users who may not look at the descriptors of root's. Of any other process they are
 * not read: it can keep them from being read for as long as it likes, and may have any name. */
#define RESTORE_JOURNAL_FD 3
#define RESTORE_LOCK_FD    4
#define RESTORE_PIPE_FD    5
#define RESTORE_MEMORY_FD  6

/* 1: this process is one, of that user; 0: not, or gone; else an error. */
int restorers_have(pid_t pid, uid_t *owner);
/* Whether it has that lock. */
bool restorers_hold(pid_t restorer, uint64_t device, uint64_t inode);
/* Lets those of this user go on that hold this lock and were stopped (SIGSTOP): until they are done
 * nobody else can begin. */
void restorers_continue(uint64_t device, uint64_t inode);

#endif
