/* What demo and doctor make of the programs' lines, on made-up lines; and how results are shown. */
#include <math.h>

#include "../test.h"
#include "cli/demo.h"
#include "doctor/machine.h"
#include "doctor/series.h"

static int feed(struct series *s, const char *line)
{
    return series_line(s, line, strlen(line), NULL);
}

static void feed_work(struct series *s, double t, double work_us)
{
    char line[128];
    snprintf(line, sizeof(line), "{\"t\":%.3f,\"kernels\":%.0f,\"work_us\":%.1f}", t, work_us / 500,
             work_us);
    assert_int_equal(feed(s, line), 0);
}

/* 10 s at full speed, 10 s at none, 10 s at half. */
static void three_parts(struct series *s)
{
    for (int i = 1; i <= 300; i++) {
        double done = i <= 100 ? i : i <= 200 ? 100 : 100 + (i - 200) * 0.5;
        feed_work(s, 100 + i * 0.1, done * 1e5);
    }
}

TEST(rate_of_a_window)
{
    static const struct {
        double a, b, rate;
    } windows[] = {
        {101, 109, 1},         {111, 119, 0},       {121, 129, 0.5},       {105, 115, 0.5},
        {109.95, 110.05, 0.5}, {100.13, 100.17, 1}, {101, 130, 14.0 / 29},
    };
    struct series s = {0};
    three_parts(&s);
    for (size_t i = 0; i < ARRAY_SIZE(windows); i++) {
        double rate = -1;
        assert_int_equal(series_rate(&s, windows[i].a, windows[i].b, &rate), 0);
        assert_true(fabs(rate - windows[i].rate) < 1e-6);
    }
    series_free(&s);
}

/* Nobody guesses what was before the first line or is after the last. */
TEST(rate_needs_cover)
{
    struct series s = {0};
    double rate;
    static const double uncovered[][2] = {{100.05, 105}, {125, 130.1}, {105, 105}, {106, 105}};
    assert_int_equal(series_rate(&s, 1, 2, &rate), -ENODATA);
    three_parts(&s);
    for (size_t i = 0; i < ARRAY_SIZE(uncovered); i++)
        assert_int_equal(series_rate(&s, uncovered[i][0], uncovered[i][1], &rate), -ENODATA);
    assert_int_equal(series_rate(&s, 100.1, 130, &rate), 0);
    series_free(&s);
}

/* Programs whose lines come at other times are counted over the same window: their sum is right
 * although each alone stops in the middle of it. */
TEST(turns_add_up)
{
    struct series a = {0}, b = {0};
    double wa = 0, wb = 0, ra, rb;
    for (int ms = 10; ms <= 4000; ms += 10) {
        bool first = ms / 200 % 2 == 0; /* turns of 200 ms */
        wa += first ? 1e4 : 0;
        wb += first ? 0 : 1e4;
        feed_work(&a, 50 + ms * 1e-3, wa);
        if (ms % 30 == 20)
            feed_work(&b, 50 + ms * 1e-3, wb);
    }
    assert_int_equal(series_rate(&a, 50.33, 53.71, &ra), 0);
    assert_int_equal(series_rate(&b, 50.33, 53.71, &rb), 0);
    assert_true(fabs(ra + rb - 1) < 0.01);
    assert_true(ra > 0.4 && rb > 0.4);
    series_free(&a);
    series_free(&b);
}

/* A paused program's last kernels belong to the time before; one more inside is seen. */
TEST(work_inside_is_exact)
{
    struct series s = {0};
    struct series_window w;
    three_parts(&s);
    assert_int_equal(series_window(&s, 109.95, 120.01, &w), 0);
    assert_true(w.work_us == 0);
    assert_int_equal(series_window(&s, 109.95, 120.11, &w), 0);
    assert_true(w.work_us > 0);
    assert_int_equal(series_window(&s, 110.11, 110.19, &w), -ENODATA); /* no line */
    assert_int_equal(series_window(&s, 110.11, 110.25, &w), -ENODATA); /* one */
    assert_true(w.work_us == 0);
    series_free(&s);
}

