/* Finds the restorers of this machine in /proc. */
#ifndef CEDE_JOURNAL_RESTORERS_H
#define CEDE_JOURNAL_RESTORERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The restorer's descriptors. Its arguments are its devices and its directory, for users who may
 * not look at the descriptors of root's restorer. Only root's arguments are read, because another
 * process may have any name, and can delay a reader of its arguments for as long as it likes. */
#define RESTORE_JOURNAL_FD 3
#define RESTORE_LOCK_FD    4
#define RESTORE_PIPE_FD    5
#define RESTORE_MEMORY_FD  6

/* 1: the process is a restorer, of *owner; 0: it is none, or gone; or an error. */
int restorers_have(pid_t pid, uid_t *owner);
/* Whether the restorer has that lock. */
bool restorers_have_lock(pid_t restorer, uint64_t device, uint64_t inode);
/* Continues this user's restorers that have this lock and were stopped (SIGSTOP), because no cede
 * can begin there before they are done. */
void restorers_continue(uint64_t device, uint64_t inode);

#endif
