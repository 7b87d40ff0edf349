/* See job_spec.h. */
#include "api/rules/job_spec.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "api/job_terms.h"
#include "api/proto.h"
#include "api/rules/facts.h"
#include "api/rules/launch.h"
#include "api/rules/match.h"
#include "base/log.h"
#include "base/text.h"
#include "who/identify_lookups.h"

void rules_job_name(char name[static JOB_NAME_MAX], const char *comm, pid_t pid)
{
    if (!proto_name_from(name, comm)) /* a program may set its comm to any bytes */
        snprintf(name, JOB_NAME_MAX, "pid-%d", (int)pid);
}

struct job_spec request_spec(const struct request *r, const char *comm, pid_t pid, bool admin)
{
    struct job_spec spec = {.terms = terms_after(r, &terms_default, admin),
                            .slurm_job = r->slurm_job};
    if (r->rename[0])
        snprintf(spec.name, sizeof(spec.name), "%s", r->rename);
    else if (r->name[0])
        snprintf(spec.name, sizeof(spec.name), "%s", r->name);
    else if (r->slurm_job)
        snprintf(spec.name, sizeof(spec.name), SLURM_JOB_NAME "%llu",
                 (unsigned long long)r->slurm_job);
    else
        rules_job_name(spec.name, comm, pid);
    return spec;
}

static void set_account(const struct rule_list *l, const struct rule_facts *f, pid_t pid,
                        struct job_spec *spec)
{
    size_t i = 0;
    while (i < l->n && !(l->rules[i].account && rule_matches(&l->rules[i], f) == VERDICT_YES))
        i++;
    snprintf(spec->account, sizeof(spec->account), "%s", i < l->n ? l->rules[i].title : "");
    spec->principal = l->principals ? principal_of(l->principals, spec->uid, pid) : spec->uid;
}

void rules_account(const struct rule_list *l, pid_t pid, struct job_spec *spec)
{
    static const struct rule_list none = {.rules = NULL};
    struct facts f;
    spec->principal = spec->uid;
    l = l ? l : &none;
    if (facts_read(l, pid, &f) == 0)
        set_account(l, &f.of, pid, spec);
}

int rules_fn(void *arg, pid_t pid, struct job_spec *spec)
{
    static const enum job_source sources[] = {
        [BY_RULE] = JOB_RULE, [BY_OTHERS] = JOB_RULE, [BY_ENVIRONMENT] = JOB_ENVIRONMENT};
    const struct rule_list *l = arg;
    struct outcome o;
    struct facts f;
    int r = spec->again ? facts_newer(l, pid, spec->facts) : 1;
    if (r <= 0)
        return proc_unsure(r) ? r : 0;
    if (l->lookups && lookups_waits(l->lookups, pid, monotonic_ns()))
        return -EAGAIN;
    r = l->n == 0 && !l->environment ? -ESRCH : facts_read(l, pid, &f);
    if (r < 0)
        return proc_unsure(r) ? r : 0;
    f.of.pending = l->lookups != NULL;
    classify(l, &f.of, &o);
    if (o.pending) {
        f.of.pending = false;
        facts_ask(l, &f, monotonic_ns());
        classify(l, &f.of, &o);
    }
    if (o.pending)
        return -EAGAIN;
    uint64_t launch = 0;
    r = o.by == BY_NONE ? 0 : launch_of(&f, &o, &launch);
    if (r < 0)
        return r;
    if (o.note[0]) {
        char comm[sizeof(f.comm)];
        memcpy(comm, f.comm, sizeof(comm));
        text_show(comm);
        log_user(f.of.uid, LOG_WARNING, "process %d of uid %u (%s): %s", (int)pid, f.of.uid, comm,
                 o.note);
    }
    spec->facts = f.told;
    if (o.by == BY_NONE)
        return 0;
    *spec = request_spec(&o.request, f.comm, pid, o.by != BY_ENVIRONMENT);
    spec->source = sources[o.by];
    spec->uid = f.of.uid;
    spec->facts = f.told;
    spec->memory_bytes = o.request.memory_bytes;
    spec->launch = launch;
    set_account(l, &f.of, pid, spec);
    return 1;
}

void rules_use_engine(struct rule_list *l, struct engine *e)
{
    const struct model *m = engine_model(e);
    for (unsigned g = 0; g < m->ngpus; g++) {
        const uint64_t has = m->gpus[g].memory_bytes;
        if (has && (!l->gpu_memory_bytes || has < l->gpu_memory_bytes))
            l->gpu_memory_bytes = has;
    }
    model_accounts_forget(engine_model(e));
    for (size_t i = 0; i < l->n; i++) {
        const struct job_terms terms = terms_after(&l->rules[i].request, &terms_default, true);
        if (l->rules[i].account)
            model_account_set(engine_model(e), l->rules[i].title, &terms);
    }
}
