/* The arithmetic of scenario files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "bench/expr.h"

/* x is 10 times the point, hole is missing at point 1. */
static size_t point;

static int value(void *arg, const char *name, double *out)
{
    (void)arg;
    *out = strcmp(name, "x") == 0 ? 10.0 * (double)point : point == 1 ? NAN : 1.0;
    return strcmp(name, "x") == 0 || strcmp(name, "a.hole.us") == 0 ? 0 : -ENOENT;
}

static void choose(void *arg, size_t i)
{
    (void)arg;
    point = i;
}

static const struct expr_env env = {value, choose, 4, 2, NULL};

static double left(const char *text)
{
    struct expr_result r;
    struct error err = {""};
    point = 2;
    if (expr_eval(text, &env, &r, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(point, 2); /* an aggregate leaves the current point as it was */
    return r.left;
}

static void arithmetic(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double v;
    } table[] = {
        {"1 + 2 * 3", 7},
        {"(1 + 2) * 3", 9},
        {"8 / 2 / 2", 2},
        {"5 - 2 - 1", 2},
        {"-x + 1", -19},
        {"220us", 220},
        {"1.5ms", 1500},
        {"2s", 2e6},
        {"0.2%", 0.002},
        {"abs(3 - x)", 17},
        {"max(x)", 30},
        {"min(x)", 0},
        {"mean(x)", 15},
        {"x / max(x)", 2. / 3},
        {"max(x - 5) - min(x)", 25},
        {"max(abs(x - 15))", 15},
        {"1e6 / x", 5e4},
        {"min(x, 3)", 3},
        {"max(x, min(x))", 20},
        {"min(max(x), 2 * (x + 1))", 30},
    };
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        double v = left(table[i].text);
        if (fabs(v - table[i].v) > 1e-9)
            fail_msg("%s is %g, not %g", table[i].text, v, table[i].v);
    }
}

/* Whether an expression has a value of its own at every point. */
static void pointwise(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool pointwise;
    } table[] = {
        {"x", true},          {"1 + 2", false},           {"max(x) / min(x) <= 1", false},
        {"x / max(x)", true}, {"min(x, 3) < 1", true},    {"max(min(x, 3))", false},
        {"1 < x", true},      {"max(x) < min(x)", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        struct expr_result r;
        assert_int_equal(expr_eval(table[i].text, &env, &r, NULL), 0);
        if (r.pointwise != table[i].pointwise)
            fail_msg("%s", table[i].text);
    }
}

static void comparisons(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool holds;
    } table[] = {
        {"1 <= 1", true}, {"1 < 1", false},  {"2 >= 1", true}, {"1 > 2", false},
        {"1 == 1", true}, {"1 == 2", false}, {"x < 21", true}, {"1 + 1 == 2", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        struct expr_result r;
        point = 2;
        assert_int_equal(expr_eval(table[i].text, &env, &r, NULL), 0);
        assert_int_not_equal(r.op, EXPR_NONE);
        if (expr_holds(r.op, r.left, r.right) != table[i].holds)
            fail_msg("%s", table[i].text);
    }
}

/* What was not measured may not turn into a number, nor into a target that is met. */
static void missing(void **state)
{
    (void)state;
    assert_true(isnan(left("max(a.hole.us)")));
    assert_true(isnan(left("min(a.hole.us)")));
    assert_true(isnan(left("mean(a.hole.us)")));
    assert_true(isnan(left("min(1, max(a.hole.us))")));
    for (int op = EXPR_NONE; op <= EXPR_EQ; op++) {
        assert_false(expr_holds((enum expr_op)op, NAN, NAN));
        assert_false(op != EXPR_NONE && expr_holds((enum expr_op)op, 1, NAN));
    }
}

static void mistakes(void **state)
{
    (void)state;
    static const char *const table[] = {
        "",           "1 +",       "(1",       "1 2",         "y",     "f(1)",
        "max(x",      "1 <= ",     "1 <= 2 3", "1 <= 2 <= 3", "1 & 2", "min(1, 2, 3)",
        "mean(1, 2)", "abs(1, 2)", "min(1,",   "2 ** 3x",     "1 = 1"};
    char deep[200];
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        struct expr_result r;
        struct error err = {""};
        if (expr_eval(table[i], &env, &r, &err) != -EINVAL)
            fail_msg("'%s' was accepted", table[i]);
        assert_true(err.text[0]);
    }
    memset(deep, '(', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = '\0';
    struct expr_result r;
    assert_int_equal(expr_eval(deep, &env, &r, NULL), -EINVAL);
}

static void unit(void **state)
{
    static const struct {
        const char *text, *unit;
        double factor;
    } table[] = {
        {"a.p99 < 40ms", "ms", 1e3},
        {"a - b <= 220us", "us", 1},
        {"max(a) < 3s ", "s", 1e6},
        {"a.cpu < 0.5%", "%", 0.01},
        {"a >= 0.9 * b", "", 1},
        {"a.us", "", 1},
        {"40ms > a.p99", "", 1},
        {"ms", "", 1},
        {"", "", 1},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        double factor = 0;
        assert_string_equal(expr_unit(table[i].text, &factor), table[i].unit);
        assert_true(factor == table[i].factor);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arithmetic), cmocka_unit_test(pointwise), cmocka_unit_test(comparisons),
        cmocka_unit_test(missing),    cmocka_unit_test(mistakes),  cmocka_unit_test(unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
