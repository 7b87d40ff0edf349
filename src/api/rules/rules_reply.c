/* See rules_reply.h. */
#include "api/rules/rules_reply.h"

#include <errno.h>
#include <string.h>

#include "api/guest.h"
#include "api/rules/facts.h"
#include "api/rules/launch.h"
#include "api/rules/match.h"
#include "api/rules/promises.h"
#include "api/rules/rule_lint.h"
#include "base/json_text.h"
#include "who/agent_reports.h"
#include "who/promise.h"

#define CLOSING 64 /* bytes of a message after its rules */

static const char *rule_class(const struct rule *r)
{
    return r->class_said               ? "environment"
           : r->promised & TERM(class) ? PROMISED
                                       : job_class_name(r->request.class);
}

static json_t *verdict_json(enum verdict v)
{
    return v == VERDICT_PENDING ? json_null() : json_boolean(v == VERDICT_YES);
}

/* f NULL: without a process. */
static json_t *condition_json(const struct condition *c, const struct rule_facts *f)
{
    char seen[CONDITION_SEEN];
    json_t *o =
        json_pack("{s:s, s:o*, s:o}", "key", condition_name((enum condition_kind)c->kind), "name",
                  c->key[0] ? json_text(c->key) : NULL, "wanted", json_text(c->pattern));
    if (f) {
        json_object_set_new(o, "seen", json_text(condition_seen(c, f, seen)));
        json_object_set_new(o, "holds", verdict_json(condition_holds(c, f)));
    }
    return o;
}

static json_t *rule_json(const struct rule_list *l, size_t i, const struct rule_facts *f)
{
    const struct rule *r = &l->rules[i];
    char why[LINT_TEXT], promised[64];
    json_t *conditions = json_array();
    for (uint32_t k = 0; k < r->n; k++)
        json_array_append_new(conditions, condition_json(&r->conditions[k], f));
    rule_lint(l, i, why);
    json_t *o =
        json_pack("{s:I, s:s, s:o, s:o, s:s*, s:o*, s:s*, s:s*, s:o*}", "number", (json_int_t)i + 1,
                  "kind", r->account ? "account" : "rule", "name", json_text(r->title),
                  "conditions", conditions, "class", r->account ? NULL : rule_class(r), "weight",
                  r->request.weight ? json_integer(r->request.weight) : NULL, "group",
                  r->launch == LAUNCH_ANY ? NULL : launch_name(r->launch), "promised",
                  *promised_names(r, promised, sizeof(promised)) ? promised : NULL, "warning",
                  why[0] ? json_text(why) : NULL);
    if (f)
        json_object_set_new(o, "matches",
                            verdict_json(r->account ? rule_matches(r, f) : rule_takes(r, f)));
    return o;
}

static json_t *outcome_json(const struct outcome *o, const struct rule_facts *f)
{
    char promised[192];
    static const char *const by[] = {[BY_NONE] = "nothing",
                                     [BY_RULE] = "rule",
                                     [BY_ENVIRONMENT] = "environment",
                                     [BY_OTHERS] = "others"};
    const bool is = o->by != BY_NONE;
    return json_pack(
        "{s:s, s:o*, s:s*, s:o*, s:o*, s:o*, s:o*}", "by", by[o->by], "rule",
        o->by == BY_RULE ? json_text(o->rule->title) : NULL, "class",
        is ? job_class_name(o->request.class) : NULL, "weight",
        is ? json_integer(o->request.weight ? o->request.weight : WEIGHT_DEFAULT) : NULL, "name",
        is && o->request.name[0] ? json_text(o->request.name) : NULL, "note",
        o->note[0] ? json_text(o->note) : NULL, "promised",
        *promise_text(f->told, promised, sizeof(promised)) ? json_text(promised) : NULL);
}

/* Refuses threads and zombies, which /proc shows by number as well. */
static int rules_refuse(struct proc_id proc, struct error *err)
{
    if (proc_check(proc) == -ESRCH)
        return error_set(err, -ESRCH, "process %d has ended: its parent has not waited for it",
                         (int)proc.pid);
    _cleanup_close_ int pidfd = proc_pidfd(proc);
    if (pidfd == -EINVAL || pidfd == -ENOENT)
        return error_set(err, -EINVAL, "%d is a thread: give the pid of its process",
                         (int)proc.pid);
    return 0;
}

