/* See scenario.h. inih cuts long lines without a word, so their length is watched here. */
#include "bench/scenario.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "bench/figures.h"

#define LINE_MAX_BYTES    199 /* inih's buffer holds 200 */
#define SECTION_MAX_BYTES 49  /* its sections' 50 */

enum kind { TEXT, LIST, NUMBER };
struct key {
    const char *name;
    enum kind kind;
    size_t offset;
    double lo, hi;
};

#define AT(type, field) offsetof(struct type, field)
static const struct key top_keys[] = {
    {"title", TEXT, AT(scenario, title), 0, 0},
    {"id", TEXT, AT(scenario, id), 0, 0},
    {"reference", TEXT, AT(scenario, reference), 0, 0},
    {"shows", LIST, AT(scenario, shows), 0, 0},
    {"note", LIST, AT(scenario, note), 0, 0},
    {"needs", TEXT, AT(scenario, needs), 0, 0},
    {"configs", TEXT, AT(scenario, configs_text), 0, 0},
    {"figure", LIST, AT(scenario, figures), 0, 0},
    {"seconds", TEXT, AT(scenario, seconds_text), 0, 0},
    {"memory_mib", TEXT, AT(scenario, memory_mib), 0, 0},
    {"quick_seconds", NUMBER, AT(scenario, quick_seconds), 0.1, 600},
    {"settle", NUMBER, AT(scenario, settle), 0, 60},
    {"gpus", NUMBER, AT(scenario, gpus), 1, 16},
    {"repeat", NUMBER, AT(scenario, repeat), 1, 100},
    {"quick_repeat", NUMBER, AT(scenario, quick_repeat), 1, 100},
};
static const struct key axis_keys[] = {
    {"values", TEXT, AT(axis, values), 0, 0},
    {"quick", TEXT, AT(axis, quick), 0, 0},
    {"soft", TEXT, AT(axis, soft), 0, 0},
};
static const struct key role_keys[] = {
    {"load", TEXT, AT(role, load), 0, 0},   {"program", TEXT, AT(role, program), 0, 0},
    {"soft", TEXT, AT(role, soft), 0, 0},   {"count", TEXT, AT(role, count), 0, 0},
    {"class", TEXT, AT(role, class), 0, 0}, {"weight", TEXT, AT(role, weight), 0, 0},
    {"set", TEXT, AT(role, set), 0, 0},     {"alone", TEXT, AT(role, alone), 0, 0},
    {"start", TEXT, AT(role, start), 0, 0}, {"ready", NUMBER, AT(role, ready), 1, 600},
};
static const struct key config_keys[] = {
    {"base", TEXT, AT(config, base_text), 0, 0}, {"policy", TEXT, AT(config, policy), 0, 0},
    {"conf", LIST, AT(config, conf), 0, 0},      {"set", LIST, AT(config, set), 0, 0},
    {"run", LIST, AT(config, run), 0, 0},        {"start", TEXT, AT(config, start), 0, 0},
    {"stop", TEXT, AT(config, stop), 0, 0},      {"wrap", TEXT, AT(config, wrap), 0, 0},
    {"env", LIST, AT(config, env), 0, 0},
};
static const struct key phase_keys[] = {
    {"do", LIST, AT(phase, steps), 0, 0},
    {"takes", TEXT, AT(phase, takes), 0, 0},
    {"seconds", NUMBER, AT(phase, seconds), 0.1, 600},
};
static const struct key target_keys[] = {
    {"check", TEXT, AT(target, check), 0, 0},
    {"when", TEXT, AT(target, when), 0, 0},
    {"only", TEXT, AT(target, only), 0, 0},
};

