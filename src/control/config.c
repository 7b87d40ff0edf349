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

enum section { S_NONE, S_DAEMON, S_POLICY, S_RULE };

struct parser {
    const char *file;
    const char *text, *end; /* what is not read yet */
    struct config c;
    size_t rules_cap;
    enum section section;
    int line, section_line;
    int rule_line[CONFIG_RULES_MAX];
    int param_line[PARAMS_COUNT]; /* where each was set; 0: nowhere */
    uint32_t keys;                /* given in this section */
    bool seen[S_RULE];            /* sections that may be there once */
    bool rule_has_class;
    int r; /* first error */
    struct error *err;
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

/* [daemon] */

static int put_text(struct parser *p, const char *key, const char *value, char *to, size_t size)
{
    if (!*value || strlen(value) >= size)
        return complain(p, "%s: 1 to %zu bytes are allowed", key, size - 1);
    snprintf(to, size, "%s", value);
    return 1;
}

static int daemon_key(struct parser *p, const char *key, const char *value)
{
    static const struct {
        const char *name;
        int level;
    } levels[] = {
        {"error", LOG_ERR}, {"warning", LOG_WARNING}, {"info", LOG_INFO}, {"debug", LOG_DEBUG}};
    static const struct {
        const char *name;
        enum swap_mode mode;
    } modes[] = {{"auto", SWAP_AUTO}, {"manual", SWAP_MANUAL}, {"off", SWAP_OFF}};

    if (strcmp(key, "group") == 0) {
        const struct group *g = *value ? getgrnam(value) : NULL;
        if (!g)
            return complain(p, "group: there is no group '%.64s'; groupadd --system NAME makes one",
                            value);
        p->c.admin_gid = g->gr_gid;
        return 1;
    }
    if (strcmp(key, "device") == 0) {
        struct error e = {""};
        if (device_list_check(value, &e) < 0)
            return complain(p, "%s", e.text);
        return put_text(p, key, value, p->c.device, sizeof(p->c.device));
    }
    if (strcmp(key, "soft_socket") == 0) {
        if (value[0] != '/')
            return complain(p, "soft_socket: an absolute path is needed");
        return put_text(p, key, value, p->c.soft_socket, sizeof(p->c.soft_socket));
    }
    if (strcmp(key, "swap") == 0) {
        for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
            if (strcmp(value, modes[i].name) == 0) {
                p->c.swap.mode = modes[i].mode;
                return 1;
            }
        }
        return complain(p, "swap: '%.64s' is not auto, manual or off", value);
    }
    if (strcmp(key, "memory_reserve") == 0) {
        if (parse_bytes(value, PROTO_BYTES_MAX, &p->c.swap.reserve_bytes) < 0)
            return complain(p, "memory_reserve: '%.64s' is no size, such as 0, 500M or 16G", value);
        return 1;
    }
    if (strcmp(key, "others") == 0) {
        p->c.takes_others = strcmp(value, "leave") != 0;
        if (p->c.takes_others &&
            (job_class_parse(value, &p->c.others) < 0 || p->c.others == CLASS_LATENCY))
            return complain(p, "others: '%.64s' is not leave, normal or batch", value);
        return 1;
    }
    for (size_t i = 0; i < ARRAY_SIZE(levels); i++) {
        if (strcmp(value, levels[i].name) == 0) {
            p->c.log_level = levels[i].level;
            return 1;
        }
    }
    return complain(p, "log_level: '%.64s' is not error, warning, info or debug", value);
}

/* [policy] */

static int policy_key(struct parser *p, const char *key, const char *value)
{
    if (strcmp(key, "name") == 0) {
        const char *name, *summary;
        char known[128] = "";
        for (unsigned i = 0; sched_policy_at(i, &name, &summary); i++) {
            if (strcmp(value, name) == 0)
                return put_text(p, key, value, p->c.policy, sizeof(p->c.policy));
            size_t n = strlen(known);
            snprintf(known + n, sizeof(known) - n, "%s%s", n ? ", " : "", name);
        }
        return complain(p, "name: there is no policy '%.64s'; there are %s", value, known);
    }
    const struct param *f = param_find(key);
    uint64_t whole = 0;
    double v = 0;
    if (f->real ? parse_double(value, 0, UINT32_MAX, &v) < 0
                : parse_u64(value, 0, UINT32_MAX, &whole) < 0)
        return complain(p, "%s: '%.64s' is not a %s: %s", key, value,
                        f->real ? "number" : "whole number", f->allowed);
    param_set(&p->c.params, f, f->real ? v : (double)whole);
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
    complain_at(p, line, -EINVAL, "%s is out of range: %s", what->name, what->allowed);
}

