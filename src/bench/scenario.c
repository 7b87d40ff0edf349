/* See scenario.h: points, expressions and texts of a scenario that scenario_read.c has read. */
#include "bench/scenario.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* What a name in an expression may be: an axis, and in a check CONFIGURATION.ROLE.METRIC too. */
struct names {
    const struct scenario *s;
    bool axes_only;
};

/* With or without its unit, as result.c takes it. */
static bool is_metric(const char *of, const char *name)
{
    static const char *const of_role[] = {"requests",  "p50",      "p90",      "p99",   "p999",
                                          "max",       "mean",     "rate",     "share", "share_min",
                                          "share_max", "rate_min", "rate_max", "late",  "work",
                                          "cpu",       "count",    "speed",    NULL};
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

bool scenario_has_metric(const struct scenario *s, const char *role, const char *metric)
{
    bool has = scenario_role(s, role) || strcmp(role, "ceded") == 0 || strcmp(role, "verb") == 0;
    return has && is_metric(role, metric);
}

static int known(void *arg, const char *name, double *out)
{
    const struct names *n = arg;
    const struct scenario *s = n->s;
    for (size_t i = 0; i < s->naxes; i++) {
        if (strcmp(name, s->axes[i].name) == 0) {
            *out = s->axes[i].at;
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
    return place && scenario_has_metric(s, b, metric + 1) ? 0 : -ENOENT;
}

size_t scenario_points(const struct scenario *s)
{
    size_t n = 1;
    for (size_t i = 0; i < s->naxes; i++)
        n *= s->axes[i].n;
    return n;
}

double scenario_window(const struct scenario *s, const struct phase *phase)
{
    return phase && phase->seconds > 0 ? fmin(phase->seconds, s->seconds.v) : s->seconds.v;
}

int scenario_try(const struct scenario *s, const char *text, struct error *err)
{
    struct names names = {.s = s};
    struct expr_env env = {.value = known, .arg = &names};
    struct expr_result ignored;
    return expr_eval(text, &env, &ignored, err);
}

int scenario_number(const struct scenario *s, const char *text, double otherwise, double *out,
                    struct error *err)
{
    struct names names = {s, true};
    struct expr_env env = {.value = known, .arg = &names};
    struct expr_result r;
    *out = otherwise;
    if (!text[0])
        return 0;
    int code = expr_eval(text, &env, &r, err);
    *out = r.left;
    return code;
}

int scenario_expand(const struct scenario *s, const char *text, bool lenient, char *buf,
                    size_t size, struct error *err)
{
    size_t n = 0;
    for (const char *start = text; *text && n + 1 < size;) {
        bool brace = *text == '{' && !(lenient && text > start && text[-1] == '$');
        const char *end = brace ? strchr(text, '}') : NULL;
        char inner[SCENARIO_TEXT];
        double v = 0;
        int r = -EINVAL;
        if (end) {
            snprintf(inner, sizeof(inner), "%.*s", (int)(end - text - 1), text + 1);
            r = scenario_number(s, inner, 0, &v, lenient ? NULL : err);
        } else if (brace && !lenient) {
            return error_set(err, r, "'{' without '}' in '%s'", text);
        }
        if (end && r == 0 && !isfinite(v))
            return error_set(err, -EINVAL, "{%s} is %g: must be a finite number", inner, v);
        if (end && r < 0 && !lenient)
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