/* Adds a process's facts to the reply, and how it is classified. */
static int rules_test(const struct rule_list *l, const struct engine *e, const struct caller *who,
                      pid_t pid, struct facts *f, json_t *reply, struct error *err)
{
    struct outcome o;
    struct job_view job;
    int r = facts_read(l, pid, f);
    if (r < 0)
        return error_set(
            err, r, r == -ESRCH ? "there is no process %d" : "cannot look at process %d", (int)pid);
    if (f->of.uid != who->uid && !who->admin)
        return error_set(err, -EPERM,
                         "process %d belongs to uid %u: only that user, root and the "
                         "administrators' group may test rules on it",
                         (int)pid, f->of.uid);
    if (!guest_reaches(who, f->proc))
        return error_set(err, -EPERM, "it runs outside of this container: do this outside");
    r = rules_refuse(f->proc, err);
    if (r < 0)
        return r;
    facts_ask(l, f, monotonic_ns());
    classify(l, &f->of, &o);
    const uint32_t slot = engine_job_of(e, pid);
    json_object_set_new(reply, "pid", json_integer(pid));
    json_object_set_new(reply, "pending", json_boolean(f->of.pending));
    if (f->of.origin.overwritten)
        json_object_set_new(reply, "environment_overwritten", json_true());
    if (!proc_same(f->of.origin.speaker, f->proc))
        json_object_set_new(reply, "words_of", json_integer(f->of.origin.speaker.pid));
    if (!o.pending)
        json_object_set_new(reply, "outcome", outcome_json(&o, &f->of));
    if (slot != SLOT_NONE && engine_view(e, slot, &job))
        json_object_set_new(reply, "job", json_integer((json_int_t)job.number));
    return 0;
}

json_t *rules_reply(const struct rule_list *l, const struct engine *e, const struct caller *who,
                    const struct request *request, int *code, struct error *err)
{
    static const struct rule_list none = {.rules = NULL};
    struct facts f;
    *code = 0;
    l = l ? l : &none;
    json_t *rules = json_array(), *others = json_null();
    json_t *reply = json_pack("{s:i, s:b, s:o, s:b}", "v", PROTO_VERSION, "ok", 1, "rules", rules,
                              "environment", (int)l->environment);
    if (request->pid)
        *code = rules_test(l, e, who, request->pid, &f, reply, err);
    if (*code < 0) {
        json_decref(reply);
        return NULL;
    }
    size_t i = (size_t)min_u64(request->number, l->n);
    size_t used = json_dumpb(reply, NULL, 0, JSON_COMPACT) + CLOSING;
    for (; i < l->n; i++) {
        if (!l->rules[i].account && !l->rules[i].title[0])
            continue;
        json_t *o = rule_json(l, i, request->pid ? &f.of : NULL);
        used += json_dumpb(o, NULL, 0, JSON_COMPACT) + 1; /* comma */
        if (used > PROTO_MESSAGE_MAX && json_array_size(rules)) {
            json_decref(o);
            break;
        }
        json_array_append_new(rules, o);
    }
    if (l->n && !l->rules[l->n - 1].title[0])
        others = json_string(job_class_name(l->rules[l->n - 1].request.class));
    json_object_set_new(reply, "others", others);
    json_object_set_new(reply, "more", json_boolean(i < l->n));
    return reply;
}

int rules_identify(const struct rule_list *l, struct engine *e, const struct caller *who,
                   const struct request *r, struct error *err)
{
    int code = rights_check(who, r, NULL, err);
    if (code == 0 && (!l || !l->identities))
        code = error_set(err, -ENOTSUP, "this daemon has no rules");
    const uint64_t before = code == 0 ? identities_number(l->identities) : 0;
    if (code == 0)
        code = identities_put(l->identities, r->cgroup, (struct pairs){r->facts, r->nfacts});
    if (code == -ENOSPC)
        error_set(err, code, "%d control groups are known, and all of them still exist",
                  IDENTITIES_MAX);
    if (code == 0 && identities_number(l->identities) != before)
        engine_facts_came(e, l->identities);
    return code;
}
