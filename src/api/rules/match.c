/* See match.h. */
#include "api/rules/match.h"

#include <stdio.h>
#include <string.h>

#include "api/job_terms.h"
#include "api/rules/promises.h"
#include "base/text.h"

#define CLASS_VARIABLE  "environment:CEDE_CLASS"
#define WEIGHT_VARIABLE "environment:CEDE_WEIGHT"
#define NAME_VARIABLE   "environment:CEDE_NAME"
#define POOL_VARIABLE   "environment:CEDE_POOL"
#define POD_LABEL       "label:cede.io/"
#define NO_POOL         "a program that has opened the GPU cannot enter a pool: start it by `cede run`"

enum verdict rule_matches(const struct rule *r, const struct rule_facts *f)
{
    bool pending = false;
    for (uint32_t i = 0; i < r->n; i++) {
        const enum verdict v = condition_holds(&r->conditions[i], f);
        if (v == VERDICT_NO)
            return v;
        pending |= v == VERDICT_PENDING;
    }
    return pending ? VERDICT_PENDING : VERDICT_YES;
}

static bool said_class(const struct rule_facts *f, enum job_class *out)
{
    const char *text = pairs_get(f->read, CLASS_VARIABLE);
    return text && job_class_parse(text, out) == 0;
}

enum verdict rule_takes(const struct rule *r, const struct rule_facts *f)
{
    enum job_class class;
    const enum verdict v = rule_matches(r, f);
    if (r->promised & TERM(class) && !promises_class(f, &class))
        return VERDICT_NO;
    if (v == VERDICT_NO || !r->class_said)
        return v;
    if (f->pending)
        return VERDICT_PENDING;
    return said_class(f, &class) ? v : VERDICT_NO;
}

static void add_note(struct outcome *o, const char *variable, const char *value, const char *why)
{
    char q[TEXT_QUOTE];
    const size_t n = strlen(o->note);
    snprintf(o->note + n, sizeof(o->note) - n, "%s%s=%s: %s", n ? "; " : "", variable,
             text_quote(q, value), why);
}

/* Takes weight and name from the environment. may_raise: a rule allows more than lowering. */
static void said_more(struct outcome *o, const struct rule_facts *f, bool may_raise)
{
    const char *weight = pairs_get(f->read, WEIGHT_VARIABLE);
    const char *name = pairs_get(f->read, NAME_VARIABLE);
    struct request *r = &o->request;
    const bool said = r->given & TERM(weight);
    uint64_t v = 0;
    if (weight && !said && parse_u64(weight, WEIGHT_MIN, WEIGHT_MAX, &v) < 0) {
        add_note(o, "CEDE_WEIGHT", weight, "no number from 1 to 10000");
    } else if (weight && !said) {
        if (v > WEIGHT_DEFAULT && !may_raise)
            add_note(o, "CEDE_WEIGHT", weight, "the environment only lowers, it is 100");
        r->given |= TERM(weight);
        r->weight = v > WEIGHT_DEFAULT && !may_raise ? WEIGHT_DEFAULT : (uint32_t)v;
    }
    if (name && *name && !r->name[0] && !proto_name_from(r->name, name)) {
        r->name[0] = '\0';
        add_note(o, "CEDE_NAME", name, "no name for a job");
    }
    if (pairs_get(f->read, POOL_VARIABLE))
        add_note(o, "CEDE_POOL", pairs_get(f->read, POOL_VARIABLE), NO_POOL);
}

static void by_environment(struct outcome *o, const struct rule_facts *f)
{
    const char *text = pairs_get(f->read, CLASS_VARIABLE);
    enum job_class class;
    if (!text)
        return;
    if (!said_class(f, &class)) {
        add_note(o, "CEDE_CLASS", text, "neither latency, normal nor batch");
        return;
    }
    o->by = BY_ENVIRONMENT;
    o->request = (struct request){.given = TERM(class), .class = class};
    if (class == CLASS_LATENCY) {
        o->request.class = CLASS_NORMAL;
        add_note(o, "CEDE_CLASS", text,
                 "the environment only lowers, it is normal; a rule with class = environment in "
                 "cede.conf allows more");
    }
    said_more(o, f, false);
}

static void pod_lowers_class(struct outcome *o, const char *text)
{
    struct request *r = &o->request;
    enum job_class class;
    if (job_class_parse(text, &class) < 0) {
        add_note(o, "cede.io/class", text, "neither latency, normal nor batch");
        return;
    }
    const enum job_class now = r->given & TERM(class) ? r->class : CLASS_NORMAL;
    if (class < now)
        add_note(o, "cede.io/class", text, "a pod only lowers; a rule in cede.conf may raise");
    if (class <= now)
        return;
    r->given = (r->given | TERM(class)) & ~TERM(budget_us); /* of latency jobs only */
    r->class = class;
    r->budget_us = 0;
}

/* Whether the pod's value lowers the present one (now; 0: no limit), and then sets *to. */
static bool pod_lowers(struct outcome *o, const char *name, const char *text, uint64_t max,
                       uint32_t now, uint32_t *to)
{
    uint64_t v;
    if (parse_u64(text, 1, max, &v) < 0) {
        add_note(o, name, text, "out of range");
        return false;
    }
    if (now && v > now)
        add_note(o, name, text, "a pod only lowers; a rule in cede.conf may raise");
    if (now && v >= now)
        return false;
    *to = (uint32_t)v;
    return true;
}

