/* What `cede bench cells` is told to run: a plan as `cede bench` makes them, and what is none. */
#include "../test.h"
#include "bench/runner/plan.h"

#define ROLE "{\"name\":\"r\",\"load\":\"batch\"}"

static int read_text(const char *text, struct session *x, json_t **o, struct error *err)
{
    *o = json_loads(text, 0, NULL);
    assert_non_null(*o);
    return plan_read(*o, x, err);
}

TEST(whole)
{
    struct session x;
    struct error err = {""};
    json_t *o;
    char line[PLAN_TEXT];
    assert_int_equal(
        read_text(
            "{\"base\":\"cede\",\"seconds\":0.5,\"wrap\":\"nice\",\"roles\":[" ROLE
            ",{\"name\":\"s\",\"program\":\"x\",\"count\":3,\"later\":true,\"options\":\"\"}],"
            "\"phases\":[{\"name\":\"p\",\"steps\":\"wait\\n\\nstop r\",\"seconds\":1}]}",
            &x, &o, &err),
        0);
    assert_string_equal(x.base, "cede");
    assert_string_equal(x.wrap, "nice");
    assert_string_equal(x.start, "");
    assert_true(x.seconds > 0.4 && x.seconds < 0.6 && x.gpus > 0.9 && x.gpus < 1.1);
    assert_int_equal(x.nroles, 2);
    assert_null(x.roles[0].options);
    assert_non_null(x.roles[1].options);
    assert_true(x.roles[1].later && !x.roles[0].later && x.roles[1].count > 2.9);
    assert_ptr_equal(plan_role(&x, "s"), &x.roles[1]);
    assert_null(plan_role(&x, "t"));
    const char *at = plan_line(x.phases[0].steps, NULL, line, sizeof(line));
    assert_string_equal(line, "wait");
    at = plan_line(x.phases[0].steps, at, line, sizeof(line));
    assert_string_equal(line, "stop r");
    assert_null(plan_line(x.phases[0].steps, at, line, sizeof(line)));
    json_decref(o);
}

TEST(mistakes)
{
    static const struct {
        const char *text, *says;
    } table[] = {
        {"[]", "object"},
        {"{}", "1 to 6 roles"},
        {"{\"roles\":[]}", "1 to 6 roles"},
        {"{\"roles\":{}}", "1 to 6 roles"},
        {"{\"roles\":[" ROLE "," ROLE "," ROLE "," ROLE "," ROLE "," ROLE "," ROLE "]}", "1 to 6"},
        {"{\"roles\":[3]}", "object"},
        {"{\"roles\":[{\"name\":\"r\"}]}", "either load or program"},
        {"{\"roles\":[{\"load\":\"batch\"}]}", "a name"},
        {"{\"roles\":[{\"name\":\"r\",\"load\":\"a\",\"program\":\"b\"}]}", "either"},
        {"{\"roles\":[{\"name\":\"r\",\"load\":\"a\",\"count\":65}]}", "count"},
        {"{\"roles\":[{\"name\":\"r\",\"load\":\"a\",\"count\":1.5}]}", "whole number"},
        {"{\"roles\":[{\"name\":\"r\",\"load\":\"a\",\"count\":\"1\"}]}", "count"},
        {"{\"roles\":[{\"name\":\"r\",\"load\":7}]}", "load has to be a text"},
        {"{\"roles\":[" ROLE "],\"seconds\":1e9}", "seconds"},
        {"{\"roles\":[" ROLE "],\"gpus\":0}", "gpus"},
        {"{\"roles\":[" ROLE "],\"phases\":[null]}", "object"},
        {"{\"roles\":[" ROLE "],\"phases\":[1,2,3,4,5,6,7,8,9]}", "8 phases"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        struct session x;
        struct error err = {""};
        json_t *o;
        if (read_text(table[i].text, &x, &o, &err) != -EINVAL)
            fail_msg("accepted: %s", table[i].text);
        if (!strstr(err.text, table[i].says))
            fail_msg("%s, not %s", err.text, table[i].says);
        json_decref(o);
    }
    char text[PLAN_TEXT + 100];
    struct session x;
    struct error err = {""};
    json_t *o;
    snprintf(text, sizeof(text), "{\"roles\":[" ROLE "],\"wrap\":\"%0*d\"}", PLAN_TEXT, 1);
    assert_int_equal(read_text(text, &x, &o, &err), -EINVAL);
    assert_non_null(strstr(err.text, "wrap"));
    json_decref(o);
}
