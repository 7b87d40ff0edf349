/* See facts.h. */
#include "api/rules/facts.h"

#include <errno.h>
#include <string.h>

#include "who/agent_reports.h"
#include "who/cgroup.h"
#include "who/identify_lookups.h"

int facts_read(const struct rule_list *l, pid_t pid, struct facts *f)
{
    struct proc_stat st, after;
    f->of = (struct rule_facts){
        .exe = f->exe, .cgroup = f->cgroup, .groups = f->groups, .workload = &f->workload};
    int r = proc_stat_read(pid, &st);
    int groups = r < 0 ? r : proc_credentials(pid, &f->of.uid, f->groups, FACTS_GROUPS);
    if (groups < 0)
        return groups;
    f->of.ngroups = (size_t)groups;
    /* A file that may not be read counts as empty; one that cannot be read now is an error. */
    r = proc_exe(pid, f->exe, sizeof(f->exe));
    if (!proc_unsure(r))
        r = proc_cgroup(pid, f->cgroup, sizeof(f->cgroup));
    if (!proc_unsure(r))
        r = (int)proc_read(pid, "cgroup", f->cgroups, sizeof(f->cgroups));
    if (proc_unsure(r))
        return r;
    cgroup_workload(pid, true, &f->workload);
    f->of.told = identities_find(l->identities, f->cgroups, &f->told);
    f->proc = f->of.origin.speaker = st.id;
    memcpy(f->comm, st.comm, sizeof(f->comm));
    r = proc_stat_read(pid, &after);
    return r < 0 ? r : proc_same(st.id, after.id) ? 0 : -ESRCH;
}

int facts_newer(const struct rule_list *l, pid_t pid, uint64_t than)
{
    char cgroups[8192];
    uint64_t number;
    int r = (int)proc_read(pid, "cgroup", cgroups, sizeof(cgroups));
    identities_find(l->identities, r < 0 ? "" : cgroups, &number);
    return r < 0 ? r : number > than;
}

void facts_ask(const struct rule_list *l, struct facts *f, uint64_t now_ns)
{
    struct lookup_key k = {.proc = f->proc, .container = f->workload.container};
    int r = l->lookups ? proc_image_read(f->proc, &k.image) : -ENOENT;
    f->of.pending = proc_unsure(r);
    if (r < 0)
        return;
    k.principal = l->principals ? principal_of(l->principals, f->of.uid, f->proc.pid) : f->of.uid;
    f->of.pending = lookups_get(l->lookups, &k, now_ns, &f->of.read, &f->of.origin) == -EAGAIN;
}
