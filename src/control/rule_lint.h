/* Rules and accounts that can never match. Pure. */
#ifndef CEDE_CONTROL_RULE_LINT_H
#define CEDE_CONTROL_RULE_LINT_H

#include "control/rules.h"

#define LINT_TEXT 320

/* Why rule i takes no process, whatever that is like: "" in why if it may take some. */
const char *rule_lint(const struct rule_list *l, size_t i, char why[static LINT_TEXT]);

/* Logs a warning for each. */
void rules_warn(const struct rule_list *l);

#endif
