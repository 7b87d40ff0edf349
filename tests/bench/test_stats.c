/* What the numbers of a cell are made of: requests' latencies, and what programs print. */
#include "../test.h"
#include "bench/runner/stats.h"
#include "doctor/series.h"

#include <math.h>

static void near(double a, double b)
{
    if (!(fabs(a - b) < 1e-9))
        fail_msg("%g is not %g", a, b);
}

TEST(distribution)
{
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
}

/* A program that prints only when it gets on: after its last line it did nothing. */
TEST(held)
{
    struct series s = {0};
    double rate;
    struct series_window w;
    static const char *const lines[] = {"{\"t\":1,\"work_us\":0}", "{\"t\":2,\"work_us\":1e6}"};
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(series_line(&s, lines[i], strlen(lines[i]), NULL), 0);
    assert_int_equal(series_rate(&s, 1, 5, &rate), -ENODATA);
    assert_int_equal(series_extend(&s, 5), 0);
    assert_int_equal(series_rate(&s, 1, 5, &rate), 0);
    near(rate, 0.25);
    assert_int_equal(series_rate(&s, 3, 5, &rate), 0);
    near(rate, 0);
    assert_int_equal(series_window(&s, 0, 9, &w), 0);
    assert_int_equal(w.n, 0);
    series_free(&s);
}

/* Requests are counted line by line: what a line covers counts, not the window. */
TEST(rate_of_requests)
{
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
