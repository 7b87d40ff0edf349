/* See rule_lint.h. */
#include "api/rules/rule_lint.h"

#include "base/log.h"

/* "label app = web" */
static void written(const struct condition *c, char *buf, size_t size)
{
    snprintf(buf, size, "%s%s%s = %.80s", condition_name((enum condition_kind)c->kind),
             c->key[0] ? " " : "", c->key, c->pattern);
}

/* Whether every process that meets b's conditions also meets a's. */
static bool rule_covers(const struct rule *a, const struct rule *b)
{
    if ((a->class_said && !b->class_said) || (a->promised & ~b->promised & TERM(class)))
        return false;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t k = 0;
        while (k < b->n && !condition_covers(&a->conditions[i], &b->conditions[k]))
            k++;
        if (k == b->n)
            return false;
    }
    return true;
}

const char *rule_lint(const struct rule_list *l, size_t i, char why[static LINT_TEXT])
{
    const struct rule *r = &l->rules[i];
    char a[160], b[160];
    why[0] = '\0';
    for (uint32_t k = 0; k < r->n; k++) {
        const char *impossible = condition_impossible(&r->conditions[k]);
        written(&r->conditions[k], a, sizeof(a));
        if (impossible) {
            snprintf(why, LINT_TEXT, "%s: %s", a, impossible);
            return why;
        }
        for (uint32_t m = k + 1; m < r->n; m++) {
            if (!condition_excludes(&r->conditions[k], &r->conditions[m]))
                continue;
            written(&r->conditions[m], b, sizeof(b));
            snprintf(why, LINT_TEXT, "%s and %s exclude each other", a, b);
            return why;
        }
    }
    for_each (before, l->rules, i) {
        if (before->account != r->account || !r->n || !rule_covers(before, r))
            continue;
        snprintf(why, LINT_TEXT, "%s %s before it takes all programs that it would take",
                 r->account ? "account" : "rule", before->title);
        return why;
    }
    return why;
}

unsigned rules_warn(const struct rule_list *l, const char *file)
{
    char why[LINT_TEXT];
    unsigned n = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (!rule_lint(l, i, why)[0])
            continue;
        log_say(LOG_WARNING, "%s: %s %s never matches: %s", file,
                l->rules[i].account ? "account" : "rule", l->rules[i].title, why);
        n++;
    }
    return n;
}
