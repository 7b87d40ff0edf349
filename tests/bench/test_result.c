/* What cells come to: medians over repeats, ratios within one, targets that failed or stayed open.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/result.h"
#include "bench/stats.h"
#include "scenario_text.h"
#include "testbed/series.h"

static struct scenario *with_targets(const char *targets)
{
    char text[2000];
    snprintf(text, sizeof(text),
             "[scenario]\ntitle = t\nid = 1\nconfigs = default cede\n[axis k]\nvalues = 1 2\n"
             "[role lat]\nload = latency\n[role bat]\nload = batch\n%s",
             targets);
    return scenario(text);
}

static void put(struct result *r, size_t repeat, size_t slot, size_t point, const char *status,
                const char *role, const char *metric, double v)
{
    json_t *c = json_pack("{s:s, s:s, s:{s:{s:f}}}", "config", "c", "status", status, "roles", role,
                          metric, v);
    result_put(r, repeat, slot, point, c);
    json_array_append_new(r->cells, c);
}

static double number(const json_t *o, const char *a, const char *b)
{
    const json_t *v = json_object_get(json_object_get(o, a), b);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

static void near(double a, double b)
{
    if (!(fabs(a - b) < 1e-9))
        fail_msg("%g is not %g", a, b);
}

/* Alone 100, 200, 400 and beside the other 50, 100, 200: the share is 0.5 each time, which medians
 * of the two taken apart would give too; so the last one is made 0.25. */
static void shares(void **state)
{
    (void)state;
    static const double alone[] = {100, 200, 400}, beside[] = {50, 100, 100};
    struct scenario *s = with_targets("[target t]\ncheck = cede.bat.share >= 0.5\nwhen = k == 1\n");
    struct result r;
    assert_int_equal(result_init(&r, s, 3, true), 0);
    for (size_t i = 0; i < 3; i++) {
        put(&r, i, result_slot_alone(&r, &s->roles[1]), 0, "ok", "bat", "rate", alone[i]);
        put(&r, i, 1, 0, "ok", "bat", "rate", beside[i]);
    }
    json_t *o = result_json(&r);
    const json_t *target = json_array_get(json_object_get(o, "targets"), 0);
    const json_t *points = json_object_get(target, "points");
    assert_int_equal(json_array_size(points), 1); /* `when` left the other out */
    const json_t *p = json_array_get(points, 0);
    near(number(p, "value", "median"), 0.5);
    near(number(p, "value", "min"), 0.25);
    near(number(p, "value", "max"), 0.5);
    assert_true(json_is_true(json_object_get(target, "pass")));
    assert_true(json_is_true(json_object_get(o, "pass")));
    near(json_number_value(json_object_get(json_object_get(o, "results"), "cede.bat.share[k=1]")),
         0.5);
    /* alone first, once */
    const json_t *rows = json_object_get(o, "rows");
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "config")),
                        "alone");
    assert_int_equal(json_array_size(rows), 2);
    json_decref(o);
    result_free(&r);
    free(s);
}

/* One of two points: nothing was missed, and nothing is proven. */
static void cut_off_runs(void **state)
{
    (void)state;
    struct scenario *s = with_targets("[target each]\ncheck = cede.lat.p99 < 100\n");
    struct result r;
    assert_int_equal(result_init(&r, s, 1, false), 0);
    put(&r, 0, 1, 0, "ok", "lat", "p99_us", 50);
    json_t *o = result_json(&r);
    assert_true(
        json_is_null(json_object_get(json_array_get(json_object_get(o, "targets"), 0), "pass")));
    assert_true(json_is_null(json_object_get(o, "pass")));
    json_decref(o);
    put(&r, 0, 1, 1, "ok", "lat", "p99_us", 60);
    o = result_json(&r);
    assert_true(json_is_true(json_object_get(o, "pass")));
    json_decref(o);
    result_free(&r);
    free(s);
}

static void failures(void **state)
{
    (void)state;
    struct scenario *s = with_targets("[target missed]\ncheck = max(cede.lat.p99) < 100\n"
                                      "[target open]\ncheck = default.lat.p99 < 100\n"
                                      "[target shown]\ncheck = cede.lat.p99 / 2\n");
    struct result r;
    assert_int_equal(result_init(&r, s, 1, false), 0);
    put(&r, 0, 1, 0, "ok", "lat", "p99_us", 50);
    put(&r, 0, 1, 1, "ok", "lat", "p99_us", 150);
    put(&r, 0, 0, 0, "failed", "x", "y", 0);
    put(&r, 0, 0, 1, "unavailable", "x", "y", 0);
    json_t *o = result_json(&r);
    const json_t *t = json_object_get(o, "targets");
    assert_true(json_is_false(json_object_get(json_array_get(t, 0), "pass")));
    assert_true(json_is_null(json_object_get(json_array_get(t, 1), "pass")));
    assert_false(json_is_false(json_object_get(json_array_get(t, 2), "pass")));
    assert_int_equal(json_array_size(json_object_get(json_array_get(t, 0), "points")), 1);
    assert_int_equal(json_integer_value(json_object_get(o, "missed")), 1);
    assert_int_equal(json_integer_value(json_object_get(o, "failed_cells")), 1);
    assert_int_equal(json_integer_value(json_object_get(o, "unavailable_cells")), 1);
    assert_true(json_is_false(json_object_get(o, "pass")));
    const json_t *row;
    size_t i, failed = 0;
    json_array_foreach(json_object_get(o, "rows"), i, row) failed +=
        strcmp(json_string_value(json_object_get(row, "status")), "failed") == 0;
    assert_int_equal(failed, 1);
    json_decref(o);
    result_free(&r);
    free(s);
}