/* [rule NAME] */

static int rule_uid(struct parser *p, struct rule *r, const char *value)
{
    uint64_t v;
    r->has_uid = true;
    if (parse_u64(value, 0, UINT32_MAX - 1, &v) == 0) {
        r->uid = (uid_t)v;
        return 1;
    }
    const struct passwd *pw = *value ? getpwnam(value) : NULL;
    if (!pw)
        return complain(p, "uid: '%.64s' is neither a user's number nor a user's name here", value);
    r->uid = pw->pw_uid;
    return 1;
}

static int rule_key(struct parser *p, const char *key, const char *value)
{
    struct rule *r = &p->c.rules[p->c.nrules - 1];
    if (strcmp(key, "uid") == 0)
        return rule_uid(p, r, value);
    if (strcmp(key, "exe") == 0)
        return put_text(p, key, value, r->exe, sizeof(r->exe));
    if (strcmp(key, "cgroup") == 0)
        return put_text(p, key, value, r->cgroup, sizeof(r->cgroup));
    if (strcmp(key, "container") == 0) {
        if (rule_is_container_id(value) && strlen(value) < RULE_CONTAINER_DIGITS)
            return complain(p, "container: at least %d digits of the id are needed, or a pattern",
                            RULE_CONTAINER_DIGITS);
        return put_text(p, key, value, r->container, sizeof(r->container));
    }
    if (strcmp(key, "class") == 0) {
        if (job_class_parse(value, &r->class) < 0)
            return complain(p, "class: '%.64s' is not latency, normal or batch", value);
        p->rule_has_class = true;
        return 1;
    }
    if (strcmp(key, "weight") == 0) {
        uint64_t v;
        if (parse_u64(value, WEIGHT_MIN, WEIGHT_MAX, &v) < 0)
            return complain(p, "weight: '%.64s' is not a whole number from %u to %u", value,
                            WEIGHT_MIN, WEIGHT_MAX);
        r->weight = (uint32_t)v;
        return 1;
    }
    if (strcmp(key, "budget") == 0) {
        uint64_t us;
        if (parse_duration_us(value, BUDGET_MAX_US, &us) < 0)
            return complain(p, "budget: '%.64s' is not a time up to 1s, such as 500us or 2ms",
                            value);
        r->budget_us = (uint32_t)us;
        return 1;
    }
    if (strcmp(key, "deadline") == 0 || strcmp(key, "laxity") == 0) {
        uint64_t us, least = key[0] == 'd' ? DEADLINE_MIN_US : 1;
        if (parse_duration_us(value, DEADLINE_MAX_US, &us) < 0 || us < least)
            return complain(p, "%s: '%.64s' is not a time up to 3600s%s, such as 3s", key, value,
                            key[0] == 'd' ? " of at least 200ms" : "");
        *(key[0] == 'd' ? &r->deadline_us : &r->laxity_us) = (uint32_t)us;
        return 1;
    }
    if (!proto_name_ok(value))
        return complain(p, "name: 1 to %d bytes, not a number, not starting with #",
                        JOB_NAME_MAX - 1);
    return put_text(p, key, value, r->name, sizeof(r->name));
}

/* Sections */

static const struct {
    const char *const *keys;
    int (*set)(struct parser *p, const char *key, const char *value);
} sections[] = {
    [S_DAEMON] = {(const char *const[]){"group", "device", "soft_socket", "log_level", "swap",
                                        "memory_reserve", "others", NULL},
                  daemon_key},
    [S_POLICY] = {(const char *const[]){
                      "name", "floor", "timeslice_min_us", "timeslice_latency_us",
                      "timeslice_alone_us", "timeslice_share_us", "timeslice_max_us",
                      "timeslice_floor_us", "rotation_us", "probe_us", "switch_us", "switch_loss",
                      "top_loss", "copies_apart", "urgent_us", "edf_k", "deadline_share", NULL},
                  policy_key},
    [S_RULE] = {(const char *const[]){"uid", "exe", "cgroup", "container", "class", "weight",
                                      "budget", "deadline", "laxity", "name", NULL},
                rule_key},
};

