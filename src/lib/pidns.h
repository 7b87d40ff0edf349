/* Pid namespaces: in a container a process has another number than here. Reads only. */
#ifndef CEDE_LIB_PIDNS_H
#define CEDE_LIB_PIDNS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct pidns {
    uint64_t id;
    int level; /* 1: ours; more: so deep below it; 0: not known */
};

/* The one that the process runs in. 0 or -errno. */
int pidns_of(pid_t pid, struct pidns *out);

/* The level alone, of any user's process; or -errno. */
int pidns_level(pid_t pid);

static inline bool pidns_same(struct pidns a, struct pidns b)
{
    return a.level && a.id == b.id;
}

/* The number that a process has in ns; 0: it does not run in that one. */
pid_t pidns_number(struct pidns ns, pid_t pid);

/* Which process `peer` means by `pid`, where it may run in a pid namespace below ours. 0; -ESRCH:
 * none; -EACCES: this user may not look; -EAGAIN: not found in the 20 ms that it may take. */
int pidns_translate(pid_t peer, pid_t pid, pid_t *out);

#endif
