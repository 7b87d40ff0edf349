/* See config.h. The file's syntax is inih's (key = value, # and ; comments); lines, sections and
 * what each may hold are watched here, because inih cuts long lines and names silently and
 * does not report empty sections. */
#include "control/config.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <ini.h>
#include <pwd.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>

#include "control/proto.h"
#include "device/registry.h"

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
};

/* Reports an error with its line; only the first one is kept. Returns 0, inih's failure. */
static int complain_at(struct parser *p, int line, int code, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

static int complain_at(struct parser *p, int line, int code, const char *fmt, ...)
{
    if (p->r == 0) {
        char text[384];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        p->r = error_set(p->err, code, "%s:%d: %s", p->file, line, text);
    }
    return 0;
}
#define complain(p, ...) complain_at(p, (p)->line, -EINVAL, __VA_ARGS__)

static void *config_place(struct parser *p, const struct key *k)
{
    return (char *)(p->section >= S_RULE ? (void *)p->rule : &p->c) + k->at;
}

static int config_text(struct parser *p, const struct key *k, const char *value)
{
    if (!*value || strlen(value) >= k->size)
        return complain(p, "%s: 1 to %zu bytes are allowed", k->name, k->size - 1);
    snprintf(config_place(p, k), k->size, "%s", value);
    return 1;
}

static int read_word(struct parser *p, const struct key *k, const char *value)
{
    char known[64] = "";
    for (unsigned i = 0; i < k->nwords; i++) {
        if (!k->words[i])
            continue;
        if (strcmp(value, k->words[i]) == 0) {
            memcpy(config_place(p, k), &i, sizeof(i));
            return 1;
        }
        list_add(known, sizeof(known), k->words[i]);
    }
    return complain(p, "%s: '%.64s' is not one of %s", k->name, value, known);
}

/* [daemon] */

static int read_group(struct parser *p, const struct key *k, const char *value)
{
    const struct group *g = *value ? getgrnam(value) : NULL;
    if (!g)
        return complain(p, "group: there is no group '%.64s'; groupadd --system NAME makes one",
                        value);
    p->c.admin_gid = g->gr_gid;
    return 1;
}

static int config_device(struct parser *p, const struct key *k, const char *value)
{
    struct error e = {""};
    return device_list_check(value, &e) < 0 ? complain(p, "%s", e.text) : config_text(p, k, value);
}

static int read_path(struct parser *p, const struct key *k, const char *value)
{
    return value[0] != '/' ? complain(p, "%s: an absolute path is needed", k->name)
                           : config_text(p, k, value);
}

static int read_bytes(struct parser *p, const struct key *k, const char *value)
{
    return parse_bytes(value, MEMORY_MAX_BYTES, config_place(p, k)) < 0
               ? complain(p, "%s: '%.64s' is no size, such as 0, 500M or 16G", k->name, value)
               : 1;
}

#define START_LIMIT_US (3600 * 1000000ULL)

static int read_start(struct parser *p, const struct key *k, const char *value)
{
    return parse_duration_us(value, START_LIMIT_US, config_place(p, k)) < 0
               ? complain(p, "%s: '%.64s' is no time up to 3600s, such as 90s, or 0", k->name,
                          value)
               : 1;
}

static int read_days(struct parser *p, const struct key *k, const char *value)
{
    char number[16];
    uint64_t days;
    snprintf(number, sizeof(number), "%s", value);
    char *unit = strchr(number, 'd');
    const bool has_unit = unit && !unit[1];
    if (has_unit)
        *unit = '\0';
    if (!has_unit || parse_u64(number, 1, KEEP_DAYS_MAX, &days) < 0)
        return complain(p, "%s: '%.64s' is no number of days from 1d to %dd, such as 90d", k->name,
                        value, KEEP_DAYS_MAX);
    *(uint32_t *)config_place(p, k) = (uint32_t)days;
    return 1;
}

/* [policy] */

static int read_policy(struct parser *p, const struct key *k, const char *value)
{
    const char *name, *summary;
    char known[128] = "";
    for (unsigned i = 0; sched_policy_at(i, &name, &summary); i++) {
        if (strcmp(value, name) == 0)
            return config_text(p, k, value);
        list_add(known, sizeof(known), name);
    }
    return complain(p, "name: there is no policy '%.64s'; there are %s", value, known);
}

static int read_param(struct parser *p, const struct param *f, const char *value)
{
    double v;
    char range[PARAM_RANGE];
    if (parse_double(value, 0, UINT32_MAX, &v) < 0 || param_set(&p->c.params, f, v) < 0)
        return complain(p, "%s: '%.64s' is not a %s: %s is allowed", f->name, value,
                        f->real ? "number" : "whole number", param_range(f, range));
    p->param_line[f - param_at(0)] = p->line;
    return 1;
}

/* The fields depend on each other, so they are checked when all are there. */
static void check_params(struct parser *p)
{
    const struct param *what;
    if (p->r < 0 || params_check(&p->c.params, &what) == 0)
        return;
    /* A default that no longer fits is reported at the last line that moved its bounds. */
    int line = p->param_line[what - param_at(0)];
    if (!line) {
        for (unsigned i = 0; i < PARAMS_COUNT; i++)
            line = p->param_line[i] > line ? p->param_line[i] : line;
    }
    char range[PARAM_RANGE];
    complain_at(p, line, -EINVAL, "%s is out of range: %s is allowed", what->name,
                param_range(what, range));
}

/* Accounts may have jobs on the same GPU. */
static void check_floors(struct parser *p)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < p->c.nrules && p->r == 0; i++) {
        const struct rule *r = &p->c.rules[i];
        sum += r->account ? r->request.gpu_min : 0;
        if (sum > 100)
            complain_at(p, p->rule_line[i], -EINVAL,
                        "account %s: with its gpu_min of %u%% accounts are promised %u%% of a GPU",
                        r->title, r->request.gpu_min, sum);
    }
}