static int on_key(void *user, const char *section, const char *key, const char *value)
{
    struct parser *p = user;
    if (p->r < 0)
        return 0;
    if (p->section == S_NONE)
        return complain(p,
                        "'%.64s' stands before any section; there are [daemon], [policy] and "
                        "[rule NAME]",
                        key);
    char known[384] = "";
    const char *const *keys = sections[p->section].keys;
    for (unsigned i = 0; keys[i]; i++) {
        if (strcmp(key, keys[i]) != 0) {
            size_t n = strlen(known);
            snprintf(known + n, sizeof(known) - n, "%s%s", n ? ", " : "", keys[i]);
            continue;
        }
        if (p->keys & (1U << i))
            return complain(p, "%s is given twice in this section", key);
        p->keys |= 1U << i;
        return sections[p->section].set(p, key, value);
    }
    return complain(p, "unknown key '%.64s'; allowed here: %s", key, known);
}

static void end_section(struct parser *p)
{
    if (p->section != S_RULE || p->r < 0)
        return;
    const struct rule *r = &p->c.rules[p->c.nrules - 1];
    if (r->budget_us && p->rule_has_class && r->class != CLASS_LATENCY)
        complain_at(p, p->section_line, -EINVAL,
                    "rule %s has a budget, which only class latency can have", r->title);
    else if (r->laxity_us && r->laxity_us >= r->deadline_us)
        complain_at(p, p->section_line, -EINVAL,
                    "rule %s has a laxity, which needs a longer deadline", r->title);
    else if (r->deadline_us && p->rule_has_class && r->class == CLASS_LATENCY)
        complain_at(p, p->section_line, -EINVAL,
                    "rule %s has a deadline, which only classes normal and batch can have",
                    r->title);
    else if (!r->has_uid && !r->exe[0] && !r->cgroup[0] && !r->container[0])
        complain_at(p, p->section_line, -EINVAL,
                    "rule %s matches nothing: give it uid, exe, cgroup or container", r->title);
    else if (!p->rule_has_class)
        complain_at(p, p->section_line, -EINVAL, "rule %s has no class: latency, normal or batch",
                    r->title);
}

/* NULL, and said so: no memory. */
static struct rule *new_rule(struct parser *p)
{
    if (p->c.nrules == p->rules_cap) {
        size_t cap = p->rules_cap ? p->rules_cap * 2 : 8;
        struct rule *v = reallocarray(p->c.rules, cap, sizeof(*v));
        if (!v) {
            complain_at(p, p->line, -ENOMEM, "no memory for rules");
            return NULL;
        }
        p->c.rules = v;
        p->rules_cap = cap;
    }
    struct rule *r = &p->c.rules[p->c.nrules++];
    *r = (struct rule){.weight = WEIGHT_DEFAULT};
    return r;
}

/* `others` amounts to a last rule that asks for nothing. */
static void rule_of_others(struct parser *p)
{
    struct rule *r = p->r == 0 && p->c.takes_others ? new_rule(p) : NULL;
    if (r)
        r->class = p->c.others;
}

static int begin_rule(struct parser *p, const char *title)
{
    if (!*title || strlen(title) >= JOB_NAME_MAX)
        return complain(p, "a rule is headed [rule NAME], with a name of 1 to %d bytes",
                        JOB_NAME_MAX - 1);
    for (size_t i = 0; i < p->c.nrules; i++) {
        if (strcmp(p->c.rules[i].title, title) == 0)
            return complain(p, "rule %s is there already, at line %d", title, p->rule_line[i]);
    }
    if (p->c.nrules == CONFIG_RULES_MAX)
        return complain(p, "more than %d rules", CONFIG_RULES_MAX);
    struct rule *r = new_rule(p);
    if (!r)
        return 0;
    snprintf(r->title, sizeof(r->title), "%s", title);
    p->rule_line[p->c.nrules - 1] = p->line;
    p->rule_has_class = false;
    return 1;
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
    if (strncmp(name, "rule", 4) == 0 && (!name[4] || strchr(" \t", name[4]))) {
        if (!begin_rule(p, name + 4 + strspn(name + 4, " \t")))
            return 0;
        p->section = S_RULE;
        return 1;
    }
    return complain(p, "unknown section [%.64s]; there are [daemon], [policy] and [rule NAME]",
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
    size_t size = (size_t)min_u64((uint64_t)st.st_size, CONFIG_SIZE_MAX) + 1, n = 0;
    _cleanup_free_ char *text = malloc(size);
    if (!text)
        return error_set(err, -ENOMEM, "no memory to read %s", file);
    while (n < size) {
        ssize_t got = read(fd, text + n, size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set(err, -errno, "cannot read configuration %s: %s", file,
                             strerror(errno));
        if (got == 0)
            break;
        n += (size_t)got;
    }
    return config_parse(file, text, n, out, err);
}