/* "8G,kill": lowers the limit, or makes it stricter. */
static void pod_limits_memory(struct outcome *o, const char *text)
{
    struct request said = {.given = 0}, *r = &o->request;
    struct error err;
    if (term_read(term_of_word("memory-max"), "cede.io/memory-max", text, &said, &err) < 0 ||
        !said.memory_max_mib) {
        add_note(o, "cede.io/memory-max", text, "no size such as 8G, or 8G,kill");
        return;
    }
    if (r->memory_max_mib && said.memory_max_mib > r->memory_max_mib)
        add_note(o, "cede.io/memory-max", text, "a pod only lowers; a rule in cede.conf may raise");
    if (!r->memory_max_mib || said.memory_max_mib < r->memory_max_mib)
        r->memory_max_mib = said.memory_max_mib;
    if (said.memory_over > r->memory_over)
        r->memory_over = said.memory_over;
    r->given |= TERM(memory_max_mib) | TERM(memory_over);
}

/* Annotations and labels are set by the user who made the pod, so they only lower the terms, or
 * give what CEDE_CLASS may give. The same keys are in agents/kubernetes/pods.c. */
static void by_pod(const struct rule_list *l, struct outcome *o, const struct rule_facts *f)
{
    const char *class = pairs_get(f->told, POD_LABEL "class");
    const char *weight = pairs_get(f->told, POD_LABEL "weight");
    const char *max = pairs_get(f->told, POD_LABEL "gpu-max");
    const char *min = pairs_get(f->told, POD_LABEL "gpu-min");
    const char *pool = pairs_get(f->told, POD_LABEL "pool");
    const char *memory = pairs_get(f->told, POD_LABEL "memory-max");
    struct request *r = &o->request;
    enum job_class said;
    if (o->by == BY_NONE) {
        if (!class || !l->environment || job_class_parse(class, &said) < 0)
            return;
        o->by = BY_ENVIRONMENT;
        *r = (struct request){.given = TERM(class), .class = CLASS_NORMAL};
    }
    if (class)
        pod_lowers_class(o, class);
    if (weight && pod_lowers(o, "cede.io/weight", weight, WEIGHT_MAX,
                             r->given & TERM(weight) ? r->weight : WEIGHT_DEFAULT, &r->weight))
        r->given |= TERM(weight);
    if (max && pod_lowers(o, "cede.io/gpu-max", max, 100, r->gpu_max, &r->gpu_max))
        r->given |= TERM(gpu_max);
    if (r->gpu_max && r->gpu_min > r->gpu_max)
        r->gpu_min = r->gpu_max;
    if (min && !r->gpu_min)
        add_note(o, "cede.io/gpu-min", min, "a floor is taken from others: a rule may give it");
    else if (min)
        (void)pod_lowers(o, "cede.io/gpu-min", min, 100, r->gpu_min, &r->gpu_min);
    if (memory)
        pod_limits_memory(o, memory);
    if (pool)
        add_note(o, "cede.io/pool", pool, NO_POOL);
}

static void classify_apart(const struct rule_list *l, const struct rule_facts *f,
                           struct outcome *out)
{
    const struct rule *others = NULL;
    *out = (struct outcome){.by = BY_NONE};
    for_each (r, l->rules, l->n) {
        if (!r->account && !r->title[0]) {
            others = r;
            continue;
        }
        const enum verdict v = r->account ? VERDICT_NO : rule_takes(r, f);
        out->pending = v == VERDICT_PENDING;
        if (out->pending)
            return;
        if (v == VERDICT_NO)
            continue;
        out->by = BY_RULE;
        out->rule = r;
        out->request = r->request;
        if (r->class_said) {
            (void)said_class(f, &out->request.class);
            said_more(out, f, true);
        }
        return;
    }
    if (l->environment && f->pending) {
        out->pending = true;
        return;
    }
    if (l->environment)
        by_environment(out, f);
    if (out->by == BY_NONE && others) {
        out->by = BY_OTHERS;
        out->rule = others;
        out->request = others->request;
        if (l->environment)
            said_more(out, f, false);
    }
}

void classify(const struct rule_list *l, const struct rule_facts *f, struct outcome *out)
{
    classify_apart(l, f, out);
    if (out->pending)
        return;
    promises_apply(l, f, out);
    by_pod(l, out, f);
}

size_t classify_wants(const struct rule_list *l, char *buf, size_t size)
{
    static const char *const own[] = {CLASS_VARIABLE, WEIGHT_VARIABLE, NAME_VARIABLE,
                                      POOL_VARIABLE};
    char text[RULE_KEY_MAX + 16];
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(own); i++)
        (void)pairs_put(buf, size, &n, own[i], "");
    for (size_t i = 0; i < l->n; i++) {
        for (size_t k = 0; k < l->rules[i].n; k++) {
            const char *name = condition_wants(&l->rules[i].conditions[k], text);
            if (*name && !pairs_get((struct pairs){buf, n}, name))
                (void)pairs_put(buf, size, &n, name, "");
        }
    }
    return n;
}
