/* What the tests of `cede bench` as a whole share: its results, and a scenario of the test's own.
 * Each test has a copy of its own. */
#ifndef CEDE_TESTS_BENCH_RESULTS_H
#define CEDE_TESTS_BENCH_RESULTS_H

#include "../cli/harness.h"
#include "../test.h"

#include <jansson.h>

#include "base/util.h"

static struct result result;

/* As SAYS() of harness.h: a verb of bench that ends with this status and says this. */
#define BENCH(status, out, err, ...) SAYS(&result, status, out, err, "cede", "bench", __VA_ARGS__)

static const char *write_file(const char *name, const char *text)
{
    const char *path = harness_file(name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    return path;
}

static json_t *read_json(const char *name)
{
    char file[80];
    snprintf(file, sizeof(file), "%s.json", name);
    const char *path = harness_file(file);
    json_t *o = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    if (!o)
        fail_msg("%s is not there or not JSON", path);
    return o;
}

static inline const char *text_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static inline json_int_t count_of(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static double value(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(json_object_get(o, "results"), key);
    if (!json_is_number(v))
        fail_msg("no %s", key);
    return json_number_value(v);
}

static const char *scenario_file(const char *text)
{
    static char path[160];
    snprintf(path, sizeof(path), "%s", write_file("mine.ini", text));
    return path;
}

#define HEAD "[scenario]\ntitle = t\nid = 1\nseconds = 0.3\nsettle = 0.1\nrepeat = 1\n"

#endif
