/* Control groups: which one is a process's own, who is in it. Only of the hierarchies that systemd
 * and containers use for telling programs apart, where they are usually mounted; what cannot be
 * read is as if it were not there. Changes only the caller's own. */
#ifndef CEDE_LIB_CGROUP_H
#define CEDE_LIB_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/workload.h"

/* The kernel gives a number to one group of a hierarchy for as long as the machine is up, whatever
 * its path becomes. */
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

/* The groups that the process is in, innermost first, without the root of the hierarchy: how many
 * of the innermost CGROUP_LEVELS_MAX. An error if that cannot be told now (proc_unsure()). */
int cgroup_levels(pid_t pid, uint32_t hierarchy, uint64_t ids[CGROUP_LEVELS_MAX]);

/* Finds one that has this process and its descendants in it and nobody else, neither the caller nor
 * groups below. False: there is none, or more than 512 are in it. */
bool cgroup_own(pid_t root, struct cgroup *out);

/* Finds the innermost of that name that the process is in or below. */
bool cgroup_above(pid_t pid, const char *name, struct cgroup *out);

/* The oldest process in the innermost group with `part` in its name that this process is in or
 * below, of the first 512; 0: none. In a container that is the first one. */
pid_t cgroup_first(pid_t pid, const char *part);

/* Whether living processes are in it or, in version 2, below it. The caller has to have
 * CAP_DAC_READ_SEARCH; false for who has not. */
bool cgroup_populated(struct cgroup g);

/* What the paths of a process's groups say it is, those of all hierarchies. named_by_root: of names
 * only those that nobody but root, or this process's user, could give: a group of whose owner that
 * is not known says nothing. */
void cgroup_workload(pid_t pid, bool named_by_root, struct workload *out);

/* Makes a group below this process's own and moves it there, so that what it starts can be told by
 * that, whatever becomes of parents and sessions. Only in version 2, and not from the root, nor
 * where it has a group to itself already. Removes such groups of others that are empty: whoever was
 * killed could not. False: it stays where it is, such as for a user to whom it is not delegated. */
bool cgroup_run_enter(void);
/* Back to the group above; the other one is removed if nobody is left in it. all: out of those of
 * callers too. */
void cgroup_run_leave(bool all);

/* Moves this process out of its group to the one called `name` beside that, which is made if need
 * be; where it may not, it stays. */
void cgroup_leave(const char *name);

#endif
