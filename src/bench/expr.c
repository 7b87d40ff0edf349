/* See expr.h. Recursive descent; an aggregate parses its argument once for every point. */
#include "bench/expr.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#define DEPTH_MAX  32
#define NESTED_MAX 2 /* aggregates in each other: each goes over all points, up to 64 */
#define NUMBER_MIN 1e-12
#define NUMBER_MAX 1e15

const char *const expr_ops[] = {
    [EXPR_NONE] = "", [EXPR_LE] = "<=", [EXPR_GE] = ">=",
    [EXPR_LT] = "<",  [EXPR_GT] = ">",  [EXPR_EQ] = "==",
};

struct parser {
    const char *text, *at;
    const struct expr_env *env;
    struct error *err;
    int depth;
    int aggregates; /* open ones */
    bool pointwise;
    int r; /* the first error; after it everything is NAN */
};

static double sum(struct parser *p);

static double fail(struct parser *p, const char *what)
{
    if (p->r == 0)
        p->r = error_set(p->err, -EINVAL, "'%s': %s at '%.20s'", p->text, what, p->at);
    return NAN;
}

static void blanks(struct parser *p)
{
    while (isspace((unsigned char)*p->at))
        p->at++;
}

static bool accept(struct parser *p, char c)
{
    blanks(p);
    if (*p->at != c)
        return false;
    p->at++;
    return true;
}

static const struct {
    const char *name;
    double factor;
} units[] = {{"us", 1}, {"ms", 1e3}, {"s", 1e6}, {"%", 0.01}};

static double number(struct parser *p)
{
    char *end;
    double v = strtod(p->at, &end);
    if (end == p->at)
        return fail(p, "a number, a name or a bracket is missing");
    if (v > NUMBER_MAX || (v > 0 && v < NUMBER_MIN) || v < 0)
        return fail(p, "a number has to be 0, or from 1e-12 to 1e15,");
    p->at = end;
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        size_t n = strlen(units[i].name);
        if (strncmp(p->at, units[i].name, n) == 0 && !isalnum((unsigned char)p->at[n])) {
            p->at += n;
            return v * units[i].factor;
        }
    }
    return v;
}

/* The argument at every point; the bracket is open. */
static double over_points(struct parser *p, char kind)
{
    const struct expr_env *env = p->env;
    const char *start = p->at;
    double result = NAN;
    size_t n = env->select ? env->npoints : 1;
    if (p->aggregates == NESTED_MAX)
        return fail(p, "too many of min, max and mean inside each other");
    p->aggregates++;
    for (size_t i = 0; i < n && p->r == 0; i++) {
        if (env->select)
            env->select(env->arg, i);
        p->at = start;
        double v = sum(p);
        /* One point that is missing must not make the others look complete. */
        if (i == 0 || isnan(v) || isnan(result))
            result = i == 0 ? v : NAN;
        else if (kind == 'e')
            result += v;
        else
            result = (kind == 'a') == (v > result) ? v : result;
    }
    p->aggregates--;
    if (env->select)
        env->select(env->arg, env->current);
    return kind == 'e' ? result / (double)n : result;
}

/* Whether two arguments follow; the bracket is open. */
static bool has_comma(const struct parser *p)
{
    int open = 0;
    for (const char *c = p->at; *c && open >= 0; c++) {
        open += (*c == '(') - (*c == ')');
        if (*c == ',' && open == 0)
            return true;
    }
    return false;
}

static double call(struct parser *p, const char *function)
{
    double v, w;
    if (strcmp(function, "abs") == 0) {
        v = fabs(sum(p));
    } else if (strcmp(function, "min") != 0 && strcmp(function, "max") != 0 &&
               strcmp(function, "mean") != 0) {
        return fail(p, "no such function");
    } else if (function[1] != 'e' && has_comma(p)) {
        v = sum(p);
        w = accept(p, ',') ? sum(p) : fail(p, "',' is missing");
        /* as above: no value from a half */
        v = isnan(v) || isnan(w) ? NAN : function[1] == 'i' ? fmin(v, w) : fmax(v, w);
    } else {
        v = over_points(p, function[1]); /* i, a or e */
    }
    return accept(p, ')') ? v : fail(p, "')' is missing");
}