/* [rule NAME] */

static int read_uid(struct parser *p, const struct key *k, const char *value)
{
    struct rule *r = p->rule;
    uint64_t v = 0;
    const struct passwd *pw = NULL;
    bool number = parse_u64(value, 0, UINT32_MAX - 1, &v) == 0;
    if (!number && *value)
        pw = getpwnam(value);
    if (!number && !pw)
        return complain(p, "uid: '%.64s' is neither a user's number nor a user's name here", value);
    r->has_uid = true;
    r->uid = pw ? pw->pw_uid : (uid_t)v;
    return 1;
}

static int read_container(struct parser *p, const struct key *k, const char *value)
{
    if (rule_is_container_id(value) && strlen(value) < RULE_CONTAINER_DIGITS)
        return complain(p, "container: at least %d digits of the id are needed, or a pattern",
                        RULE_CONTAINER_DIGITS);
    return config_text(p, k, value);
}

/* What a rule asks for its jobs, as `cede run` would. */
static int read_request(struct parser *p, const struct key *k, const char *value)
{
    struct error e = {""};
    struct request *r = &p->rule->request;
    if (request_text(r, k->name, value, &e) < 0)
        return complain(p, "%s", e.text);
    if ((r->has_deadline && !r->deadline_us) || (r->has_laxity && !r->laxity_us))
        return complain(p, "%s: 0 is not allowed; without a %s leave the key out", k->name,
                        k->name);
    return 1;
}

/* Sections */