/* [WORD NAME]: an array of such things in the scenario. */
static const struct section {
    const char *word;
    const struct key *keys;
    size_t nkeys, array, stride, count, max, name_size;
} sections[] = {
#define MANY(word, field, keys, max)                                                               \
    {                                                                                              \
        word, keys, ARRAY_SIZE(keys), AT(scenario, field),                                         \
            sizeof(((struct scenario *)0)->field[0]), AT(scenario, n##field), max,                 \
            sizeof(((struct scenario *)0)->field[0].name)                                          \
    }
    MANY("axis", axes, axis_keys, SCENARIO_AXES),
    MANY("role", roles, role_keys, SCENARIO_ROLES),
    MANY("config", configs, config_keys, SCENARIO_CONFIGS),
    MANY("phase", phases, phase_keys, SCENARIO_PHASES),
    MANY("target", targets, target_keys, SCENARIO_TARGETS),
#undef MANY
};
#undef AT

struct parser {
    struct scenario *s;
    const char *path;
    FILE *f;
    int line;
    char section[64];
    int r;
    struct error *err;
};

static int complain(struct parser *p, const char *what, const char *which)
{
    if (p->r == 0)
        p->r = error_set(p->err, -EINVAL, "%s:%d: %s '%.80s'", p->path, p->line, what, which);
    return 0;
}

static int put(struct parser *p, const struct key *keys, size_t n, void *to, const char *name,
               const char *value)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(name, keys[i].name) != 0)
            continue;
        char *text = (char *)to + keys[i].offset;
        json_t *utf8 = json_string(value);
        json_decref(utf8);
        if (!utf8)
            return complain(p, "not UTF-8:", name);
        if (keys[i].kind == NUMBER)
            return parse_double(value, keys[i].lo, keys[i].hi, (double *)(void *)text) == 0
                       ? 1
                       : complain(p, "out of range or no number:", value);
        size_t used = strlen(text);
        if (used && keys[i].kind == TEXT)
            return complain(p, "given twice:", name);
        if (used + strlen(value) + 2 > SCENARIO_TEXT)
            return complain(p, "too long:", value);
        snprintf(text + used, SCENARIO_TEXT - used, "%s%s", used ? "\n" : "", value);
        return 1;
    }
    return complain(p, "unknown key", name);
}

static bool is_name(const char *s)
{
    for (const char *c = s; *c; c++) {
        if (!islower((unsigned char)*c) && *c != '_' && (c == s || !isdigit((unsigned char)*c)))
            return false;
    }
    return *s;
}

/* The entry of [WORD NAME], made if it is new. */
static void *entry(struct parser *p, const struct section *k, const char *name)
{
    char *array = (char *)p->s + k->array;
    size_t *n = (size_t *)(void *)((char *)p->s + k->count);
    for (size_t i = 0; i < *n; i++) {
        if (strcmp(array + i * k->stride, name) == 0)
            return array + i * k->stride;
    }
    bool sentence = strcmp(k->word, "target") == 0;
    if (strlen(name) >= k->name_size || (!sentence && !is_name(name)) || *n == k->max)
        return NULL;
    char *at = array + (*n)++ * k->stride;
    snprintf(at, k->name_size, "%s", name);
    return at;
}

static int handle(void *user, const char *section, const char *name, const char *value)
{
    struct parser *p = user;
    if (p->r < 0)
        return 0;
    if (strlen(section) >= SECTION_MAX_BYTES)
        return complain(p, "section's name too long:", section);
    if (strcmp(section, "scenario") == 0)
        return put(p, top_keys, ARRAY_SIZE(top_keys), p->s, name, value);
    for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
        const struct section *k = &sections[i];
        size_t n = strlen(k->word);
        if (strncmp(section, k->word, n) != 0 || section[n] != ' ')
            continue;
        void *at = entry(p, k, section + n + 1);
        return at ? put(p, k->keys, k->nkeys, at, name, value)
                  : complain(p, "bad name, or too many sections:", section);
    }
    return complain(p, "unknown section", section);
}

static char *read_line(char *buf, int size, void *user)
{
    struct parser *p = user;
    char *s = fgets(buf, size, p->f);
    if (!s)
        return NULL;
    p->line++;
    if (strlen(s) >= LINE_MAX_BYTES && !strchr(s, '\n'))
        complain(p, "line too long:", s);
    return s;
}

