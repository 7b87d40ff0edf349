/* Reads and checks a scenario file: all of it, so that a mistake shows before the hours of
 * measuring, not after. Every message names the file, the line and the key. Runs nothing. inih cuts
 * long lines without a word, so their length is watched here. */
#include "bench/scenario.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "bench/figures.h"
#include "lib/terms.h"

#define LINE_MAX_BYTES    199  /* inih's buffer holds 200 */
#define SECTION_MAX_BYTES 49   /* its sections' 50 */
#define VALUE_MIN         1e-9 /* of an axis, but for 0; and as negative values */
#define VALUE_MAX         1e12

/* Of a key's value. An EXPRESSION has to come to lo..hi at every point. */
enum kind {
    TEXT = 0,
    LINES = 1,   /* may be given several times */
    BRACES = 2,  /* {expression} is replaced */
    LENIENT = 4, /* BRACES, and other braces stay */
    EXPRESSION = 8,
    NUMBER = 16,
    WHOLE = 32,
};
struct key {
    const char *name;
    unsigned kind;
    size_t offset;
    double lo, hi;
};

#define AT(type, field) offsetof(struct type, field)
static const struct key top_keys[] = {
    {"title", TEXT, AT(scenario, title), 0, 0},
    {"id", TEXT, AT(scenario, id), 0, 0},
    {"reference", TEXT, AT(scenario, reference), 0, 0},
    {"shows", LINES, AT(scenario, shows), 0, 0},
    {"note", LINES, AT(scenario, note), 0, 0},
    {"needs", TEXT, AT(scenario, needs), 0, 0},
    {"configs", TEXT, AT(scenario, configs_text), 0, 0},
    {"figure", LINES, AT(scenario, figures), 0, 0},
    {"seconds", EXPRESSION, AT(scenario, seconds), 0.1, 600},
    {"memory_mib", EXPRESSION, AT(scenario, memory_mib), 0, 1e12},
    {"quick_seconds", NUMBER, AT(scenario, quick_seconds), 0.1, 600},
    {"settle", NUMBER, AT(scenario, settle), 0, 60},
    {"gpus", NUMBER | WHOLE, AT(scenario, gpus), 1, 16},
    {"repeat", NUMBER | WHOLE, AT(scenario, repeat), 1, 100},
    {"quick_repeat", NUMBER | WHOLE, AT(scenario, quick_repeat), 1, 100},
};
static const struct key axis_keys[] = {
    {"values", TEXT, AT(axis, values), 0, 0},
    {"quick", TEXT, AT(axis, quick), 0, 0},
    {"soft", TEXT, AT(axis, soft), 0, 0},
};
static const struct key role_keys[] = {
    {"load", BRACES, AT(role, load), 0, 0},
    {"program", BRACES, AT(role, program), 0, 0},
    {"soft", BRACES, AT(role, soft), 0, 0},
    {"count", EXPRESSION, AT(role, count), 1, SCENARIO_PROGRAMS},
    {"class", TEXT, AT(role, class), 0, 0},
    {"weight", EXPRESSION, AT(role, weight), 0, WEIGHT_MAX},
    {"set", BRACES, AT(role, set), 0, 0},
    {"alone", TEXT, AT(role, alone), 0, 0},
    {"start", TEXT, AT(role, start), 0, 0},
    {"ready", NUMBER, AT(role, ready), 1, 600},
};
static const struct key config_keys[] = {
    {"base", TEXT, AT(config, base_text), 0, 0},
    {"policy", TEXT, AT(config, policy), 0, 0},
    {"conf", LINES | BRACES, AT(config, conf), 0, 0},
    {"set", LINES | BRACES, AT(config, set), 0, 0},
    {"options", LINES | BRACES, AT(config, options), 0, 0},
    {"run", LINES | BRACES | LENIENT, AT(config, run), 0, 0},
    {"start", BRACES | LENIENT, AT(config, start), 0, 0},
    {"stop", BRACES | LENIENT, AT(config, stop), 0, 0},
    {"wrap", BRACES, AT(config, wrap), 0, 0},
    {"env", LINES | BRACES, AT(config, env), 0, 0},
};
static const struct key phase_keys[] = {
    {"do", LINES | BRACES | LENIENT, AT(phase, steps), 0, 0},
    {"takes", EXPRESSION, AT(phase, takes), 0, 3600},
    {"seconds", NUMBER, AT(phase, seconds), 0.1, 600},
};
static const struct key target_keys[] = {
    {"check", TEXT, AT(target, check), 0, 0},
    {"when", TEXT, AT(target, when), 0, 0},
    {"only", TEXT, AT(target, only), 0, 0},
};

