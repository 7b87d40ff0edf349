/* See reclassify.h. */
#include "engine/reclassify.h"

#include <string.h>

#include "base/log.h"
#include "core/observe/deadlines.h"
#include "who/cgroup.h"
#include "who/procfs.h"

#define LOOK_NS  (5 * NSEC_PER_MSEC)   /* per tick, for each of the two */
#define LEFT_NS  (100 * NSEC_PER_MSEC) /* until jobs that did not fit follow */
#define AGAIN_NS NSEC_PER_SEC          /* between looks at all jobs, or at what is not known yet */

/* Looks at the jobs whose bool at this offset is set; what look() fails for is looked at again.
 * Returns when to call next. */
static uint64_t walk(struct job_walk *w, struct model *m, size_t asked_at, uint64_t again_ns,
                     int (*look)(const void *arg, struct model *m, struct job *j), const void *arg)
{
    const uint64_t started = monotonic_ns();
    const uint32_t n = m->jobs_end, first = w->first < n ? w->first : 0;
    if (!w->wanted || m->now < w->at)
        return w->wanted ? w->at : TIME_NEVER;
    *w = (struct job_walk){.at = m->now + again_ns};
    for (uint32_t k = 0; k < n; k++) {
        struct job *j = &m->jobs[(first + k) % n];
        bool *asked = (bool *)((char *)j + asked_at);
        if (!j->rec.root.pid || !*asked)
            continue;
        if (monotonic_ns() - started >= LOOK_NS) {
            *w = (struct job_walk){true, m->now + LEFT_NS, (first + k) % n};
            break;
        }
        *asked = look(arg, m, j) < 0;
        w->wanted |= *asked;
    }
    return w->wanted ? w->at : TIME_NEVER;
}

/* ---- classes ---- */

static bool by_rule(const struct job *j)
{
    return j->rec.source == JOB_RULE || j->rec.source == JOB_ENVIRONMENT;
}

void reclassify_all(struct job_walk *r, struct model *m, uint64_t at_ns)
{
    for_each_job (m, j)
        j->facts_came = by_rule(j);
    r->at = r->wanted ? min_u64(r->at, at_ns) : at_ns;
    r->wanted = true;
}

void reclassify_never(struct model *m, uint32_t job)
{
    struct job *j = &m->jobs[job];
    if (!by_rule(j))
        return;
    j->rec.source = JOB_PID;
    model_job_changed(m, j);
}

static void job_becomes(struct model *m, struct job *j, const struct job_spec *spec)
{
    const uint32_t job = model_job_slot(m, j);
    const bool same = j->rec.class == spec->terms.class && j->rec.weight == spec->terms.weight;
    struct job_terms terms = spec->terms;
    if (j->rec.yielded & YIELD_CLASS) { /* it gets its new class when it acquires */
        j->rec.yielded_class = terms.class;
        j->rec.yielded_budget_us = terms.budget_us;
        terms.class = CLASS_BATCH;
        terms.budget_us = 0;
    }
    int r = deadlines_set(m, job, &terms);
    if (r == 0)
        r = model_job_change(m, job, &terms);
    if (r < 0) {
        log_say(LOG_WARNING, "job #%llu (%s) stays as it is: %s", (unsigned long long)j->rec.number,
                j->rec.name, strerror(-r));
        return;
    }
    j->rec.source = spec->source;
    j->rec.launch = spec->launch;
    j->rule_bytes = spec->memory_bytes;
    snprintf(j->rec.name, sizeof(j->rec.name), "%s", spec->name);
    if (!same)
        log_user(j->rec.uid, LOG_INFO,
                 "job #%llu (%s) has class %s and weight %u now, by what an agent reported",
                 (unsigned long long)j->rec.number, j->rec.name, job_class_name(spec->terms.class),
                 spec->terms.weight);
}

/* Asks rules about one job. -EAGAIN, ... : the answer is not known yet. */
static int classify(const void *arg, struct model *m, struct job *j)
{
    const struct discovery *d = arg;
    struct job_spec spec = {.again = true, .facts = j->facts};
    if (!by_rule(j))
        return 0;
    const int r = d->rule(d->rule_arg, j->rec.root.pid, &spec);
    /* If the root still lives, its pid was its own, so the answer is about the root. */
    if (j->root_pidfd < 0 || !pidfd_alive(j->root_pidfd))
        return 0;
    if (r < 0)
        return r;
    j->facts = spec.facts;
    if (r > 0)
        job_becomes(m, j, &spec);
    return 0;
}

uint64_t reclassify_due(struct job_walk *r, struct model *m, const struct discovery *d)
{
    return d->rule ? walk(r, m, offsetof(struct job, facts_came), AGAIN_NS, classify, d)
                   : TIME_NEVER;
}

/* ---- pods ---- */

void pods_begin(struct pods *p, struct model *m, uint32_t job)
{
    m->jobs[job].pod_asked = true;
    p->walk.wanted = true;
    p->walk.at = m->now;
}

void pods_all(struct pods *p, struct model *m)
{
    for_each_job (m, j)
        j->pod_asked = true;
    p->looked_ns = max_u64(m->now, p->looked_ns ? p->looked_ns + AGAIN_NS : 0);
    p->walk.at = p->looked_ns;
    p->walk.wanted = true;
}

/* 0; an error: what is there cannot be read now. */
static int read_pod(const void *arg, struct model *m, struct job *j)
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
    const struct pairs told = identities_find(arg, cgroups, NULL);
    if (!told.n)
        return 0;
    cgroup_workload(of.pid, false, &w);
    if (proc_alive(of)) /* else the pid may have been another process's */
        pod_names_read(told, w.container, &j->pod);
    return 0;
}

uint64_t pods_due(struct pods *p, struct model *m)
{
    return p->reports
               ? walk(&p->walk, m, offsetof(struct job, pod_asked), LEFT_NS, read_pod, p->reports)
               : TIME_NEVER;
}
