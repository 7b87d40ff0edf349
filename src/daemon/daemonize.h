/* Sets a process up as a daemon: limits, priority, notification of the service manager, children.
 * All of it is best effort: each part helps and none is required. */
#ifndef CEDE_DAEMON_DAEMONIZE_H
#define CEDE_DAEMON_DAEMONIZE_H

#include <stddef.h>
#include <sys/types.h>

/* Standard input, descriptors, directory, limits, out-of-memory score. */
void process_become_daemon(void);

/* Raises the daemon's priority, since requests wait for its decisions: where the device is a
 * processor, the scheduled programs would delay the daemon by some ms, which doubled the latency. A
 * user's own daemon has no right to a higher priority, and works without. */
void process_raise_priority(void);
/* Reports by a byte through this pipe to the process that started a transient daemon
 * (cli/transient.c) that this daemon listens, or that another one does. */
#define DAEMON_STARTER_FD 3
void process_say_served(void);

/* Sends the service manager a message of sd_notify(3)'s protocol: "READY=1\nSTATUS=...". 0: sent,
 * or no service manager asked for it; or -errno. */
int notify_send(const char *state);

/* Children that nothing else waits for. */
#define CHILDREN_MAX 64
struct children {
    pid_t v[CHILDREN_MAX];
    size_t n;
};
/* Lists the children that a daemon has kept when it started anew by exec, such as a swapper that
 * goes on to its end. */
void process_inherit(struct children *x);
/* Adds a child that was killed and may end later, when it hangs in a system call. */
void process_leave(struct children *x, pid_t pid);
/* Called after SIGCHLD. */
void process_reap(struct children *x);

/* Blocks or unblocks SIGTERM and SIGINT, which stay pending from the end of the loop until the next
 * loop begins in the program that ceded becomes when it starts anew. how: SIG_BLOCK, SIG_UNBLOCK.
 */
void process_mask_signals(int how);

#endif