/* [scenario], and [WORD NAME]: an array of such things in it. */
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
    {"scenario", top_keys, ARRAY_SIZE(top_keys), 0, 0, 0, 1, 0},
    MANY("config", configs, config_keys, SCENARIO_CONFIGS),
    MANY("axis", axes, axis_keys, SCENARIO_AXES),
    MANY("role", roles, role_keys, SCENARIO_ROLES),
    MANY("phase", phases, phase_keys, SCENARIO_PHASES),
    MANY("target", targets, target_keys, SCENARIO_TARGETS),
#undef MANY
};
static const struct section *const config_section = &sections[1];
#undef AT

struct parser {
    struct scenario *s;
    struct scenario *points; /* s at each of them */
    const char *path;
    FILE *f;
    int line;
    /* Where a text was given first: texts are so long that only one begins in each part of s. */
    int lines[sizeof(struct scenario) / SCENARIO_TEXT + 1];
    int r;
    struct error *err;
};

/* What went wrong was in this line. */
static int fail_here(struct parser *p)
{
    p->r = error_prefix(p->err, -EINVAL, "%s:%d", p->path, p->line);
    return 0;
}

static int complain(struct parser *p, const char *what, const char *which)
{
    if (p->r < 0)
        return 0;
    error_set(p->err, -EINVAL, "%s '%.80s'", what, which);
    return fail_here(p);
}

static int *line_of(struct parser *p, size_t offset)
{
    return &p->lines[offset / SCENARIO_TEXT];
}

/* From here on, what is complained about is in the line of that text, which is in s. */
static void go_to(struct parser *p, const char *text)
{
    int line = *line_of(p, (size_t)(text - (const char *)p->s));
    p->line = line ? line : p->line;
}

static int range_error(const struct key *k, const char *value, struct error *err)
{
    return error_set(err, -EINVAL, "%s = %.80s: must be a %s from %.10g to %.10g", k->name, value,
                     k->kind & WHOLE ? "whole number" : "number", k->lo, k->hi);
}

static int read_number(struct parser *p, const struct key *k, const char *value, double *to)
{
    double v;
    if (parse_double(value, k->lo, k->hi, &v) < 0 || (k->kind & WHOLE && v > floor(v))) {
        range_error(k, value, p->err);
        return fail_here(p);
    }
    *to = v;
    return 1;
}

static int put(struct parser *p, const struct section *section, void *to, const char *name,
               const char *value)
{
    const struct key *k = section->keys, *end = k + section->nkeys;
    while (k < end && strcmp(name, k->name) != 0)
        k++;
    if (k == end)
        return complain(p, "unknown key", name);
    json_t *utf8 = json_string(value);
    json_decref(utf8);
    if (!utf8)
        return complain(p, "not UTF-8:", name);
    char *text = (char *)to + k->offset;
    if (k->kind & NUMBER)
        return read_number(p, k, value, (double *)(void *)text);
    size_t used = strlen(text);
    if (used && !(k->kind & LINES))
        return complain(p, "given twice:", name);
    if (used + strlen(value) + 2 > SCENARIO_TEXT)
        return complain(p, "too long:", value);
    snprintf(text + used, SCENARIO_TEXT - used, "%s%s", used ? "\n" : "", value);
    if (!used)
        *line_of(p, (size_t)(text - (char *)p->s)) = p->line;
    return 1;
}

