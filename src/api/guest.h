/* Callers in containers. Their processes have other pids there than here. Callers on the socket for
 * containers are guests: whatever their user, they reach only processes in their pid namespace,
 * because uid 0 in a container is uid 0 for SO_PEERCRED as well. The socket is made by
 * daemon/container_socket.c and served by server.c; who/pidns.h has the pids. */
#ifndef CEDE_API_GUEST_H
#define CEDE_API_GUEST_H

#include "api/rights.h"
#include "who/procfs.h"

/* The pid of a process for this caller; 0: it runs in another pid namespace. */
pid_t guest_number(const struct caller *who, struct proc_id p);

/* Whether the caller may see the process and, as far as its user may, steer it. */
bool guest_reaches(const struct caller *who, struct proc_id p);

/* The user that the journal names for a pause or swap-out by this caller; and the user that such a
 * record stands for to another caller. A user may undo a guest's action from anywhere; a guest may
 * not undo one from outside its container. */
uid_t guest_word(const struct caller *who);
uid_t guest_whose(const struct caller *who, uid_t word);

#endif
