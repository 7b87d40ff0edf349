/* See rules.h. */
#include "control/rules.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "control/classify.h"
#include "control/facts.h"
#include "control/launch.h"
#include "control/lookups.h"
#include "control/proto.h"
#include "lib/log.h"
#include "lib/text.h"

void rules_job_name(char name[static JOB_NAME_MAX], const char *comm, pid_t pid)
{
    if (!proto_name_from(name, comm)) /* comm is the program's to set: any bytes */
        snprintf(name, JOB_NAME_MAX, "pid-%d", (int)pid);
}

struct job_spec request_spec(const struct request *r, const char *comm, pid_t pid, bool admin)
{
    struct job_spec spec = {
        .terms = {r->has_class ? r->class : CLASS_NORMAL,
                  r->has_weight ? r->weight : WEIGHT_DEFAULT, r->budget_us, r->gpu_min, r->gpu_max,
                  r->preempt, r->min_speed},
        .deadline_us = r->deadline_us,
        .laxity_us = r->laxity_us,
        .may_promote = admin && r->deadline_us,
    };
    spec.slurm_job = r->slurm_job;
    if (r->name[0])
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
    spec->account_uid = l->people ? account_of(l->people, spec->uid, pid) : spec->uid;
}

void rules_account(const struct rule_list *l, pid_t pid, struct job_spec *spec)
{
    static const struct rule_list none = {.rules = NULL};
    struct facts f;
    spec->account_uid = spec->uid;
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
    spec->launch = launch;
    set_account(l, &f.of, pid, spec);
    return 1;
}

void rules_name_accounts(const struct rule_list *l, struct engine *e)
{
    engine_accounts_forget(e);
    for (size_t i = 0; i < l->n; i++) {
        const struct request *r = &l->rules[i].request;
        const struct job_terms terms = {.weight = r->has_weight ? r->weight : WEIGHT_DEFAULT,
                                        .gpu_min = r->gpu_min,
                                        .gpu_max = r->gpu_max};
        if (l->rules[i].account)
            engine_account_set(e, l->rules[i].title, &terms);
    }
}