#define AT(type, f) .at = offsetof(struct type, f), .size = sizeof(((struct type *)0)->f)
#define WORDS(w)    .words = w, .nwords = ARRAY_SIZE(w)
static const char *const levels[] = {
    [LOG_ERR] = "error", [LOG_WARNING] = "warning", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"};
static const char *const modes[] = {
    [SWAP_AUTO] = "auto", [SWAP_MANUAL] = "manual", [SWAP_OFF] = "off"};
static const char *const others[] = {
    [CLASS_NORMAL] = "normal", [CLASS_BATCH] = "batch", [OTHERS_LEAVE] = "leave"};

static const char *const yes_no[] = {"no", "yes"};
static const char *const pools[] = {[POOL_OF_NONE] = "off", [POOL_OF_BATCH] = "batch"};

static const struct key daemon_keys[] = {
    {"group", .read = read_group},
    {"device", .read = config_device, AT(config, device)},
    {"soft_socket", .read = read_path, AT(config, soft_socket)},
    {"log_level", .read = read_word, AT(config, log_level), WORDS(levels)},
    {"swap", .read = read_word, AT(config, swap.mode), WORDS(modes)},
    {"swap_start", .read = read_start, AT(config, swap.start_us)},
    {"memory_reserve", .read = read_bytes, AT(config, swap.reserve_bytes)},
    {"others", .read = read_word, AT(config, others), WORDS(others)},
    {"pool", .read = read_word, AT(config, pool), WORDS(pools)},
    {"accounts", .read = read_word, AT(config, accounts), WORDS(yes_no)},
    {"accounts_keep", .read = read_days, AT(config, keep_days)},
};
static const struct key policy_key = {"name", .read = read_policy, AT(config, policy)};
static const struct key rule_keys[] = {
    {"uid", .read = read_uid},
    {"exe", .read = config_text, AT(rule, exe)},
    {"cgroup", .read = config_text, AT(rule, cgroup)},
    {"container", .read = read_container, AT(rule, container)},
    {"class", .read = read_request},
    {"weight", .read = read_request},
    {"budget", .read = read_request},
    {"gpu_min", .read = read_request},
    {"gpu_max", .read = read_request},
    {"deadline", .read = read_request},
    {"laxity", .read = read_request},
    {"name", .read = read_request},
};
static const struct key account_keys[] = {
    {"uid", .read = read_uid},
    {"cgroup", .read = config_text, AT(rule, cgroup)},
    {"container", .read = read_container, AT(rule, container)},
    {"weight", .read = read_request},
    {"gpu_min", .read = read_request},
    {"gpu_max", .read = read_request},
};
#undef AT

/* The i-th key of a section, and of [policy] the parameter that it is. NULL: past the last. */
static const char *key_at(enum section s, unsigned i, const struct key **k, const struct param **f)
{
    *k = NULL;
    *f = NULL;
    if (s == S_DAEMON && i < ARRAY_SIZE(daemon_keys))
        *k = &daemon_keys[i];
    if (s == S_RULE && i < ARRAY_SIZE(rule_keys))
        *k = &rule_keys[i];
    if (s == S_ACCOUNT && i < ARRAY_SIZE(account_keys))
        *k = &account_keys[i];
    if (s == S_POLICY && i == 0)
        *k = &policy_key;
    else if (s == S_POLICY)
        *f = param_at(i - 1);
    return *k ? (*k)->name : *f ? (*f)->name : NULL;
}

static int on_key(void *user, const char *section, const char *key, const char *value)
{
    struct parser *p = user;
    if (p->r < 0)
        return 0;
    if (p->section == S_NONE)
        return complain(p,
                        "'%.64s' stands before any section; there are [daemon], [policy], "
                        "[rule NAME] and [account NAME]",
                        key);
    char known[384] = "";
    const struct key *k;
    const struct param *f;
    const char *name;
    for (unsigned i = 0; (name = key_at(p->section, i, &k, &f)); i++) {
        if (strcmp(key, name) != 0) {
            list_add(known, sizeof(known), name);
            continue;
        }
        if (p->keys & (1U << i))
            return complain(p, "%s is given twice in this section", key);
        p->keys |= 1U << i;
        return k ? k->read(p, k, value) : read_param(p, f, value);
    }
    return complain(p, "unknown key '%.64s'; allowed here: %s", key, known);
}

static void end_section(struct parser *p)
{
    const struct rule *r = p->rule;
    struct error e = {""};
    uint32_t budget_us;
    if (p->section < S_RULE || p->r < 0)
        return;
    const char *what = p->section == S_RULE ? "rule" : "account";
    if (!r->has_uid && !r->exe[0] && !r->cgroup[0] && !r->container[0])
        error_set(&e, 0, "it matches nothing: give it uid, %scgroup or container",
                  r->account ? "" : "exe, ");
    else if (request_limits(r->request.gpu_min, r->request.gpu_max, &e) < 0)
        ;
    else if (!r->account && !r->request.has_class)
        error_set(&e, 0, "it has no class: latency, normal or batch");
    else if (!r->account && request_budget(&r->request, r->request.class, 0, &budget_us, &e) == 0)
        request_deadline(&r->request, r->request.class, &e);
    if (e.text[0])
        complain_at(p, p->section_line, -EINVAL, "%s %s: %s", what, r->title, e.text);
}

static bool new_rule(struct parser *p, const struct rule *rule)
{
    struct rule *v = reallocarray(p->c.rules, p->c.nrules + 1, sizeof(*v));
    if (!v) {
        complain_at(p, p->line, -ENOMEM, "no memory for rules");
        return false;
    }
    p->c.rules = v;
    p->rule = &v[p->c.nrules++];
    *p->rule = *rule;
    return true;
}

/* `others` amounts to a last rule that asks for nothing. */
static void rule_of_others(struct parser *p)
{
    const struct rule all = {.request = {.has_class = true, .class = (enum job_class)p->c.others}};
    if (p->r == 0 && p->c.others != OTHERS_LEAVE)
        new_rule(p, &all);
}

static int begin_rule(struct parser *p, const char *title, bool account)
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

/* line: "[...", terminated; changed in place and left a header that inih accepts. */
static int begin_section(struct parser *p, char *line)
{
    static const char *const once[] = {[S_DAEMON] = "daemon", [S_POLICY] = "policy"};
    char *close = strchr(line, ']');
    if (!close || close[1 + strspn(close + 1, " \t\r\n")])
        return complain(p, "a section's line is [NAME] and nothing else");
    end_section(p);
    p->section = S_NONE;
    p->section_line = p->line;
    p->keys = 0;

    char name[256];
    snprintf(name, sizeof(name), "%.*s", (int)(close - line - 1), line + 1);
    line[1] = ']';
    line[2] = '\0';
    for (size_t s = S_DAEMON; s < ARRAY_SIZE(once); s++) {
        if (strcmp(name, once[s]) != 0)
            continue;
        if (p->seen[s])
            return complain(p, "section [%s] is there twice", name);
        p->seen[s] = true;
        p->section = (enum section)s;
        return 1;
    }
    size_t word = strcspn(name, " \t");
    bool account = word == 7 && strncmp(name, "account", word) == 0;
    if (account || (word == 4 && strncmp(name, "rule", word) == 0)) {
        if (!begin_rule(p, name + word + strspn(name + word, " \t"), account))
            return 0;
        p->section = account ? S_ACCOUNT : S_RULE;
        return 1;
    }
    return complain(p,
                    "unknown section [%.64s]; there are [daemon], [policy], [rule NAME] and "
                    "[account NAME]",
                    name);
}

/* An ini_reader: as fgets(). Blanks at the start are dropped, because an indented line would
 * continue the value before it. */
static char *next_line(char *buf, int num, void *stream)
{
    struct parser *p = stream;
    size_t room = (size_t)num, n = (size_t)(p->end - p->text);
    if (n == 0 || p->r < 0)
        return NULL;
    p->line++;
    const char *nl = memchr(p->text, '\n', n);
    const char *line = p->text;
    size_t len = nl ? (size_t)(nl - line) : n;
    p->text += nl ? len + 1 : len;
    if (p->line == 1 && len >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
        line += 3; /* byte order mark */
        len -= 3;
    }
    while (len && (*line == ' ' || *line == '\t')) {
        line++;
        len--;
    }
    buf[0] = '\0';
    if (memchr(line, '\0', len)) {
        complain(p, "a zero byte: this is not a text file");
        return NULL;
    }
    if (len && (*line == '#' || *line == ';')) /* however long */
        return buf;
    if (len + 1 >= room) {
        complain(p, "the line has more than %zu bytes", room - 2);
        return NULL;
    }
    memcpy(buf, line, len);
    buf[len] = '\0';
    if (buf[0] == '[' && !begin_section(p, buf))
        return NULL;
    return buf;
}

void config_default(struct config *c)
{
    *c = (struct config){
        .admin_gid = ADMIN_NO_GROUP,
        .device = "auto",
        .log_level = LOG_INFO,
        .policy = "laxity",
        .others = OTHERS_LEAVE,
        .accounts = true,
        .keep_days = KEEP_DAYS,
        .swap.start_us = STARTING_MAX_NS / NSEC_PER_USEC,
    };
    params_default(&c->params);
}

void config_free(struct config *c)
{
    free(c->rules);
    c->rules = NULL;
    c->nrules = 0;
}

int config_parse(const char *file, const char *text, size_t n, struct config *out,
                 struct error *err)
{
    if (n > CONFIG_SIZE_MAX)
        return error_set(err, -EFBIG, "%s: more than %u bytes; that is no configuration", file,
                         CONFIG_SIZE_MAX);
    struct parser *p = calloc(1, sizeof(*p));
    if (!p)
        return error_set(err, -ENOMEM, "%s: no memory to read it", file);
    p->file = file;
    p->text = text;
    p->end = text + n;
    p->err = err;
    config_default(&p->c);

    int bad = ini_parse_stream(next_line, p, on_key, p);
    if (bad > 0)
        complain_at(p, bad, -EINVAL,
                    "this line is neither key = value, nor [section], nor # comment");
    else if (bad < 0)
        complain_at(p, p->line, -ENOMEM, "no memory to read it");
    end_section(p);
    check_params(p);
    check_floors(p);
    rule_of_others(p);
    int r = p->r;
    if (r < 0)
        config_free(&p->c);
    else
        *out = p->c;
    free(p);
    return r;
}

int config_read(const char *file, bool must_exist, struct config *out, struct error *err)
{
    _cleanup_close_ int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT && !must_exist) {
        config_default(out);
        return 0;
    }
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set(err, -errno, "cannot read configuration %s: %s", file, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return error_set(err, -EINVAL, "configuration %s is not a regular file", file);

    /* One byte more than is allowed shows a file that is too long, or grew. */
    size_t size = (size_t)min_u64((uint64_t)st.st_size, CONFIG_SIZE_MAX) + 1;
    _cleanup_fclose_ FILE *f = fdopen(dup(fd), "r");
    _cleanup_free_ char *text = f ? malloc(size) : NULL;
    if (!text)
        return error_set(err, -ENOMEM, "no memory to read %s", file);
    size_t n = fread(text, 1, size, f);
    if (ferror(f))
        return error_set(err, -EIO, "cannot read configuration %s: %s", file, strerror(errno));
    return config_parse(file, text, n, out, err);
}
