/* See reclassify.h. */
#include "engine/reclassify.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "core/observe/deadlines.h"

#define LOOK_NS  (5 * NSEC_PER_MSEC)   /* per tick, for rules */
#define LEFT_NS  (100 * NSEC_PER_MSEC) /* until jobs that did not fit follow */
#define AGAIN_NS NSEC_PER_SEC          /* until jobs whose class is not known yet follow */

static bool by_rule(const struct job *j)
{
    return j->rec.source == JOB_RULE || j->rec.source == JOB_ENVIRONMENT;
}

void reclassify_all(struct reclassify *r, struct model *m, uint64_t at_ns)
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
static int look_at_job(struct model *m, struct job *j, const struct discovery *d)
{
    struct job_spec spec = {.again = true, .facts = j->facts};
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

uint64_t reclassify_due(struct reclassify *r, struct model *m, const struct discovery *d)
{
    if (!r->wanted || !d->rule)
        return TIME_NEVER;
    if (m->now < r->at)
        return r->at;
    const uint64_t started = monotonic_ns();
    const uint32_t n = m->jobs_end, first = r->first < n ? r->first : 0;
    r->wanted = false;
    r->first = 0;
    for (uint32_t k = 0; k < n; k++) {
        struct job *j = &m->jobs[(first + k) % n];
        if (!j->rec.root.pid || !j->facts_came)
            continue;
        if (monotonic_ns() - started >= LOOK_NS) {
            r->first = (first + k) % n;
            r->wanted = true;
            r->at = m->now + LEFT_NS;
            return r->at;
        }
        j->facts_came = by_rule(j) && look_at_job(m, j, d) < 0;
        r->wanted |= j->facts_came;
    }
    r->at = m->now + AGAIN_NS;
    return r->wanted ? r->at : TIME_NEVER;
}
