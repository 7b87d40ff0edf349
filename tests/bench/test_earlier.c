/* What of an earlier run's result `cede bench run --resume` would keep: heads that differ, cells
 * that are missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "bench/earlier.h"
#include "scenario_text.h"

static json_t *head(void)
{
    return json_pack("{s:s, s:s, s:s, s:b, s:s, s:s}", "scenario_file", "[scenario]\n",
                     "cede_version", "0.1", "device", "nvidia", "quick", 0, "hardware", "H200",
                     "driver_version", "580");
}

static void differs(void **state)
{
    (void)state;
    static const struct {
        const char *key, *says;
    } table[] = {
        {"scenario_file", "scenario's file"}, {"cede_version", "version of cede"},
        {"device", "another device"},         {"quick", "--quick"},
        {"hardware", "another GPU"},          {"driver_version", "the driver"},
    };
    json_t *now = head();
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        json_t *then = head();
        assert_null(earlier_differs(then, now));
        json_object_set_new(then, "date", json_string("1999-01-01"));
        assert_null(earlier_differs(then, now));
        json_object_set_new(then, table[i].key, json_string("other"));
        const char *says = earlier_differs(then, now);
        if (!says || !strstr(says, table[i].says))
            fail_msg("%s: %s", table[i].key, says ? says : "the same");
        json_object_del(then, table[i].key);
        assert_non_null(earlier_differs(then, now));
        json_decref(then);
    }
    /* As for `bench list`, which has not asked the GPU. */
    json_t *then = head();
    json_object_set_new(now, "hardware", json_string(""));
    assert_null(earlier_differs(then, now));
    /* A scenario whose text is not known is never the same. */
    json_object_del(now, "scenario_file");
    json_object_del(then, "scenario_file");
    assert_non_null(earlier_differs(then, now));
    json_decref(then);
    json_decref(now);
    json_t *list = json_array();
    now = head();
    assert_non_null(earlier_differs(list, now));
    json_decref(list);
    json_decref(now);
}

static bool has(const char *cells, const struct bench *b, const struct session *x, size_t repeat)
{
    json_t *list = json_loads(cells, 0, NULL);
    assert_non_null(list);
    json_t *o = json_pack("{s:o}", "cells", list);
    bool r = earlier_has(o, b, x, repeat);
    json_decref(o);
    return r;
}

static void cells(void **state)
{
    (void)state;
    struct scenario *s = scenario("[scenario]\ntitle = t\nid = 1\nconfigs = mps cede\n"
                                  "[axis k]\nvalues = 1 1234567.8\n[role r]\nload = batch\n");
    struct bench with = {.mps = true}, without = {.mps = false};
    struct session cede = {.s = &s[1], .config = &s[1].configs[1]};
    struct session mps = {.s = s, .config = &s->configs[0]};
    struct session alone = {.s = s, .alone = &s->roles[0]};
#define CELL(config, k, repeat, status)                                                            \
    "{\"config\":\"" config "\",\"point\":{\"k\":" k "},\"repeat\":" repeat                        \
    ",\"status\":\"" status "\"}"
    /* Six digits of a value are what a file has. */
    assert_true(has("[" CELL("cede", "1.23457e6", "2", "ok") "]", &with, &cede, 1));
    assert_false(has("[" CELL("cede", "1.23457e6", "2", "ok") "]", &with, &cede, 0));
    assert_false(has("[" CELL("cede", "1", "2", "ok") "]", &with, &cede, 1));
    assert_false(has("[" CELL("cede", "1.23457e6", "2", "failed") "]", &with, &cede, 1));
    assert_false(has("[" CELL("mps", "1.23457e6", "2", "ok") "]", &with, &cede, 1));
    assert_false(has("[]", &with, &cede, 0));
    assert_false(has("[{\"config\":\"cede\"}, 3, null]", &with, &cede, 0));

    assert_true(has("[" CELL("mps", "1", "1", "ok") "]", &without, &mps, 0));
    assert_true(has("[" CELL("mps", "1", "1", "unavailable") "]", &without, &mps, 0));
    assert_false(has("[" CELL("mps", "1", "1", "unavailable") "]", &with, &mps, 0));

    static const char role[] = "[{\"config\":\"alone\",\"alone\":\"%s\",\"point\":{\"k\":1},"
                               "\"repeat\":1,\"status\":\"ok\"}]";
    char text[200];
    snprintf(text, sizeof(text), role, "r");
    assert_true(has(text, &with, &alone, 0));
    snprintf(text, sizeof(text), role, "q");
    assert_false(has(text, &with, &alone, 0));
    free(s);
}

/* All phases of a session, or it is not there. */
static void phases(void **state)
{
    (void)state;
    struct scenario *s = scenario("[scenario]\ntitle = t\nid = 1\n[role r]\nload = batch\n"
                                  "[phase a]\ndo = wait\n[phase b]\ndo = wait\n");
    struct bench b = {.mps = false};
    struct session x = {.s = s};
#define PHASE(name) "{\"config\":\"" name "\",\"point\":{},\"repeat\":1,\"status\":\"ok\"}"
    assert_true(has("[" PHASE("b") "," PHASE("a") "]", &b, &x, 0));
    assert_false(has("[" PHASE("a") "," PHASE("a") "]", &b, &x, 0));
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differs),
        cmocka_unit_test(cells),
        cmocka_unit_test(phases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
