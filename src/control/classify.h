/* What a GPU program that nobody assigned shall be: the first rule that matches; else what its user
 * put into its environment; else what `others` says. Pure.
 *
 * CEDE_CLASS, CEDE_WEIGHT and CEDE_NAME are the user's word, and the program can write there at any
 * time: they give what any user may have for the asking, no more. Labels of a pod that begin with
 * cede.io/ then lower that. */
#ifndef CEDE_CONTROL_CLASSIFY_H
#define CEDE_CONTROL_CLASSIFY_H

#include "control/rules.h"

enum outcome_by { BY_NONE, BY_RULE, BY_ENVIRONMENT, BY_OTHERS };

struct outcome {
    enum outcome_by by;
    bool pending;            /* it is not known yet: facts are still to come */
    const struct rule *rule; /* of BY_RULE and BY_OTHERS */
    struct request request;  /* what it then is */
    char note[400];          /* what of the environment does not count, and why; "" */
};

void classify(const struct rule_list *l, const struct rule_facts *f, struct outcome *out);

enum verdict rule_matches(const struct rule *r, const struct rule_facts *f);
/* A rule with class = environment takes only a program whose CEDE_CLASS is one. */
enum verdict rule_takes(const struct rule *r, const struct rule_facts *f);

/* Names of what has to be read for these rules, as in identify.h. Returns how many bytes. */
size_t classify_wants(const struct rule_list *l, char *buf, size_t size);

#endif
