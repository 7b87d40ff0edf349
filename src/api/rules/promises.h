/* What a rule makes of a cluster scheduler's promise to a pod (who/promise.h). Whoever makes a pod
 * can write most of a promise, so ceilings and a lower class count by themselves, and what is taken
 * from others (class, weight, floor, room in memory) counts where the rule says `promised`. Pure.
 */
#ifndef CEDE_API_RULES_PROMISES_H
#define CEDE_API_RULES_PROMISES_H

#include "api/rules/match.h"

/* In rule.promised, beside TERM(class), TERM(weight), TERM(gpu_min) and TERM(memory_max_mib): room
 * in a GPU's memory. */
#define PROMISED_MEMORY (1U << 31)
#define PROMISED        "promised" /* a value in cede.conf */

/* The bit of a key of cede.conf that may be `promised`; 0: this one may not. */
uint32_t promised_bit(const char *key);
/* "weight, gpu_min": the keys of a rule that are promised, but for its class; returns buf. */
const char *promised_names(const struct rule *r, char *buf, size_t size);

/* Whether the facts promise a class, as a rule with `class = promised` requires. */
bool promises_class(const struct rule_facts *f, enum job_class *out);

/* Changes the outcome of a rule, of the environment or of `others`, or makes one of none: a promise
 * alone makes a job that is normal or batch, as CEDE_CLASS does. */
void promises_apply(const struct rule_list *l, const struct rule_facts *f, struct outcome *o);

#endif