static double name(struct parser *p)
{
    char word[96];
    size_t n = 0;
    while (isalnum((unsigned char)p->at[n]) || p->at[n] == '_' || p->at[n] == '.')
        n++;
    if (n >= sizeof(word))
        return fail(p, "name too long");
    memcpy(word, p->at, n);
    word[n] = '\0';
    double v = NAN;
    if (p->at[n] == '(') {
        p->at += n + 1;
        return call(p, word);
    }
    p->pointwise |= p->aggregates == 0;
    if (p->env->value(p->env->arg, word, &v) < 0)
        return fail(p, "no such name");
    p->at += n;
    return v;
}

static double primary(struct parser *p)
{
    double v;
    blanks(p);
    if (++p->depth > DEPTH_MAX)
        return fail(p, "too many brackets");
    if (accept(p, '-')) {
        v = -primary(p);
    } else if (accept(p, '(')) {
        v = sum(p);
        if (!accept(p, ')'))
            v = fail(p, "')' is missing");
    } else if (isalpha((unsigned char)*p->at)) {
        v = name(p);
    } else {
        v = number(p);
    }
    p->depth--;
    return v;
}

static double product(struct parser *p)
{
    double v = primary(p);
    while (p->r == 0) {
        if (accept(p, '*'))
            v *= primary(p);
        else if (accept(p, '/'))
            v /= primary(p);
        else
            break;
    }
    return v;
}

static double sum(struct parser *p)
{
    double v = product(p);
    while (p->r == 0) {
        if (accept(p, '+'))
            v += product(p);
        else if (accept(p, '-'))
            v -= product(p);
        else
            break;
    }
    return v;
}

static double saturate(double v)
{
    return isinf(v) ? copysign(EXPR_MAX, v) : v;
}

int expr_eval(const char *text, const struct expr_env *env, struct expr_result *out,
              struct error *err)
{
    struct parser p = {.text = text, .at = text, .env = env, .err = err};
    *out = (struct expr_result){.right = NAN};
    out->left = sum(&p);
    blanks(&p);
    for (enum expr_op op = EXPR_LE; op <= EXPR_EQ && p.r == 0 && out->op == EXPR_NONE; op++) {
        size_t n = strlen(expr_ops[op]);
        if (strncmp(p.at, expr_ops[op], n) != 0)
            continue;
        p.at += n;
        out->op = op;
        out->right = sum(&p);
        blanks(&p);
    }
    out->pointwise = p.pointwise;
    out->left = saturate(out->left);
    out->right = saturate(out->right);
    if (p.r == 0 && *p.at)
        fail(&p, "not understood");
    return p.r;
}

const char *expr_unit(const char *text, double *factor)
{
    size_t end = strlen(text);
    while (end > 0 && isspace((unsigned char)text[end - 1]))
        end--;
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        size_t n = strlen(units[i].name);
        if (end > n && strncmp(text + end - n, units[i].name, n) == 0 &&
            isdigit((unsigned char)text[end - n - 1])) {
            *factor = units[i].factor;
            return units[i].name;
        }
    }
    *factor = 1;
    return "";
}

bool expr_holds(enum expr_op op, double left, double right)
{
    switch (op) {
    case EXPR_LE:
        return left <= right;
    case EXPR_GE:
        return left >= right;
    case EXPR_LT:
        return left < right;
    case EXPR_GT:
        return left > right;
    case EXPR_EQ:
        return left >= right && left <= right;
    case EXPR_NONE:
        break;
    }
    return !isnan(left) && (left < 0 || left > 0);
}
