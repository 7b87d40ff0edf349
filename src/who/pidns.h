/* Translates the pids of processes in containers, which have their own pid namespaces. */
#ifndef CEDE_WHO_PIDNS_H
#define CEDE_WHO_PIDNS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct pidns {
    uint64_t id;
    int level; /* 1: ours; 2: directly below it; ...; 0: not known */
};

/* Gets the namespace in which the process runs. 0 or -errno. */
int pidns_of(pid_t pid, struct pidns *out);

/* Its level, of any user's process; or -errno. */
int pidns_level(pid_t pid);

/* The pid that a process has in ns; 0: it does not run in that namespace. */
pid_t pidns_number(struct pidns ns, pid_t pid);

/* Finds the process that `peer`, which may run in a pid namespace below ours, means by `pid`. 0;
 * -ESRCH: none; -EACCES: this user may not look; -EAGAIN: not found within 20 ms. */
int pidns_translate(pid_t peer, pid_t pid, pid_t *out);

#endif