TEST(percentiles_of_a_window)
{
    struct series s = {0};
    struct percentiles p;
    assert_int_equal(series_percentiles(&s, 0, 1e9, &p), -ENODATA);
    assert_int_equal(feed(&s, "{\"t\":1.0,\"requests\":1,\"latencies_us\":[9999]}"), 0);
    /* 100 requests of 1..100 us in ten lines, each line after a tenth of a second. */
    for (int i = 0; i < 10; i++) {
        char line[256];
        int n = snprintf(line, sizeof(line), "{\"t\":%.1f,\"latencies_us\":[", 1.1 + i * 0.1);
        for (int j = 1; j <= 10; j++)
            n += snprintf(line + n, sizeof(line) - (size_t)n, "%s%d", j > 1 ? "," : "",
                          100 - (i * 10 + j - 1));
        snprintf(line + n, sizeof(line) - (size_t)n, "]}");
        assert_int_equal(feed(&s, line), 0);
    }
    assert_int_equal(feed(&s, "{\"t\":2.5,\"requests\":102,\"latencies_us\":[7777]}"), 0);
    assert_int_equal(feed(&s, "{\"t\":2.6,\"requests\":102,\"latencies_us\":[]}"), 0);

    assert_int_equal(series_percentiles(&s, 1.0, 2.05, &p), 0);
    assert_int_equal(p.n, 100);
    assert_true(p.p50_us == 50 && p.p99_us == 99); /* nearest rank */
    assert_int_equal(series_percentiles(&s, 1.0, 2.6, &p), 0);
    assert_true(p.n == 101 && p.p50_us == 51 && p.p99_us == 100);
    /* Requests of a line that began before the window may have, too. */
    assert_int_equal(series_percentiles(&s, 1.05, 1.25, &p), 0);
    assert_true(p.n == 10 && p.p99_us == 90);
    assert_int_equal(series_percentiles(&s, 2.51, 2.61, &p), -ENODATA);
    series_free(&s);
}

TEST(final_object)
{
    static const struct {
        const char *verified;
        bool is, harmed;
    } cases[] = {{"true", true, false}, {"false", false, true}, {"null", false, false}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct series s = {0};
        char line[128];
        snprintf(line, sizeof(line), "{\"role\":\"batch\",\"kernels\":3,\"verified\":%s}",
                 cases[i].verified);
        assert_int_equal(feed(&s, line), 0);
        assert_true(s.final && s.verified == cases[i].is && s.harmed == cases[i].harmed);
        series_free(&s);
    }
    struct series s = {0};
    assert_int_equal(feed(&s, "{\"role\":\"calibrate\",\"iterations_per_us\":12.5}"), 0);
    assert_true(s.final && s.iterations_per_us == 12.5);
}

TEST(nonsense_is_refused)
{
    static const char *const lines[] = {
        "",
        "hello",
        "[1]",
        "{}",
        "{\"t\":5}",
        "{\"t\":\"6\",\"work_us\":1}",
        "{\"t\":6,\"work_us\":\"1\"}",
        "{\"t\":6,\"work_us\":-1}",
        "{\"t\":6,\"work_us\":3}",        /* less than before */
        "{\"t\":5,\"work_us\":9}",        /* not later than before */
        "{\"t\":4,\"latencies_us\":[1]}", /* nor this */
        "{\"t\":6,\"latencies_us\":[1,\"2\"]}",
        "{\"t\":6,\"latencies_us\":[-2]}",
        "{\"t\":6,\"latencies_us\":2}",
        "{\"t\":6,\"work_us\":9} x",
    };
    struct series s = {0};
    feed_work(&s, 5, 5000);
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        struct error err = {""};
        assert_int_equal(series_line(&s, lines[i], strlen(lines[i]), &err), -EPROTO);
        assert_non_null(strstr(err.text, "unexpected line"));
    }
    assert_int_equal(s.nlines, 1);
    assert_true(s.last_t == 5 && !s.final);
    series_free(&s);
}

TEST(driver_versions)
{
    static const struct {
        const char *text, *version;
    } cases[] = {
        {"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n",
         "580.159.04"},
        {"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54  Tue Jun 6\nGCC version: 12.2.0",
         "535.54"},
        {"NVRM version: none\nGCC version:  gcc version 12.2.0\n", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char version[32] = "";
        int r = machine_parse_version(cases[i].text, version, sizeof(version));
        assert_int_equal(r, cases[i].version ? 0 : -EPROTO);
        assert_string_equal(version, cases[i].version ? cases[i].version : "");
    }
}

static struct demo_result sample(const char *device)
{
    return (struct demo_result){
        .device = device,
        .gpu = "a GPU with a long name of forty letters",
        .driver = "580.1",
        .seconds = 40,
        .batch_kernel_us = 500,
        .rate = 100,
        .alone = {{125, 133, 400}, 1},
        .normal = {{1383, 123456, 400}, 0.955},
        .cede = {{306, 331, 400}, 0.954},
        .multi = {{306, 340, 400}, 1.2}, /* more than a bar has room for */
        .asked = {0.75, 0.25},
        .got = {0.745, 0.245},
        .stopped = true,
        .resumed = true,
        .again = 0.99,
        .suspend_us = 700,
        .resume_us = 400,
        .verified = true,
    };
}

static char *shown(const struct demo_result *r, bool utf8)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    demo_print(f, r, utf8);
    fclose(f);
    return text;
}