static void distribution(void **state)
{
    (void)state;
    double v[1000];
    for (size_t i = 0; i < 1000; i++)
        v[i] = (double)(1000 - i);
    json_t *o = json_object();
    stats_latencies(o, v, 1000);
    near(json_number_value(json_object_get(o, "p50_us")), 500);
    near(json_number_value(json_object_get(o, "p99_us")), 990);
    near(json_number_value(json_object_get(o, "p999_us")), 999);
    near(json_number_value(json_object_get(o, "max_us")), 1000);
    near(json_number_value(json_object_get(o, "mean_us")), 500.5);
    const json_t *h = json_object_get(o, "histogram"), *bin;
    double bound = 0, sum = 0;
    size_t i;
    json_array_foreach(h, i, bin)
    {
        assert_true(json_number_value(json_array_get(bin, 0)) > bound);
        bound = json_number_value(json_array_get(bin, 0));
        sum += json_number_value(json_array_get(bin, 1));
    }
    near(sum, 1000);
    assert_true(bound >= 1000 && bound < 1021 && json_array_size(h) < 400);
    json_decref(o);

    o = json_object();
    stats_latencies(o, v, 0);
    assert_true(json_is_null(json_object_get(o, "p99_us")));
    json_decref(o);
    const double holes[] = {NAN, 3, NAN, 1};
    json_t *summary = stats_summary(holes, 4);
    near(json_number_value(json_object_get(summary, "median")), 2);
    assert_int_equal(json_integer_value(json_object_get(summary, "n")), 2);
    json_decref(summary);
    summary = stats_summary(holes, 1);
    assert_true(json_is_null(summary));
    json_decref(summary);
}

/* A program that prints only when it gets on: after its last line it did nothing. */
static void held(void **state)
{
    (void)state;
    struct series s = {0};
    double rate;
    struct series_window w;
    static const char *const lines[] = {"{\"t\":1,\"work_us\":0}", "{\"t\":2,\"work_us\":1e6}"};
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(series_line(&s, lines[i], strlen(lines[i]), NULL), 0);
    assert_int_equal(series_rate(&s, 1, 5, &rate), -ENODATA);
    assert_int_equal(series_hold(&s, 5), 0);
    assert_int_equal(series_rate(&s, 1, 5, &rate), 0);
    near(rate, 0.25);
    assert_int_equal(series_rate(&s, 3, 5, &rate), 0);
    near(rate, 0);
    assert_int_equal(series_window(&s, 0, 9, &w), 0);
    assert_int_equal(w.n, 0);
    series_free(&s);
}

/* Requests are counted line by line: what a line covers counts, not the window. */
static void rate_of_requests(void **state)
{
    (void)state;
    struct series s = {0};
    struct series_window w;
    for (int i = 1; i <= 20; i++) {
        char line[80];
        snprintf(line, sizeof(line), "{\"t\":%d,\"latencies_us\":[%s]}", i, i % 2 ? "1,2" : "");
        assert_int_equal(series_line(&s, line, strlen(line), NULL), 0);
    }
    assert_int_equal(series_window(&s, 2.5, 10.9, &w), 0);
    near(w.seconds, 7);       /* 3 to 10 */
    assert_int_equal(w.n, 6); /* of 5, 7 and 9 */
    assert_int_equal(series_window(&s, 20.5, 30, &w), -ENODATA);
    assert_int_equal(series_window(&s, 0, 0.5, &w), -ENODATA);
    series_free(&s);
}

/* A quotient by 0 is a number that JSON can have, and misses its target; 0 by 0 leaves it open. */
static void quotient_by_zero(void **state)
{
    (void)state;
    struct scenario *s = with_targets("[target a]\ncheck = 1 / cede.bat.rate <= 2\n"
                                      "[target b]\ncheck = 1 < cede.bat.rate / cede.bat.rate\n"
                                      "[target c]\ncheck = 1 < 1 / cede.bat.rate\n");
    struct result r;
    assert_int_equal(result_init(&r, s, 1, true), 0);
    for (size_t p = 0; p < 2; p++)
        put(&r, 0, 1, p, "ok", "bat", "rate", 0);
    json_t *o = result_json(&r);
    const json_t *targets = json_object_get(o, "targets");
    static const bool missed[] = {true, false, false}, met[] = {false, false, true};
    for (size_t t = 0; t < ARRAY_SIZE(missed); t++) {
        const json_t *target = json_array_get(targets, t),
                     *points = json_object_get(target, "points");
        assert_int_equal(json_array_size(points), 2);
        assert_int_equal(json_is_false(json_object_get(target, "pass")), missed[t]);
        assert_int_equal(json_is_true(json_object_get(target, "pass")), met[t]);
    }
    json_decref(o);
    result_free(&r);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotient_by_zero), cmocka_unit_test(shares),
        cmocka_unit_test(cut_off_runs),     cmocka_unit_test(failures),
        cmocka_unit_test(distribution),     cmocka_unit_test(held),
        cmocka_unit_test(rate_of_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
