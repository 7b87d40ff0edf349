/* The sections [rule NAME] and [account NAME] of cede.conf: see config.h. */
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>

#include "api/job_terms.h"
#include "api/rules/launch.h"
#include "api/rules/promises.h"
#include "daemon/config_impl.h"

/* Names of variables in rules; CEDE_CLASS and cede's other variables need room too (match.h). */
#define VARIABLES_BYTES 7168

/* The floors of accounts add up to 100 % at most, since all may have jobs on the same GPU. */
static void check_floors(struct parser *p)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < p->c.nrules && p->r == 0; i++) {
        const struct rule *r = &p->c.rules[i];
        sum += r->account ? r->request.gpu_min : 0;
        if (sum > 100)
            config_complain(
                p, p->rule_line[i], -EINVAL,
                "account %s: with its gpu_min of %u%% accounts are promised %u%% of a GPU",
                r->title, r->request.gpu_min, sum);
    }
}

/* The number of a user or group. False: there is none now, as a directory service may be down; no
 * process meets the condition then. */
static bool condition_number(const struct condition *c, uint32_t *id)
{
    uint64_t v;
    const struct passwd *pw;
    const struct group *gr;
    if (parse_u64(c->pattern, 0, UINT32_MAX - 1, &v) == 0) {
        *id = (uint32_t)v;
        return true;
    }
    if (c->kind == COND_UID && (pw = getpwnam(c->pattern)))
        *id = pw->pw_uid;
    else if (c->kind == COND_GROUP && (gr = getgrnam(c->pattern)))
        *id = gr->gr_gid;
    else
        return false;
    return true;
}

static bool has_key(enum condition_kind k)
{
    return k == COND_ENVIRONMENT || k == COND_LABEL;
}

