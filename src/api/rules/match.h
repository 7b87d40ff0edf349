/* Matches an unmanaged GPU program against the rules, and so classifies it: by the first rule that
 * matches, else by its environment, else by `others`. Conditions are compared in
 * who/rule_conditions.h. Pure.
 *
 * CEDE_CLASS, CEDE_WEIGHT and CEDE_NAME are set by the user, and the program can change them at any
 * time, so they give no more than any user may set. Labels of a pod that begin with cede.io/ can
 * then lower that. */
#ifndef CEDE_API_RULES_MATCH_H
#define CEDE_API_RULES_MATCH_H

#include "api/rules/rules.h"

enum outcome_by { BY_NONE, BY_RULE, BY_ENVIRONMENT, BY_OTHERS };

struct outcome {
    enum outcome_by by;
    bool pending;            /* unknown yet, as facts are still to come */
    const struct rule *rule; /* of BY_RULE and BY_OTHERS */
    struct request request;  /* the terms and the name that it gets */
    char note[400];          /* what in the environment or labels does not count, and why; or "" */
};

void classify(const struct rule_list *l, const struct rule_facts *f, struct outcome *out);

enum verdict rule_matches(const struct rule *r, const struct rule_facts *f);
/* A rule with class = environment takes only a program whose CEDE_CLASS is one, and one with class
 * = promised only a pod that was promised one. */
enum verdict rule_takes(const struct rule *r, const struct rule_facts *f);

/* The names of the facts that must be read for these rules, as in identify.h. Returns the bytes. */
size_t classify_wants(const struct rule_list *l, char *buf, size_t size);

#endif
