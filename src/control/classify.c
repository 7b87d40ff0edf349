/* See classify.h. */
#include "control/classify.h"

#include <stdio.h>
#include <string.h>

#include "lib/text.h"

#define CLASS_VARIABLE  "environment:CEDE_CLASS"
#define WEIGHT_VARIABLE "environment:CEDE_WEIGHT"
#define NAME_VARIABLE   "environment:CEDE_NAME"
#define POOL_VARIABLE   "environment:CEDE_POOL"

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

/* The weight and the name that the environment gives. may_raise: by a rule. */
static void said_more(struct outcome *o, const struct rule_facts *f, bool may_raise)
{
    const char *weight = pairs_get(f->read, WEIGHT_VARIABLE);
    const char *name = pairs_get(f->read, NAME_VARIABLE);
    struct request *r = &o->request;
    uint64_t v = 0;
    if (weight && !r->has_weight && parse_u64(weight, WEIGHT_MIN, WEIGHT_MAX, &v) < 0) {
        add_note(o, "CEDE_WEIGHT", weight, "no number from 1 to 10000");
    } else if (weight && !r->has_weight) {
        if (v > WEIGHT_DEFAULT && !may_raise)
            add_note(o, "CEDE_WEIGHT", weight, "the environment only lowers, it is 100");
        r->has_weight = true;
        r->weight = v > WEIGHT_DEFAULT && !may_raise ? WEIGHT_DEFAULT : (uint32_t)v;
    }
    if (name && *name && !r->name[0] && !proto_name_from(r->name, name)) {
        r->name[0] = '\0';
        add_note(o, "CEDE_NAME", name, "no name for a job");
    }
    if (pairs_get(f->read, POOL_VARIABLE))
        add_note(o, "CEDE_POOL", pairs_get(f->read, POOL_VARIABLE),
                 "a program that has opened the GPU cannot enter a pool: start it by `cede run`");
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
    o->request = (struct request){.has_class = true, .class = class};
    if (class == CLASS_LATENCY) {
        o->request.class = CLASS_NORMAL;
        add_note(o, "CEDE_CLASS", text,
                 "the environment only lowers, it is normal; a rule with class = environment in "
                 "cede.conf allows more");
    }
    said_more(o, f, false);
}

void classify(const struct rule_list *l, const struct rule_facts *f, struct outcome *out)
{
    const struct rule *others = NULL;
    *out = (struct outcome){.by = BY_NONE};
    for (size_t i = 0; i < l->n; i++) {
        const struct rule *r = &l->rules[i];
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
