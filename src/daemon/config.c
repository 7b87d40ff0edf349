/* See config.h. The file's syntax is inih's (key = value, # and ; comments). Lines and sections are
 * checked here before inih sees them, because it cuts long lines and names silently and does not
 * report empty sections. */
#include "daemon/config.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <ini.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>

#include "api/proto.h"
#include "daemon/config_impl.h"
#include "gpu/registry.h"

static int config_text(struct parser *p, const struct key *k, const char *value)
{
    if (!*value || strlen(value) >= k->size)
        return complain(p, "%s: 1 to %zu bytes are allowed", k->name, k->size - 1);
    snprintf(config_target(p, k), k->size, "%s", value);
    return 1;
}

static int read_word(struct parser *p, const struct key *k, const char *value)
{
    char known[64] = "";
    for (unsigned i = 0; i < k->nwords; i++) {
        if (!k->words[i])
            continue;
        if (strcmp(value, k->words[i]) == 0) {
            memcpy(config_target(p, k), &i, sizeof(i));
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
    return parse_bytes(value, MEMORY_MAX_BYTES, config_target(p, k)) < 0
               ? complain(p, "%s: '%.64s' is no size, such as 0, 500M or 16G", k->name, value)
               : 1;
}

#define START_LIMIT_US (3600 * 1000000ULL)

static int read_start(struct parser *p, const struct key *k, const char *value)
{
    return parse_duration_us(value, START_LIMIT_US, config_target(p, k)) < 0
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
    *(uint32_t *)config_target(p, k) = (uint32_t)days;
    return 1;
}

static int read_sm(struct parser *p, const struct key *k, const char *value)
{
    uint64_t percent;
    if (parse_percent(value, 1, &percent) < 0)
        return complain(p, "%s: '%.64s' is no percentage from 1%% to 100%%, such as 90%%", k->name,
                        value);
    *(uint32_t *)config_target(p, k) = (uint32_t)percent;
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

/* Parameters bound each other, so they are checked when all have been read. */
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
    config_complain(p, line, -EINVAL, "%s is out of range: %s is allowed", what->name,
                    param_range(what, range));
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

static const char *const environments[] = {"ignore", "lower"};
static const char *const yes_no[] = {"no", "yes"};
static const char *const pools[] = {
    [POOL_OF_NONE] = "off", [POOL_OF_BATCH] = "batch", [POOL_OF_LATENCY] = "latency"};

static const char *const checks[] = {
    [DRIVER_CHECK_AUTO] = "auto", [DRIVER_CHECK_ALWAYS] = "always", [DRIVER_CHECK_NEVER] = "never"};

static const struct key daemon_keys[] = {
    {"group", .read = read_group},
    {"device", .read = config_device, AT(config, device)},
    {"soft_socket", .read = read_path, AT(config, soft_socket)},
    {"log_level", .read = read_word, AT(config, log_level), WORDS(levels)},
    {"swap", .read = read_word, AT(config, swap.mode), WORDS(modes)},
    {"swap_start", .read = read_start, AT(config, swap.start_us)},
    {"memory_reserve", .read = read_bytes, AT(config, swap.reserve_bytes)},
    {"others", .read = read_word, AT(config, others), WORDS(others)},
    {"environment", .read = read_word, AT(config, environment), WORDS(environments)},
    {"driver_check", .read = read_word, AT(config, driver_check), WORDS(checks)},
    {"pool", .read = read_word, AT(config, pool), WORDS(pools)},
    {"pool_latency_sm", .read = read_sm, AT(config, pool_latency_sm)},
    {"accounts", .read = read_word, AT(config, accounts), WORDS(yes_no)},
    {"accounts_keep", .read = read_days, AT(config, keep_days)},
};
static const struct key policy_key = {"name", .read = read_policy, AT(config, policy)};
#undef AT

/* The name of a section's i-th key, and the key or, in [policy], parameter. NULL: past the last. */
static const char *key_at(enum section s, unsigned i, const struct key **k, const struct param **f)
{
    *k = NULL;
    *f = NULL;
    if (s == S_DAEMON && i < ARRAY_SIZE(daemon_keys))
        *k = &daemon_keys[i];
    if (s >= S_RULE)
        *k = config_rule_key(s, i);
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
        if (p->keys & (1U << i) && !(k && k->several))
            return complain(p, "%s is given twice in this section", key);
        p->keys |= 1U << i;
        return k ? k->read(p, k, value) : read_param(p, f, value);
    }
    return complain(p, "unknown key '%.64s'; allowed here: %s", key, known);
}

/* line: "[...", terminated; it is replaced by "[]", a header that inih accepts. */
static int begin_section(struct parser *p, char *line)
{
    static const char *const once[] = {[S_DAEMON] = "daemon", [S_POLICY] = "policy"};
    char *close = strchr(line, ']');
    const char *after = close ? close + 1 + strspn(close + 1, " \t\r\n") : NULL;
    if (!after || !strchr("#;", *after)) /* strchr() finds the terminating null, too */
        return complain(p, "a section's line is [NAME], and a comment at most");
    config_rule_end(p);
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
        if (!config_rule_begin(p, name + word + strspn(name + word, " \t"), account))
            return 0;
        p->section = account ? S_ACCOUNT : S_RULE;
        return 1;
    }
    return complain(p,
                    "unknown section [%.64s]; there are [daemon], [policy], [rule NAME] and "
                    "[account NAME]",
                    name);
}

/* An ini_reader, which works as fgets() does. Blanks at the start are dropped, because inih takes
 * an indented line for a continuation of the value before it. */
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
    if (len && (*line == '#' || *line == ';')) /* a comment may have any length */
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

static void config_default(struct config *c)
{
    *c = (struct config){
        .admin_gid = ADMIN_NO_GROUP,
        .device = "auto",
        .log_level = LOG_INFO,
        .policy = "laxity",
        .others = OTHERS_LEAVE,
        .environment = true,
        .accounts = true,
        .keep_days = KEEP_DAYS,
        .pool_latency_sm = POOL_LATENCY_SM,
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
    _cleanup_free_ struct parser *p = calloc(1, sizeof(*p));
    if (!p)
        return error_set(err, -ENOMEM, "%s: no memory to read it", file);
    p->file = file;
    p->text = text;
    p->end = text + n;
    p->err = err;
    config_default(&p->c);

    int bad = ini_parse_stream(next_line, p, on_key, p);
    if (bad > 0)
        config_complain(p, bad, -EINVAL,
                        "this line is neither key = value, nor [section], nor # comment");
    else if (bad < 0)
        config_complain(p, p->line, -ENOMEM, "no memory to read it");
    config_rule_end(p);
    check_params(p);
    config_rules_check(p);
    int r = p->r;
    if (r < 0)
        config_free(&p->c);
    else
        *out = p->c;
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