/* ---- after reading ---- */

static int complete_axis(struct parser *p, struct axis *a, struct scenario_how how)
{
    const char *text = how.soft && a->soft[0]     ? a->soft
                       : how.quick && a->quick[0] ? a->quick
                                                  : a->values;
    while (*text) {
        char *end;
        if (a->n == SCENARIO_VALUES)
            return complain(p, "too many values:", a->name);
        a->v[a->n] = strtod(text, &end);
        if (end == text)
            return complain(p, "no number:", text);
        a->n++;
        text = end + strspn(end, " \t");
    }
    return a->n ? 1 : complain(p, "no values for axis", a->name);
}

static int complete_config(struct parser *p, struct config *c)
{
    static const char *const bases[] = {"alone", "default", "mps", "cede", "other"};
    const char *base = c->base_text[0] ? c->base_text : c->name;
    for (size_t i = 1; i < ARRAY_SIZE(bases); i++) {
        if (strcmp(base, bases[i]) == 0)
            c->base = (enum scenario_base)i;
    }
    return c->base ? 1 : complain(p, "base has to be default, mps, cede or other for", c->name);
}

/* Names in checks are looked up once without any result: a mistake must show before the hours of
 * measuring, not after. */
struct names {
    const struct scenario *s;
    bool axes_only;
    size_t point;
};

/* With or without its unit, as result.c takes it. */
static bool is_metric(const char *of, const char *name)
{
    static const char *const of_role[] = {
        "requests",  "p50",       "p90",      "p99",      "p999", "max",  "mean", "rate",  "share",
        "share_min", "share_max", "rate_min", "rate_max", "late", "work", "cpu",  "count", NULL};
    static const char *const of_verb[] = {"us", "pause", "resume", NULL};
    static const char *const of_daemon[] = {"cpu", NULL};
    const char *const *v = strcmp(of, "verb") == 0    ? of_verb
                           : strcmp(of, "ceded") == 0 ? of_daemon
                                                      : of_role;
    size_t n = strlen(name);
    n -= n > 3 && strcmp(name + n - 3, "_us") == 0 ? 3 : 0;
    while (*v && (strncmp(name, *v, n) != 0 || (*v)[n]))
        v++;
    return *v;
}

static int known(void *arg, const char *name, double *out)
{
    const struct names *n = arg;
    const struct scenario *s = n->s;
    for (size_t i = 0; i < s->naxes; i++) {
        if (strcmp(name, s->axes[i].name) == 0) {
            *out = scenario_at(s, n->point, i);
            return 0;
        }
    }
    const char *role = strchr(name, '.'), *metric = role ? strchr(role + 1, '.') : NULL;
    if (n->axes_only || !metric)
        return -ENOENT;
    scenario_name a, b;
    snprintf(a, sizeof(a), "%.*s", (int)(role - name), name);
    snprintf(b, sizeof(b), "%.*s", (int)(metric - role - 1), role + 1);
    bool place = s->nphases == 0 && strcmp(a, "alone") == 0;
    for (size_t i = 0; i < s->nconfigs; i++)
        place |= s->nphases == 0 && strcmp(a, s->configs[i].name) == 0;
    for (size_t i = 0; i < s->nphases; i++)
        place |= strcmp(a, s->phases[i].name) == 0;
    *out = NAN;
    bool who = scenario_role(s, b) || strcmp(b, "ceded") == 0 || strcmp(b, "verb") == 0;
    return place && who && is_metric(b, metric + 1) ? 0 : -ENOENT;
}

static int complete_seconds(struct parser *p, struct scenario_how how)
{
    struct scenario *s = p->s;
    for (size_t i = 0; i < scenario_points(s); i++) {
        double v;
        if (scenario_number(s, i, s->seconds_text, 4, &v, p->err) < 0) {
            p->r = error_prefix(p->err, -EINVAL, "%s: seconds", p->path);
            return 0;
        }
        if (!(v >= 0.1 && v <= 600))
            return complain(p, "out of range: seconds", s->seconds_text);
        if (how.quick)
            v = s->quick_seconds > 0 ? s->quick_seconds : v / 3;
        /* The software GPU's times are exact: windows may be short. */
        s->seconds[i] = how.quick && how.soft ? fmin(v, 0.6) : v;
    }
    if (how.quick && how.soft)
        s->settle = fmin(s->settle, 0.25);
    return 1;
}

