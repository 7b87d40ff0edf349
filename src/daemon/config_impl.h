/* The parser of cede.conf, as config.c and config_rules.c share it. */
#ifndef CEDE_DAEMON_CONFIG_IMPL_H
#define CEDE_DAEMON_CONFIG_IMPL_H

#include "daemon/config.h"

enum section { S_NONE, S_DAEMON, S_POLICY, S_RULE, S_ACCOUNT };

struct parser {
    const char *file;
    const char *text, *end; /* the part that has not been read */
    struct config c;
    struct rule *rule; /* of this section: the last rule in c */
    enum section section;
    int line, section_line;
    int rule_line[CONFIG_RULES_MAX];
    int param_line[PARAMS_COUNT]; /* line that set each; 0: none did */
    uint32_t keys;                /* given in this section */
    bool seen[S_RULE];            /* sections that may be there once */
    int r;                        /* first error */
    struct error *err;
};

/* A key, and the function that reads its value into its target. */
struct key {
    const char *name;
    int (*read)(struct parser *p, const struct key *k, const char *value);
    size_t at, size; /* in struct config, or in struct rule in sections of rules and accounts */
    const char *const *words; /* nwords allowed words, indexed by value; some are NULL */
    size_t nwords;
    bool several; /* may be given several times */
};

/* Reports an error with its line; only the first one is kept. Returns 0, inih's failure. */
int config_complain(struct parser *p, int line, int code, const char *fmt, ...) PRINTF_LIKE(4, 5);
#define complain(p, ...) config_complain(p, (p)->line, -EINVAL, __VA_ARGS__)

/* Where the value of the key belongs. */
static inline void *config_target(struct parser *p, const struct key *k)
{
    return (char *)(p->section >= S_RULE ? (void *)p->rule : &p->c) + k->at;
}

/* ---- rules and accounts ---- */

/* The section's i-th key; NULL: past the last. */
const struct key *config_rule_key(enum section s, unsigned i);
int config_rule_begin(struct parser *p, const char *title, bool account);
/* Checks the rule or account whose section ends; other sections need nothing. */
void config_rule_end(struct parser *p);
/* Checks all rules together at the end of the file, and adds a rule for `others`. */
void config_rules_check(struct parser *p);

#endif
