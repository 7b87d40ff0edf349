/* See pods.h. */
#include "engine/pods.h"

#include "who/cgroup.h"
#include "who/procfs.h"

#define LOOK_NS  (5 * NSEC_PER_MSEC) /* per tick */
#define LEFT_NS  (100 * NSEC_PER_MSEC)
#define AGAIN_NS NSEC_PER_SEC /* between looks at all jobs, however often agents report */

void pods_begin(struct pods *p, struct model *m, uint32_t job)
{
    m->jobs[job].pod_asked = true;
    p->wanted = true;
    p->at = m->now;
}

void pods_all(struct pods *p, struct model *m)
{
    for_each_job (m, j)
        j->pod_asked = true;
    p->at = max_u64(m->now, p->looked_ns ? p->looked_ns + AGAIN_NS : 0);
    p->looked_ns = p->at;
    p->wanted = true;
}

/* 0; an error: what is there cannot be read now. */
static int read_pod(const struct pods *p, const struct model *m, struct job *j)
{
    const bool root = j->root_pidfd >= 0;
    struct proc_id of = j->rec.root;
    struct workload w;
    char cgroups[8192];
    if (!root && j->first_process == SLOT_NONE)
        return 0;
    if (!root)
        of = m->processes[j->first_process].id;
    const int r = (int)proc_read(of.pid, "cgroup", cgroups, sizeof(cgroups));
    if (r < 0)
        return proc_unsure(r) ? r : 0;
    const struct pairs told = identities_find(p->reports, cgroups, NULL);
    if (!told.n)
        return 0;
    cgroup_workload(of.pid, false, &w);
    if (proc_alive(of)) /* else the pid may have been another process's */
        pod_names_read(told, w.container, &j->pod);
    return 0;
}

uint64_t pods_due(struct pods *p, struct model *m)
{
    const uint64_t started = monotonic_ns();
    const uint32_t n = m->jobs_end, first = p->first < n ? p->first : 0;
    if (!p->wanted || !p->reports)
        return TIME_NEVER;
    if (m->now < p->at)
        return p->at;
    p->wanted = false;
    p->first = 0;
    for (uint32_t k = 0; k < n; k++) {
        struct job *j = &m->jobs[(first + k) % n];
        if (!j->rec.root.pid || !j->pod_asked)
            continue;
        if (monotonic_ns() - started >= LOOK_NS) {
            p->first = (first + k) % n;
            p->wanted = true;
            break;
        }
        j->pod_asked = read_pod(p, m, j) < 0;
        p->wanted |= j->pod_asked;
    }
    p->at = m->now + LEFT_NS;
    return p->wanted ? p->at : TIME_NEVER;
}
