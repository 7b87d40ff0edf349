/* Facts about a process, gathered: from /proc what takes no lock of the program's, from root's
 * agents, and by way of cede-identify the rest, which may come later. */
#ifndef CEDE_CONTROL_FACTS_H
#define CEDE_CONTROL_FACTS_H

#include "control/conditions.h"
#include "control/rules.h"

#define FACTS_GROUPS 128

struct facts {
    struct rule_facts of; /* points into the rest */
    struct proc_id proc;
    uint64_t told; /* number of the agents' report */
    char comm[32];
    char exe[4096], cgroup[4096], cgroups[8192];
    gid_t groups[FACTS_GROUPS];
    struct workload workload; /* by names that root gave */
};

/* Whether an agent has reported anything of this process after that one: 1, 0; -ESRCH, ... */
int facts_newer(const struct rule_list *l, pid_t pid, uint64_t than);

/* What is known at once; of.pending as if nobody could ask for more. 0; -ESRCH, ... */
int facts_read(const struct rule_list *l, pid_t pid, struct facts *f);

/* The program's own words, and what a runtime wrote: of.pending says whether they are still to
 * come. */
void facts_ask(const struct rule_list *l, struct facts *f, uint64_t now_ns);

#endif
