/* Gathers facts about a process: from those files in /proc that take no lock of the program's, from
 * root's agents, and from cede-identify, whose answers may come later. */
#ifndef CEDE_API_RULES_FACTS_H
#define CEDE_API_RULES_FACTS_H

#include "api/rules/rules.h"
#include "who/rule_conditions.h"

#define FACTS_GROUPS 128

struct facts {
    struct rule_facts of; /* points into the rest */
    struct proc_id proc;
    uint64_t told; /* number of the agents' last report */
    char comm[32];
    char exe[4096], cgroup[4096], cgroups[8192];
    gid_t groups[FACTS_GROUPS];
    struct workload workload; /* from names of control groups that root gave */
};

/* 1 if an agent has reported anything about this process after report `than`, else 0; -ESRCH, ...
 */
int facts_newer(const struct rule_list *l, pid_t pid, uint64_t than);

/* Reads the facts that are known at once; of.pending is false. 0; -ESRCH, ... */
int facts_read(const struct rule_list *l, pid_t pid, struct facts *f);

/* Asks for arguments, environment and the files of container runtimes; of.pending: they are still
 * to come. */
void facts_ask(const struct rule_list *l, struct facts *f, uint64_t now_ns);

#endif
