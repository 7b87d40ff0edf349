/* Requests about rules and facts: shows the rules and, for one process, which of them match and why
 * not; and takes reports of agents. */
#ifndef CEDE_API_RULES_RULES_REPLY_H
#define CEDE_API_RULES_RULES_REPLY_H

#include <jansson.h>

#include "api/rights.h"
#include "api/rules/rules.h"

/* Rules with numbers above request->number, as many as fit. NULL: *code has the error, or is 0 if
 * there is no memory. */
json_t *rules_reply(const struct rule_list *l, const struct engine *e, const struct caller *who,
                    const struct request *request, int *code, struct error *err);

/* Takes an administrator's agent's report of a control group. */
int rules_identify(const struct rule_list *l, struct engine *e, const struct caller *who,
                   const struct request *r, struct error *err);

#endif