static bool is_name(const char *s)
{
    for (const char *c = s; *c; c++) {
        if (!islower((unsigned char)*c) && *c != '_' && (c == s || !isdigit((unsigned char)*c)))
            return false;
    }
    return *s;
}

static size_t entries(const struct scenario *s, const struct section *k)
{
    return k->count ? *(const size_t *)(const void *)((const char *)s + k->count) : 1;
}

/* The entry of [WORD NAME], made if it is new. */
static void *entry(struct parser *p, const struct section *k, const char *name)
{
    char *array = (char *)p->s + k->array;
    size_t n = entries(p->s, k);
    if (!k->count)
        return p->s;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(array + i * k->stride, name) == 0)
            return array + i * k->stride;
    }
    bool sentence = strcmp(k->word, "target") == 0;
    if (strlen(name) >= k->name_size || (!sentence && !is_name(name)) || n == k->max)
        return NULL;
    *(size_t *)(void *)((char *)p->s + k->count) = n + 1;
    snprintf(array + n * k->stride, k->name_size, "%s", name);
    return array + n * k->stride;
}

static int read_key(void *user, const char *section, const char *name, const char *value)
{
    struct parser *p = user;
    if (p->r < 0)
        return 0;
    if (strlen(section) >= SECTION_MAX_BYTES)
        return complain(p, "section's name too long:", section);
    for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
        const struct section *k = &sections[i];
        size_t n = strlen(k->word);
        if (strncmp(section, k->word, n) != 0 || section[n] != (k->count ? ' ' : '\0'))
            continue;
        void *at = entry(p, k, section + n + 1);
        return at ? put(p, k, at, name, value)
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

static int parse_values(struct parser *p, struct axis *a, const char *key, const char *text)
{
    char list[SCENARIO_TEXT], *save = NULL;
    snprintf(list, sizeof(list), "%s", text);
    a->n = 0;
    go_to(p, text);
    for (char *w = strtok_r(list, " \t", &save); w; w = strtok_r(NULL, " \t", &save)) {
        double v;
        if (a->n == SCENARIO_VALUES)
            return complain(p, "too many values:", text);
        if (parse_double(w, -VALUE_MAX, VALUE_MAX, &v) < 0 || (v != 0 && fabs(v) < VALUE_MIN)) {
            error_set(p->err, -EINVAL,
                      "%s = ... %.40s: must be numbers: 0, or from %g to %g, or as much below 0",
                      key, w, VALUE_MIN, VALUE_MAX);
            return fail_here(p);
        }
        a->v[a->n++] = v;
    }
    return 1;
}

/* All lists are checked, one is used. */
static int complete_axis(struct parser *p, struct axis *a)
{
    const struct {
        const char *key, *text;
    } lists[] = {{"values", a->values}, {"quick", a->quick}, {"soft", a->soft}};
    const struct scenario_how how = p->s->how;
    size_t chosen = how.soft && a->soft[0] ? 2 : how.quick && a->quick[0] ? 1 : 0;
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        struct axis unused;
        if (!parse_values(p, i == chosen ? a : &unused, lists[i].key, lists[i].text))
            return 0;
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

/* ---- one point ---- */

/* Replaces what a text has in braces, or works out an amount. */
static int resolve_key(const struct scenario *s, const struct key *k, char *text, struct error *err)
{
    char expanded[SCENARIO_TEXT];
    int r = 0;
    if (k->kind & BRACES) {
        r = scenario_expand(s, text, k->kind & LENIENT, expanded, sizeof(expanded), err);
        if (r == 0)
            snprintf(text, SCENARIO_TEXT, "%s", expanded);
    } else if (k->kind & EXPRESSION) {
        struct scenario_amount *a = (struct scenario_amount *)(void *)text;
        r = scenario_number(s, a->text, k->lo, &a->v, err);
        snprintf(expanded, sizeof(expanded), "%g", a->v);
        if (r == 0 && !(a->v >= k->lo && a->v <= k->hi))
            return range_error(k, expanded, err);
    }
    return r < 0 ? error_prefix(err, r, "%s", k->name) : 0;
}

/* *failed: the offset of the text that cannot be resolved. */
static int resolve_keys(struct scenario *s, size_t *failed, struct error *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
        const struct section *section = &sections[i];
        for (size_t e = 0; e < entries(s, section) * section->nkeys; e++) {
            const struct key *k = &section->keys[e % section->nkeys];
            *failed = section->array + e / section->nkeys * section->stride + k->offset;
            int r = resolve_key(s, k, (char *)s + *failed, err);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

/* Makes the scenario at every point. What is wrong with a text shows now, not when it is needed. */
static int resolve_points(struct parser *p, struct scenario *all)
{
    for (size_t i = 0; i < scenario_points(p->s); i++) {
        struct scenario *s = &all[i];
        size_t rest = i, failed = 0;
        *s = *p->s;
        s->point = i;
        for (size_t a = s->naxes; a-- > 0; rest /= s->axes[a].n) /* the last runs fastest */
            s->axes[a].at = s->axes[a].v[rest % s->axes[a].n];
        if (resolve_keys(s, &failed, p->err) < 0) {
            go_to(p, (const char *)p->s + failed);
            return fail_here(p);
        }
        if (s->how.quick)
            s->seconds.v = s->quick_seconds > 0 ? s->quick_seconds : s->seconds.v / 3;
        /* The software GPU's times are exact: windows may be short. */
        if (s->how.quick && s->how.soft)
            s->seconds.v = fmin(s->seconds.v, 0.6);
    }
    return 1;
}

/* ---- the whole ---- */

/* A figure's words are axes and ROLE.METRIC; cdf's is a role. */
static int check_figure(struct parser *p, const char *line)
{
    const struct scenario *s = p->s;
    char words[SCENARIO_TEXT], *save = NULL;
    bool ok = figure_known(line);
    snprintf(words, sizeof(words), "%s", line);
    char *kind = strtok_r(words, " ", &save);
    for (char *w = strtok_r(NULL, " ", &save); w && ok; w = strtok_r(NULL, " ", &save)) {
        char *dot = strchr(w, '.');
        bool axis = false;
        for (size_t i = 0; i < s->naxes; i++)
            axis |= strcmp(w, s->axes[i].name) == 0;
        if (dot)
            *dot = '\0';
        ok = dot                        ? scenario_has_metric(s, w, dot + 1)
             : strcmp(kind, "cdf") == 0 ? scenario_role(s, w) != NULL
                                        : axis;
    }
    return ok ? 1 : complain(p, "not a figure of these axes and ROLE.METRICs:", line);
}

static int check_target(struct parser *p, const struct target *t)
{
    const char *const texts[] = {t->check, t->when};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        go_to(p, texts[i]);
        if ((i == 0 || texts[i][0]) && scenario_try(p->s, texts[i], p->err) < 0) {
            error_prefix(p->err, -EINVAL, "target '%s'", t->name);
            return fail_here(p);
        }
    }
    return 1;
}

/* The configurations in the order of the list, which has all of them. */
static int complete_configs(struct parser *p)
{
    struct scenario *s = p->s;
    char list[SCENARIO_TEXT], *save = NULL;
    size_t place = 0;
    go_to(p, s->configs_text);
    snprintf(list, sizeof(list), "%s", s->configs_text);
    for (char *w = strtok_r(list, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        struct config *c = entry(p, config_section, w);
        if (!c || c < s->configs + place)
            return complain(p, "bad name, named twice, or too many configurations:", w);
        struct config found = *c;
        memmove(s->configs + place + 1, s->configs + place,
                (size_t)(c - s->configs - (ptrdiff_t)place) * sizeof(found));
        s->configs[place++] = found;
    }
    if (place < s->nconfigs)
        return complain(p, "not among the configs:", s->configs[place].name);
    for (size_t i = 0; i < s->nconfigs; i++) {
        if (!complete_config(p, &s->configs[i]))
            return 0;
    }
    return 1;
}

static int complete(struct parser *p)
{
    struct scenario *s = p->s;
    char line[SCENARIO_TEXT];
    for (size_t i = 0; i < s->naxes; i++) {
        if (!complete_axis(p, &s->axes[i]))
            return 0;
    }
    if (scenario_points(s) > SCENARIO_POINTS)
        return complain(p, "too many points in", s->name);
    p->points = calloc(scenario_points(s), sizeof(*s));
    if (!p->points) {
        p->r = error_set(p->err, -ENOMEM, "out of memory");
        return 0;
    }
    /* Before the configurations are put in order: their lines are known by where they stand. */
    if (!resolve_points(p, p->points) || !complete_configs(p))
        return 0;
    if (!s->title[0] || !s->id[0] || s->nroles == 0)
        return complain(p, "title, id and a role are needed in", s->name);
    if ((s->nconfigs == 0) == (s->nphases == 0))
        return complain(p, "either configs or phases are needed in", s->name);
    go_to(p, s->figures);
    for (const char *at = NULL; (at = scenario_line(s->figures, at, line, sizeof(line)));) {
        if (!check_figure(p, line))
            return 0;
    }
    for (size_t i = 0; i < s->nroles; i++) {
        struct role *r = &s->roles[i];
        if (!r->load[0] == !r->program[0])
            return complain(p, "either load or program is needed in role", r->name);
        if (s->how.soft && r->program[0] && r->soft[0]) {
            snprintf(r->load, sizeof(r->load), "%s", r->soft);
            r->program[0] = s->needs[0] = '\0'; /* what the program needs */
        }
        if (r->ready <= 0)
            r->ready = r->program[0] ? 180 : 60;
    }
    for (size_t i = 0; i < s->ntargets; i++) {
        if (!check_target(p, &s->targets[i]))
            return 0;
    }
    if (s->how.quick)
        s->repeat = s->quick_repeat;
    if (s->how.quick && s->how.soft)
        s->settle = fmin(s->settle, 0.25);
    return resolve_points(p, p->points);
}

int scenario_read(FILE *f, const char *path, struct scenario_how how, struct scenario **out,
                  struct error *err)
{
    _cleanup_free_ struct scenario *s = calloc(1, sizeof(*s));
    struct parser p = {.s = s, .f = f, .path = path, .err = err};
    if (!s)
        return error_set(err, -ENOMEM, "out of memory");
    s->how = how;
    s->settle = 0.5;
    s->repeat = 3;
    s->quick_repeat = 1;
    s->gpus = 1;
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    snprintf(s->name, sizeof(s->name), "%.*s", (int)strcspn(base, "."), base);
    int line = ini_parse_stream(read_line, &p, read_key, &p);
    if (line != 0 && p.r == 0) {
        p.line = line > 0 ? line : p.line;
        complain(&p, "not understood, in", s->name);
    }
    if (!s->seconds.text[0])
        snprintf(s->seconds.text, sizeof(s->seconds.text), "4");
    if (p.r == 0 && complete(&p))
        *out = p.points;
    else
        free(p.points);
    return p.r;
}

int scenario_load(const char *path, struct scenario_how how, struct scenario **out,
                  struct error *err)
{
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    if (!f)
        return error_set(err, -errno, "cannot read scenario %s: %s", path, strerror(errno));
    return scenario_read(f, path, how, out, err);
}