/* Like checks, these are looked at once before anything is measured. */
static int complete_numbers(struct parser *p)
{
    const struct scenario *s = p->s;
    double ignored;
    int r = scenario_number(s, 0, s->memory_mib, 0, &ignored, p->err);
    for (size_t i = 0; i < s->nphases && r == 0; i++)
        r = scenario_number(s, 0, s->phases[i].takes, 0, &ignored, p->err);
    if (r < 0)
        p->r = error_prefix(p->err, -EINVAL, "%s: memory_mib or takes", p->path);
    return r == 0;
}

static int complete(struct parser *p, struct scenario_how how)
{
    struct scenario *s = p->s;
    char list[SCENARIO_TEXT], *save = NULL;
    static const struct section *config_section = &sections[2];
    snprintf(list, sizeof(list), "%s", s->configs_text);
    size_t place = 0;
    for (char *w = strtok_r(list, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        struct config *c = entry(p, config_section, w);
        if (!c || c < s->configs + place)
            return complain(p, "bad name, named twice, or too many configurations:", w);
        struct config found = *c; /* in the order of the list */
        memmove(s->configs + place + 1, s->configs + place,
                (size_t)(c - s->configs - (ptrdiff_t)place) * sizeof(found));
        s->configs[place++] = found;
    }
    if (place < s->nconfigs)
        return complain(p, "not among the configs:", s->configs[place].name);
    if (!s->title[0] || !s->id[0] || s->nroles == 0)
        return complain(p, "title, id and a role are needed in", s->name);
    if ((s->nconfigs == 0) == (s->nphases == 0))
        return complain(p, "either configs or phases are needed in", s->name);
    for (size_t i = 0; i < s->naxes; i++) {
        if (!complete_axis(p, &s->axes[i], how))
            return 0;
    }
    if (scenario_points(s) > SCENARIO_POINTS)
        return complain(p, "too many points in", s->name);
    if (!complete_seconds(p, how) || !complete_numbers(p))
        return 0;
    for (size_t i = 0; i < s->nconfigs; i++) {
        if (!complete_config(p, &s->configs[i]))
            return 0;
    }
    char line[SCENARIO_TEXT];
    for (const char *at = NULL; (at = scenario_line(s->figures, at, line, sizeof(line)));) {
        if (!figure_known(line))
            return complain(p, "not a figure:", line);
    }
    for (size_t i = 0; i < s->nroles; i++) {
        struct role *r = &s->roles[i];
        if (!r->load[0] == !r->program[0])
            return complain(p, "either load or program is needed in role", r->name);
        if (r->ready <= 0)
            r->ready = r->program[0] ? 180 : 60;
    }
    struct names names = {.s = s};
    struct expr_env env = {.value = known, .arg = &names};
    struct expr_result ignored;
    for (size_t i = 0; i < s->ntargets; i++) {
        struct target *t = &s->targets[i];
        if (expr_eval(t->check, &env, &ignored, p->err) < 0 ||
            (t->when[0] && expr_eval(t->when, &env, &ignored, p->err) < 0)) {
            p->r = error_prefix(p->err, -EINVAL, "%s: target '%s'", p->path, t->name);
            return 0;
        }
    }
    return 1;
}

int scenario_load(const char *path, struct scenario_how how, struct scenario **out,
                  struct error *err)
{
    struct scenario *s = calloc(1, sizeof(*s));
    struct parser p = {.s = s, .path = path, .err = err};
    if (!s)
        return error_set(err, -ENOMEM, "out of memory");
    s->settle = 0.5;
    s->repeat = 3;
    s->quick_repeat = 1;
    s->gpus = 1;
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    snprintf(s->name, sizeof(s->name), "%.*s", (int)strcspn(base, "."), base);
    p.f = fopen(path, "re");
    if (!p.f) {
        p.r = error_set(err, -errno, "cannot read scenario %s: %s", path, strerror(errno));
        free(s);
        return p.r;
    }
    int line = ini_parse_stream(read_line, &p, handle, &p);
    fclose(p.f);
    if (line != 0 && p.r == 0) {
        p.line = line > 0 ? line : p.line;
        complain(&p, "not understood, in", s->name);
    }
    if (p.r == 0)
        complete(&p, how);
    if (p.r < 0) {
        free(s);
        return p.r;
    }
    if (how.quick)
        s->repeat = s->quick_repeat;
    *out = s;
    return 0;
}

size_t scenario_points(const struct scenario *s)
{
    size_t n = 1;
    for (size_t i = 0; i < s->naxes; i++)
        n *= s->axes[i].n;
    return n;
}

double scenario_window(const struct scenario *s, const struct phase *phase, size_t point)
{
    return phase && phase->seconds > 0 ? fmin(phase->seconds, s->seconds[point])
                                       : s->seconds[point];
}

double scenario_at(const struct scenario *s, size_t point, size_t axis)
{
    for (size_t i = s->naxes; i-- > axis + 1;)
        point /= s->axes[i].n;
    return s->axes[axis].v[point % s->axes[axis].n];
}

int scenario_number(const struct scenario *s, size_t point, const char *text, double otherwise,
                    double *out, struct error *err)
{
    struct names names = {s, true, point};
    struct expr_env env = {.value = known, .arg = &names};
    struct expr_result r;
    *out = otherwise;
    if (!text[0])
        return 0;
    int code = expr_eval(text, &env, &r, err);
    *out = r.left;
    return code;
}

static int expand(const struct scenario *s, size_t point, const char *text, bool shell, char *buf,
                  size_t size, struct error *err)
{
    size_t n = 0;
    for (const char *start = text; *text && n + 1 < size;) {
        bool brace = *text == '{' && !(shell && text > start && text[-1] == '$');
        const char *end = brace ? strchr(text, '}') : NULL;
        char inner[SCENARIO_TEXT];
        double v = 0;
        int r = -EINVAL;
        if (end) {
            snprintf(inner, sizeof(inner), "%.*s", (int)(end - text - 1), text + 1);
            r = scenario_number(s, point, inner, 0, &v, shell ? NULL : err);
        } else if (brace && !shell) {
            return error_set(err, r, "'{' without '}' in '%s'", text);
        }
        if (end && r < 0 && !shell)
            return r;
        if (end && r == 0) {
            n += (size_t)snprintf(buf + n, size - n, "%.10g", v);
            text = end + 1;
        } else {
            buf[n++] = *text++;
        }
    }
    if (n >= size || *text)
        return error_set(err, -E2BIG, "'%.40s...' is too long", buf);
    buf[n] = '\0';
    return 0;
}

int scenario_expand(const struct scenario *s, size_t point, const char *text, char *buf,
                    size_t size, struct error *err)
{
    return expand(s, point, text, false, buf, size, err);
}

int scenario_expand_shell(const struct scenario *s, size_t point, const char *text, char *buf,
                          size_t size, struct error *err)
{
    return expand(s, point, text, true, buf, size, err);
}

const char *scenario_line(const char *list, const char *previous, char *buf, size_t size)
{
    const char *at = previous ? previous + strcspn(previous, "\n") : list;
    at += strspn(at, "\n");
    if (!*at)
        return NULL;
    snprintf(buf, size, "%.*s", (int)strcspn(at, "\n"), at);
    return at;
}

const struct role *scenario_role(const struct scenario *s, const char *name)
{
    for (size_t i = 0; i < s->nroles; i++) {
        if (strcmp(s->roles[i].name, name) == 0)
            return &s->roles[i];
    }
    return NULL;
}
