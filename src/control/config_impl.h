/* Inside the reading of cede.conf: what config.c and config_rules.c share. */
#ifndef CEDE_CONTROL_CONFIG_IMPL_H
#define CEDE_CONTROL_CONFIG_IMPL_H

#include "control/config.h"

enum section { S_NONE, S_DAEMON, S_POLICY, S_RULE, S_ACCOUNT };

struct parser {
    const char *file;
    const char *text, *end; /* what is not read yet */
    struct config c;
    struct rule *rule; /* of this section; the last of c */
    enum section section;
    int line, section_line;
    int rule_line[CONFIG_RULES_MAX];
    int param_line[PARAMS_COUNT]; /* where each was set; 0: nowhere */
    uint32_t keys;                /* given in this section */
    bool seen[S_RULE];            /* sections that may be there once */
    int r;                        /* first error */
    struct error *err;
};

/* A key and what reads its value into its place. */
struct key {
    const char *name;
    int (*read)(struct parser *p, const struct key *k, const char *value);
    size_t at, size; /* in struct config, or in struct rule in sections of rules and accounts */
    const char *const *words; /* of size `nwords`, by the value of each; some are NULL */
    size_t nwords;
    bool several; /* may be given several times */
};

/* Reports an error with its line; only the first one is kept. Returns 0, inih's failure. */
int config_complain(struct parser *p, int line, int code, const char *fmt, ...) PRINTF_LIKE(4, 5);
#define complain(p, ...) config_complain(p, (p)->line, -EINVAL, __VA_ARGS__)

/* Where the value of the key belongs. */
void *config_place(struct parser *p, const struct key *k);

/* ---- rules and accounts ---- */

/* NULL: past the last. */
const struct key *config_rule_key(enum section s, unsigned i);
int config_rule_begin(struct parser *p, const char *title, bool account);
/* Of the section that was read; of no rule it does nothing. */
void config_rule_end(struct parser *p);
/* All of them together, at the end; adds the one that `others` amounts to. */
void config_rules_check(struct parser *p);

#endif