/* Parses "KEY = PATTERN", or only "KEY", which matches any value. */
static int condition_key(struct parser *p, const struct key *k, struct condition *c,
                         const char **value)
{
    const char *text = *value, *equals = strchrnul(text, '=');
    size_t n = (size_t)(equals - text);
    while (n && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        n--;
    if (!n || n >= sizeof(c->key))
        return complain(p, "%s: NAME=PATTERN is needed, with a name of 1 to %zu bytes", k->name,
                        sizeof(c->key) - 1);
    snprintf(c->key, sizeof(c->key), "%.*s", (int)n, text);
    *value = *equals ? equals + 1 + strspn(equals + 1, " \t") : "*";
    return 1;
}

static int read_condition(struct parser *p, const struct key *k, const char *value)
{
    struct rule *r = p->rule;
    struct condition c = {.kind = 0};
    if (!r->account && strcmp(k->name, "group") == 0 && launch_parse(value, &r->launch))
        return 1;
    while (strcmp(condition_name((enum condition_kind)c.kind), k->name) != 0)
        c.kind++;
    if (r->n == RULE_CONDITIONS_MAX)
        return complain(p, "more than %d conditions", RULE_CONDITIONS_MAX);
    if (has_key((enum condition_kind)c.kind) && !condition_key(p, k, &c, &value))
        return 0;
    if ((!*value && !has_key((enum condition_kind)c.kind)) || strlen(value) >= sizeof(c.pattern))
        return complain(p, "%s: 1 to %zu bytes are allowed", k->name, sizeof(c.pattern) - 1);
    snprintf(c.pattern, sizeof(c.pattern), "%s", value);
    if (c.kind == COND_UID || c.kind == COND_GROUP)
        c.nobody = !condition_number(&c, &c.id);
    if (c.nobody && (r->account || strchr("-0123456789", value[0])))
        return complain(p, "%s: '%.64s' is neither a number nor a name that is known here", k->name,
                        value);
    if (c.kind == COND_CONTAINER && rule_is_container_id(value) &&
        strlen(value) < RULE_CONTAINER_DIGITS)
        return complain(p, "container: at least %d digits of the id are needed, or a pattern",
                        RULE_CONTAINER_DIGITS);
    r->conditions[r->n++] = c;
    return 1;
}

/* "promised", or of a limit of memory also "promised, kill": the action of a limit that counts
 * anyway. 0: the value is another one. */
static int read_promised(struct parser *p, const struct key *k, const char *value, struct error *e)
{
    struct request *r = &p->rule->request;
    const uint32_t bit = p->rule->account ? 0 : promised_bit(k->name);
    const char *action = bit == TERM(memory_max_mib) ? strchr(value, ',') : NULL;
    const size_t n = action ? (size_t)(action - value) : strlen(value);
    if (!bit || n != strlen(PROMISED) || strncmp(value, PROMISED, n) != 0)
        return 0;
    p->rule->promised |= bit;
    if (bit == TERM(class)) {
        r->given |= TERM(class);
        r->class = CLASS_NORMAL;
    }
    const char *text = action ? action + 1 + strspn(action + 1, " ") : "warn";
    if (bit == TERM(memory_max_mib) &&
        term_read(term_of_key("memory_over"), k->name, text, r, e) < 0)
        return -EINVAL;
    return 1;
}

/* Reads a term of a rule's jobs, which is the same as an option of `cede run`. */
static int read_request(struct parser *p, const struct key *k, const char *value)
{
    struct error e = {""};
    struct request *r = &p->rule->request;
    if (!p->rule->account && strcmp(k->name, "class") == 0 && strcmp(value, "environment") == 0) {
        p->rule->class_said = true;
        r->given |= TERM(class);
        r->class = CLASS_NORMAL;
        return 1;
    }
    const int promised = read_promised(p, k, value, &e);
    if (promised < 0 || (promised == 0 && request_text(r, k->name, value, &e) < 0))
        return complain(p, "%s", e.text);
    if (promised)
        return 1;
    if (r->has_gpu)
        return complain(p, "memory: a rule names no GPU: the room is made where the job starts");
    if ((r->given & TERM(deadline_us) && !r->deadline_us) ||
        (r->given & TERM(laxity_us) && !r->laxity_us))
        return complain(p, "%s: 0 is not allowed; without a %s leave the key out", k->name,
                        k->name);
    return 1;
}

#define SEVERAL .several = true
static const struct key rule_keys[] = {
    {"uid", .read = read_condition},
    {"group", .read = read_condition, SEVERAL},
    {"exe", .read = read_condition},
    {"arguments", .read = read_condition},
    {"environment", .read = read_condition, SEVERAL},
    {"cgroup", .read = read_condition},
    {"unit", .read = read_condition},
    {"container", .read = read_condition},
    {"container_name", .read = read_condition},
    {"image", .read = read_condition},
    {"pod", .read = read_condition},
    {"namespace", .read = read_condition},
    {"priority_class", .read = read_condition},
    {"label", .read = read_condition, SEVERAL},
    {"slurm_job", .read = read_condition},
    {"partition", .read = read_condition},
    {"qos", .read = read_condition},
    {"class", .read = read_request},
    {"weight", .read = read_request},
    {"memory", .read = read_request},
    {"budget", .read = read_request},
    {"gpu_min", .read = read_request},
    {"gpu_max", .read = read_request},
    {"memory_max", .read = read_request},
    {"deadline", .read = read_request},
    {"laxity", .read = read_request},
    {"name", .read = read_request},
};
/* An account is chosen at once, so its conditions are only about facts that need no lookup. */
static const struct key account_keys[] = {
    {"uid", .read = read_condition},       {"group", .read = read_condition},
    {"cgroup", .read = read_condition},    {"unit", .read = read_condition},
    {"container", .read = read_condition}, {"slurm_job", .read = read_condition},
    {"partition", .read = read_condition}, {"qos", .read = read_condition},
    {"weight", .read = read_request},      {"gpu_min", .read = read_request},
    {"gpu_max", .read = read_request},
};
#undef SEVERAL

const struct key *config_rule_key(enum section s, unsigned i)
{
    if (s == S_ACCOUNT)
        return i < ARRAY_SIZE(account_keys) ? &account_keys[i] : NULL;
    return i < ARRAY_SIZE(rule_keys) ? &rule_keys[i] : NULL;
}

void config_rule_end(struct parser *p)
{
    const struct rule *r = p->rule;
    struct error e = {""};
    if (p->section < S_RULE || p->r < 0)
        return;
    const bool any_class = r->class_said || r->promised & TERM(class);
    const char *what = p->section == S_RULE ? "rule" : "account";
    if (!r->n)
        error_set(&e, 0, "it matches nothing: give it uid, %sunit, cgroup or container",
                  r->account ? "" : "exe, pod, ");
    else if (any_class && r->request.given & (TERM(budget_us) | TERM(deadline_us)))
        error_set(&e, 0, "class %s may be any class, which excludes budget and deadline",
                  r->class_said ? "environment" : PROMISED);
    else if (!any_class && r->request.class != CLASS_LATENCY &&
             (r->request.memory_bytes || r->promised & PROMISED_MEMORY))
        error_set(&e, 0, "memory is room that is made for latency jobs: its class is %s",
                  job_class_name(r->request.class));
    else if (!r->account && !(r->request.given & TERM(class)))
        error_set(&e, 0, "it has no class: latency, normal or batch");
    else
        (void)terms_check(&r->request, r->account ? CLASS_COUNT : r->request.class, &e);
    if (e.text[0])
        config_complain(p, p->section_line, -EINVAL, "%s %s: %s", what, r->title, e.text);
}

static bool new_rule(struct parser *p, const struct rule *rule)
{
    const size_t n = p->c.nrules;
    if ((n & (n - 1)) == 0) { /* full: the room is always a power of two */
        struct rule *v = reallocarray(p->c.rules, n ? 2 * n : 1, sizeof(*v));
        if (!v) {
            config_complain(p, p->line, -ENOMEM, "no memory for rules");
            return false;
        }
        p->c.rules = v;
    }
    p->rule = &p->c.rules[p->c.nrules++];
    *p->rule = *rule;
    return true;
}

/* `others` is a last rule without conditions. */
static void rule_of_others(struct parser *p)
{
    const struct rule all = {
        .request = {.given = TERM(class), .class = (enum job_class)p->c.others}};
    if (p->r == 0 && p->c.others != OTHERS_LEAVE)
        new_rule(p, &all);
}

int config_rule_begin(struct parser *p, const char *title, bool account)
{
    const char *what = account ? "account" : "rule";
    int most = account ? ACCOUNT_NAME_MAX - 1 : JOB_NAME_MAX - 1;
    if (!*title || strlen(title) > (size_t)most || (account && !proto_name_ok(title)))
        return complain(p, "the line is [%s NAME], with a name of 1 to %d bytes%s", what, most,
                        account ? " that a job could have" : "");
    for (size_t i = 0; i < p->c.nrules; i++) {
        if (p->c.rules[i].account == account && strcmp(p->c.rules[i].title, title) == 0)
            return complain(p, "%s %s is there already, at line %d", what, title, p->rule_line[i]);
    }
    if (p->c.nrules == CONFIG_RULES_MAX)
        return complain(p, "more than %d rules and accounts", CONFIG_RULES_MAX);
    struct rule r = {.account = account};
    snprintf(r.title, sizeof(r.title), "%s", title);
    p->rule_line[p->c.nrules] = p->line;
    return new_rule(p, &r);
}

/* The variables that cede-identify looks up in each program have to fit into one message. */
static void check_variables(struct parser *p)
{
    char names[VARIABLES_BYTES], text[RULE_KEY_MAX + 16];
    size_t used = 0;
    for (size_t i = 0; i < p->c.nrules && p->r == 0; i++) {
        for (uint32_t k = 0; k < p->c.rules[i].n; k++) {
            const char *name = condition_wants(&p->c.rules[i].conditions[k], text);
            if (*name && !pairs_get((struct pairs){names, used}, name) &&
                pairs_put(names, sizeof(names), &used, name, "") < 0)
                config_complain(p, p->rule_line[i], -EINVAL,
                                "rule %s: rules name too many variables of the environment, more "
                                "than %zu bytes of names",
                                p->c.rules[i].title, sizeof(names));
        }
    }
}

void config_rules_check(struct parser *p)
{
    check_floors(p);
    check_variables(p);
    rule_of_others(p);
}
