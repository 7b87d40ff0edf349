/* Callers in containers. Their processes have other numbers there than here; and those that come by
 * the socket that is made for containers are guests: whatever user they are, they reach what runs
 * in their pid namespace and nothing else. Uid 0 in a container is uid 0 for SO_PEERCRED too. */
#ifndef CEDE_CONTROL_GUEST_H
#define CEDE_CONTROL_GUEST_H

#include "control/rights.h"
#include "lib/procfs.h"

/* The number of a process for this caller; 0: it runs in another pid namespace. */
pid_t guest_number(const struct caller *who, struct proc_id p);

/* Whether the caller may know of it and, as far as its user may, steer it. */
bool guest_reaches(const struct caller *who, struct proc_id p);

/* Who pauses or swaps out by this caller's word, as the journal has it; and what that is to another
 * caller: what a guest did its user may undo from anywhere, and a guest nothing from outside. */
uid_t guest_word(const struct caller *who);
uid_t guest_whose(const struct caller *who, uid_t word);

#endif
