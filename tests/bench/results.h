/* What the tests of `cede bench` as a whole share: its results, and a scenario of the test's own.
 * Each test has a copy of its own. */
#ifndef CEDE_TESTS_BENCH_RESULTS_H
#define CEDE_TESTS_BENCH_RESULTS_H

#include "../cli/harness.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util.h"

static struct result result;

static json_t *read_json(const char *name)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/%s.json", harness_dir(), name);
    json_t *o = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    if (!o)
        fail_msg("%s is not there or not JSON", path);
    return o;
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
    snprintf(path, sizeof(path), "%s/mine.ini", harness_dir());
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    return path;
}

#define HEAD "[scenario]\ntitle = t\nid = 1\nseconds = 0.3\nsettle = 0.1\nrepeat = 1\n"

#endif
