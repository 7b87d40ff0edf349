/* Fuzz target for the configuration file: what is accepted is fit for use, and what is refused is
 * told with file and line and leaves the output alone. Looks up users and groups, no other I/O. */
#include "api/proto.h"
#include "api/rules/match.h"
#include "api/rules/rule_lint.h"
#include "daemon/config.h"
#include "fuzz.h"
#include "who/identify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config c = {.nrules = 7777};
    struct error err = {""};
    unsigned line;
    if (config_parse("f", (const char *)data, size, &c, &err) < 0) {
        require(sscanf(err.text, "f:%u: ", &line) == 1 && line >= 1);
        require(c.nrules == 7777);
        return 0;
    }
    const struct param *what;
    require(params_check(&c.params, &what) == 0);
    require(c.nrules <= CONFIG_RULES_MAX && c.device[0] && c.policy[0]);
    static char wanted[IDENTIFY_WANTED];
    char why[LINT_TEXT];
    const struct rule_list l = {.rules = c.rules, .n = c.nrules};
    static const struct rule_facts facts = {.exe = "/usr/bin/aaaaaaaaaaaaaaaaaaaaaaaaab",
                                            .cgroup = "/a.slice/docker-0123456789abcdef.scope",
                                            .read = {"arguments\0aaaaaaaaaaaaab", 25}};
    for (size_t i = 0; i < c.nrules; i++) {
        const struct rule *r = &c.rules[i];
        const struct request *q = &r->request;
        const bool others = !r->title[0];
        require(r->account || (q->given & TERM(class) && (unsigned)q->class < CLASS_COUNT));
        require(!(q->given & TERM(weight)) || (q->weight >= WEIGHT_MIN && q->weight <= WEIGHT_MAX));
        require(others ? !r->n && i == c.nrules - 1 : r->n > 0 && r->n <= RULE_CONDITIONS_MAX);
        require(!q->name[0] || proto_name_ok(q->name));
        /* Patterns of strangers against names of strangers: has to end. */
        (void)rule_matches(r, &facts);
        (void)rule_lint(&l, i, why);
    }
    /* All that has to be read about a program fits into one question. */
    const size_t n = classify_wants(&l, wanted, sizeof(wanted));
    require(n < sizeof(wanted) && pairs_valid((struct pairs){wanted, n}));
    for (size_t i = 0; i < c.nrules; i++) {
        for (uint32_t k = 0; k < c.rules[i].n; k++) {
            const char *name = condition_wants(&c.rules[i].conditions[k], why);
            require(!*name || pairs_get((struct pairs){wanted, n}, name));
        }
    }
    config_free(&c);
    return 0;
}
