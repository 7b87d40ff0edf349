/* What a process has to be to be a daemon that others rely on: best effort, each part helps and
 * none is needed. */
#ifndef CEDE_DAEMON_PROCESS_H
#define CEDE_DAEMON_PROCESS_H

#include <stddef.h>
#include <sys/types.h>

/* Standard input, descriptors, directory, limits, out-of-memory score. */
void process_become_daemon(void);

/* What it decides a request may be waiting for, and on devices that are processors the programs it
 * decides about would keep it from the processor: some ms, seen as twice the latency. A user's own
 * daemon has no right to a higher priority, and does without. */
void process_raise_priority(void);
/* Tells who started a transient daemon (cli/transient.c) that it listens, or that another has the
 * place. */
void process_say_served(void);

/* A message to the service manager, by sd_notify(3)'s protocol: "READY=1\nSTATUS=...". 0: sent, or
 * no service manager asked for it; or -errno. */
int notify_send(const char *state);

/* Children that nothing else waits for. */
#define CHILDREN_MAX 64
struct children {
    pid_t v[CHILDREN_MAX];
    size_t n;
};
/* Those that this process had before it began, of a daemon that started anew by exec: a swapper
 * that goes on to its end. */
void process_inherit(struct children *x);
/* One that was killed: some end only later, in a system call that has no way out. */
void process_leave(struct children *x, pid_t pid);
/* After SIGCHLD. */
void process_reap(struct children *x);

#endif
