/* What is asked about rules and facts: the rules, and for one process which of them match, and why
 * not; and what an agent hands in. */
#ifndef CEDE_CONTROL_RULES_REPLY_H
#define CEDE_CONTROL_RULES_REPLY_H

#include <jansson.h>

#include "control/rights.h"
#include "control/rules.h"

/* Of OP_IDENTITY only that it is done. Rules with numbers above request->number, as many as fit.
 * NULL: *code says why not; 0: no memory.
 */
json_t *rules_reply(const struct rule_list *l, const struct engine *e, const struct caller *who,
                    const struct request *request, int *code, struct error *err);

/* Takes what an administrator's agent says of a control group. */
int rules_identify(const struct rule_list *l, struct engine *e, const struct caller *who,
                   const struct request *r, struct error *err);

#endif
