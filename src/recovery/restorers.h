/* The restorers that are on this machine, as /proc shows them. */
#ifndef CEDE_RECOVERY_RESTORERS_H
#define CEDE_RECOVERY_RESTORERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* 1: this process is one, of that user; 0: not, or gone; else an error. */
int restorers_have(pid_t pid, uid_t *owner);
/* The numbers of its descriptors of journal and lock, which are its first arguments. */
int restorers_descriptors(pid_t restorer, int *journal, int *lock);
/* Whether that descriptor of it is this file. */
bool restorers_hold(pid_t restorer, int lock, uint64_t device, uint64_t inode);
/* Lets those of this user go on that hold this lock and were stopped (SIGSTOP): until they are done
 * nobody else can begin. */
void restorers_continue(uint64_t device, uint64_t inode);

#endif
