/* Finds rules and accounts that can never match. Pure. */
#ifndef CEDE_API_RULES_RULE_LINT_H
#define CEDE_API_RULES_RULE_LINT_H

#include "api/rules/rules.h"

#define LINT_TEXT 320

/* Why rule i can take no process, or "" if it can; returns why. */
const char *rule_lint(const struct rule_list *l, size_t i, char why[static LINT_TEXT]);

/* Logs a warning, with the file's name, for each that cannot; returns how many. */
unsigned rules_warn(const struct rule_list *l, const char *file);

#endif
