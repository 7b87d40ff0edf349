/* Control groups: which groups a process is in, and which processes are in a group. Only the
 * hierarchies that systemd and containers use to tell programs apart are read, at their usual mount
 * points; a group that cannot be read counts as absent. Only the caller's own group is changed. */
#ifndef CEDE_WHO_CGROUP_H
#define CEDE_WHO_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "who/workload.h"

/* A group keeps its number, whatever its path becomes, and no other group of the hierarchy gets the
 * number before the next boot. */
struct cgroup {
    uint32_t hierarchy; /* 1 to CGROUP_HIERARCHIES; 0: none */
    uint64_t id;
};

#define CGROUP_HIERARCHIES 4U
#define CGROUP_LEVELS_MAX  32U

static inline bool cgroup_same(struct cgroup a, struct cgroup b)
{
    return a.hierarchy == b.hierarchy && a.id == b.id;
}

/* Gets the groups that the process is in, innermost first and without the root of the hierarchy, at
 * most CGROUP_LEVELS_MAX. Returns their number, or an error if they cannot be read now
 * (proc_unsure()). */
int cgroup_levels(pid_t pid, uint32_t hierarchy, uint64_t ids[CGROUP_LEVELS_MAX]);

/* Finds a group that contains only this process and its descendants, and neither the caller nor
 * groups below. False: there is none, or it has more than 512 processes. */
bool cgroup_own(pid_t root, struct cgroup *out);

/* Finds the innermost group of that name that the process is in or below. */
bool cgroup_above(pid_t pid, const char *name, struct cgroup *out);

/* The oldest process, of the first 512, in the innermost group with `part` in its name that this
 * process is in or below; 0: none. In a container that is the container's first process. */
pid_t cgroup_first(pid_t pid, const char *part);

/* Whether living processes are in it or, in version 2, below it. False if the caller does not have
 * CAP_DAC_READ_SEARCH. */
bool cgroup_populated(struct cgroup g);

/* Gets what the paths of a process's groups, in all hierarchies, say about it. named_by_root: only
 * names count that no user but root, or this process's user, could give; a group whose owner cannot
 * be found says nothing. */
void cgroup_workload(pid_t pid, bool named_by_root, struct workload *out);

/* Moves this process into a new group below its present one, so that the programs that it starts
 * can be recognized whatever happens to their parents and sessions. Only in version 2, and neither
 * from the root nor where the process has a group to itself already. Also removes empty groups of
 * callers that were killed. False: the process stays, as for a user without delegation. */
bool cgroup_run_enter(void);
/* Moves this process back to the group above, and removes the other one if it is empty. all: leaves
 * groups that callers of this program entered, too. */
void cgroup_run_leave(bool all);

/* Moves this process to the sibling group `name`, which is made if it is missing. Without the right
 * to do that the process stays where it is. */
void cgroup_leave(const char *name);

#endif