TEST(picture_fits)
{
    for (int utf8 = 0; utf8 < 2; utf8++) {
        struct demo_result r = sample("nvidia");
        char *text = shown(&r, utf8);
        size_t width = 0, widest = 0, beyond_ascii = 0;
        for (const char *c = text; *c; c++) {
            beyond_ascii += (unsigned char)*c >= 0x80;
            if (*c == '\n')
                width = 0;
            else if (((unsigned char)*c & 0xc0) != 0x80)
                width++;
            widest = width > widest ? width : widest;
        }
        assert_in_range(widest, 60, 80);
        assert_int_equal(beyond_ascii > 0, utf8);
        assert_null(strstr(text, "says nothing about this machine"));
        free(text);
    }
}

TEST(picture_is_honest)
{
    struct demo_result r = sample("soft");
    r.stopped = false;
    r.verified = false;
    char *text = shown(&r, false);
    assert_non_null(strstr(text, "says nothing about this machine"));
    assert_non_null(strstr(text, "DID NOT STOP"));
    assert_non_null(strstr(text, "could not be verified"));
    free(text);
}

/* Windows that cannot be compared are named, and are no failed resumption. */
TEST(busy_machine_is_noticed)
{
    static const struct {
        double again, cede;
        bool resumed;
        const char *says; /* NULL: not busy */
    } cases[] = {
        {0.99, 0.954, true, NULL},
        {0.82, 0.954, true, NULL},
        {0.62, 0.954, true, "batch did 0.62 of what it did alone before"},
        {1.31, 0.954, true, "batch did 1.31 of what it did alone before"},
        {1.01, 1.73, true, "batch did 1.73 of what it did alone in another window"},
        {0, 0.954, false, NULL}, /* did not resume */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct demo_result r = sample("soft");
        r.again = cases[i].again;
        r.resumed = cases[i].resumed;
        r.cede.batch_share = cases[i].cede;
        char *text = shown(&r, false);
        assert_int_equal(strstr(text, "TOO BUSY") != NULL, cases[i].says != NULL);
        assert_true(!cases[i].says || strstr(text, cases[i].says));
        assert_int_equal(strstr(text, "DID NOT RESUME") != NULL, !cases[i].resumed);
        free(text);
        json_t *o = demo_json(&r);
        assert_int_equal(json_is_true(json_object_get(o, "busy")), cases[i].says != NULL);
        json_decref(o);
    }
}

/* Numbers of an object, by their paths. */
TEST(json_of_a_result)
{
    static const struct {
        const char *of, *key;
        double value;
    } t[] = {
        {"alone", "p50_us", 125},         {"alone", "p99_us", 133},
        {"default", "p99_us", 123456},    {"default", "batch_share", 0.955},
        {"cede", "p99_us", 331},          {"cede", "batch_share", 0.954},
        {"multi", "p99_us", 340},         {"multi", "batch_share", 1.2},
        {"shares", "sum", 0.745 + 0.245},
    };
    struct demo_result r = sample("soft");
    r.resumed = false;
    json_t *o = demo_json(&r);
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        const json_t *v = json_object_get(json_object_get(o, t[i].of), t[i].key);
        if (!json_is_number(v) || fabs(json_number_value(v) - t[i].value) > 1e-9)
            fail_msg("%s of %s is %g", t[i].key, t[i].of, json_number_value(v));
    }
    const char *device;
    double asked[2], got[2];
    int stopped, resumed;
    assert_int_equal(json_unpack(o, "{s:s, s:{s:[F,F], s:[F,F]}, s:{s:b, s:b}}", "device", &device,
                                 "shares", "asked", &asked[0], &asked[1], "got", &got[0], &got[1],
                                 "pause", "stopped", &stopped, "resumed", &resumed),
                     0);
    assert_string_equal(device, "soft");
    assert_memory_equal(asked, r.asked, sizeof(asked));
    assert_memory_equal(got, r.got, sizeof(got));
    assert_true(stopped && !resumed);
    json_decref(o);
}
