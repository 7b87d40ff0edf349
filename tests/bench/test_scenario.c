/* Scenario files: those that are shipped, and mistakes in others. argv[1]: their directory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench/cell.h"
#include "scenario_text.h"

static const char *shipped_dir;

#define HEAD  "[scenario]\ntitle = t\nid = 1\n"
#define PLAIN "[role r]\nload = batch\n"
#define ROLE  "[role r]\nload = batch --kernel-us {k}\n"
#define AXIS  "[axis k]\nvalues = 1 20 300\nquick = 20\nsoft = 4\n"

/* Each of them, in each way, and every session's arguments. */
static void shipped(void **state)
{
    (void)state;
    DIR *d = opendir(shipped_dir);
    assert_non_null(d);
    unsigned n = 0;
    for (const struct dirent *e; (e = readdir(d));) {
        if (!strstr(e->d_name, ".ini"))
            continue;
        n++;
        for (int i = 0; i < 4; i++) {
            char path[600];
            struct scenario *s = NULL;
            struct error err = {""};
            snprintf(path, sizeof(path), "%s/%s", shipped_dir, e->d_name);
            if (scenario_load(path, (struct scenario_how){i & 1, i & 2}, &s, &err) < 0)
                fail_msg("%s", err.text);
            assert_true(s->title[0] && s->reference[0] && s->shows[0] && s->ntargets);
            for (size_t p = 0; p < scenario_points(s); p++) {
                for (size_t c = 0; c < s->nconfigs; c++) {
                    struct session x = {.s = &s[p], .config = &s[p].configs[c]};
                    _cleanup_free_ char *key = session_key(&x);
                    assert_non_null(key);
                }
            }
            free(s);
        }
    }
    closedir(d);
    assert_true(n >= 15);
}

static void axes(void **state)
{
    (void)state;
    static const char two[] = HEAD "configs = cede default\n" AXIS "[axis m]\nvalues = 5 6\n" ROLE;
    struct scenario *s;
    struct error err = {""};
    char text[64];
    double v;
    assert_int_equal(load(two, (struct scenario_how){false, false}, &s, &err), 0);
    assert_int_equal(scenario_points(s), 6);
    assert_true(s[3].axes[0].at > 19 && s[3].axes[0].at < 21);
    assert_true(s[3].axes[1].at > 5.5); /* the last axis runs fastest */
    assert_string_equal(s[5].roles[0].load, "batch --kernel-us 300");
    assert_string_equal(s->configs[0].name, "cede");
    assert_int_equal(s->configs[1].base, BASE_DEFAULT);
    assert_int_equal(
        scenario_expand(&s[4], "a {k * m} {1e6 / 3ms} b", false, text, sizeof(text), &err), 0);
    assert_string_equal(text, "a 1500 333.3333333 b");
    assert_int_equal(scenario_number(s, "", 7, &v, &err), 0);
    assert_true(v > 6.9 && v < 7.1);
    assert_int_equal(scenario_expand(s, "{nothing}", false, text, sizeof(text), &err), -EINVAL);
    assert_int_equal(scenario_expand(s, "{k", false, text, sizeof(text), &err), -EINVAL);
    assert_int_equal(scenario_expand(s, "0123456789", false, text, 5, &err), -E2BIG);
    assert_int_equal(scenario_expand(&s[4], "${k} {k} {print} {", true, text, sizeof(text), &err),
                     0);
    assert_string_equal(text, "${k} 300 {print} {");
    assert_int_equal(scenario_expand(s, "0123456789", true, text, 5, &err), -E2BIG);
    free(s);
    assert_int_equal(load(two, (struct scenario_how){true, false}, &s, &err), 0);
    assert_int_equal(s->axes[0].n, 1);
    assert_true(s->axes[0].v[0] > 19);
    free(s);
    assert_int_equal(load(two, (struct scenario_how){true, true}, &s, &err), 0);
    assert_true(s->axes[0].v[0] < 5);
    free(s);
}

/* Sessions that differ in nothing that is measured have one key; those that do, have two. */
static void keys(void **state)
{
    (void)state;
    struct scenario *s;
    struct error err = {""};
    assert_int_equal(load(HEAD
                          "configs = default cede other started\n[config cede]\nconf = a = {k}\n"
                          "[config other]\nwrap = env K={k}\n"
                          "[config started]\nbase = other\nstart = set-clock {k}\n"
                          "[axis k]\nvalues = 1 2\n[role r]\nload = batch\nweight = k\n",
                          (struct scenario_how){false, false}, &s, &err),
                     0);
    for (size_t c = 0; c < 4; c++) {
        struct session a = {.s = s, .config = &s->configs[c]};
        struct session b = {.s = &s[1], .config = &s[1].configs[c]};
        _cleanup_free_ char *x = session_key(&a), *y = session_key(&b);
        assert_non_null(x);
        assert_non_null(y);
        assert_int_equal(strcmp(x, y) == 0, c == 0);
    }
    free(s);
}

static void mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } table[] = {
        {"", "title, id and a role"},
        {HEAD "configs = cede\n", "a role"},
        {HEAD AXIS ROLE, "configs or phases"},
        {HEAD "configs = cede\n[phase p]\ndo = wait\n" AXIS ROLE, "configs or phases"},
        {HEAD "configs = nobody\n" AXIS ROLE, "base has to be"},
        {HEAD "configs = cede cede\n" AXIS ROLE, "named twice"},
        {HEAD "configs = cede\n[config mps]\npolicy = p\n" AXIS ROLE, "not among"},
        {HEAD "configs = cede\ntitle = again\n" AXIS ROLE, ":5: given twice"},
        {HEAD "color = red\nconfigs = cede\n" AXIS ROLE, ":4: unknown key"},
        {HEAD "configs = cede\n[thing x]\na = b\n", "unknown section"},
        {HEAD "configs = cede\nseconds = -1\n" AXIS ROLE,
         ":5: seconds = -1: must be a number from 0.1"},
        {HEAD "configs = cede\nseconds = 4 / (k - 20)\n" AXIS ROLE, ":5: seconds = "},
        {HEAD "configs = cede\nseconds = 4s +\n" AXIS ROLE, "seconds"},
        {HEAD "configs = cede\nseconds = nobody\n" AXIS ROLE, "no such name"},
        {HEAD "configs = cede\nmemory_mib = mib\n" AXIS ROLE, "no such name"},
        {HEAD "[phase p]\ndo = wait\ntakes = mib\n" AXIS ROLE, "no such name"},
        {HEAD "configs = cede\n[axis k]\nvalues = 1 x\n" ROLE, ":6: values = "},
        {HEAD "configs = cede\n[axis k]\nquick = 1\n" ROLE, "no values"},
        {HEAD "configs = cede\n" AXIS "[role R]\nload = batch\n", "bad name"},
        {HEAD "configs = cede\n" AXIS "[role r]\nclass = batch\n", "load or program"},
        {HEAD "configs = cede\n" AXIS ROLE "[target t]\ncheck = cede.nobody.p99 < 1\n",
         "no such name"},
        {HEAD "configs = cede\n" AXIS ROLE "[target t]\ncheck = mps.r.p99 < 1\n", "no such name"},
        {HEAD "configs = cede\n" AXIS ROLE "[target t]\ncheck = cede.r.p98 < 1\n", "no such name"},
        {HEAD "configs = cede\n" AXIS ROLE "[target t]\ncheck = cede.ceded.p99 < 1\n",
         "no such name"},
        {HEAD "configs = cede\nfigure = line k r.p99_us\n" AXIS ROLE, "not a figure"},
        {HEAD "configs = cede\nfigure = lines k r.p99_us`x`\n" AXIS ROLE, "not a figure"},
        {HEAD "configs = cede\nfigure = bars r.share share\n" AXIS ROLE, "not a figure"},
        {HEAD "configs = cede\nfigure = bars share r.share\n" AXIS ROLE, "not a figure"},
        {HEAD "configs = cede\nfigure = lines m r.p99_us\n" AXIS ROLE, ":5: not a figure"},
        {HEAD "configs = cede\nfigure = cdf nobody\n" AXIS ROLE, "not a figure"},
        {HEAD "configs = cede\ngpus = 1.5\n" AXIS ROLE, "whole number from 1 to 16"},
        {HEAD "configs = cede\n[role r]\nload = batch\ncount = 4 / (k - 20)\n" AXIS, ":7: count"},
        {HEAD "configs = cede\n" AXIS ROLE "[target t]\ncheck = max(max(max(k))) < 1\n",
         "inside each other"},
        {HEAD "configs = cede\nshows = gr\xf6\xdf"
              "er\n" AXIS ROLE,
         ":5: not UTF-8: 'shows'"},
        {HEAD "configs = cede\n" AXIS ROLE "[target t]\nwhen = k >\ncheck = 1 < 2\n", "missing"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        struct scenario *s;
        struct error err = {""};
        if (load(table[i].text, (struct scenario_how){false, false}, &s, &err) != -EINVAL)
            fail_msg("accepted: %s", table[i].text);
        if (!strstr(err.text, table[i].says))
            fail_msg("%s, not %s", err.text, table[i].says);
    }
    char line[400];
    struct scenario *s;
    struct error err = {""};
    snprintf(line, sizeof(line), "%s%0*d\n", HEAD "shows = ", 300, 1);
    assert_int_equal(load(line, (struct scenario_how){false, false}, &s, &err), -EINVAL);
    assert_non_null(strstr(err.text, "line too long"));
    assert_int_equal(
        scenario_load("/nonexistent.ini", (struct scenario_how){false, false}, &s, &err), -ENOENT);
}

/* A number that is none, or that nothing could be done with, is refused by what names the file, the
 * line, the key and what is allowed. */
static void numbers(void **state)
{
    (void)state;
    static const char *const bad[] = {"nan", "inf", "-inf", "1e-320", "1e-20", "1e999", "-1e30"};
    static const struct {
        const char *before, *after, *says; /* the number stands between the first two */
    } table[] = {
        {HEAD "configs = cede\nsettle = ", "\n" PLAIN, ":5: settle = "},
        {HEAD "configs = cede\nquick_seconds = ", "\n" PLAIN, ":5: quick_seconds = "},
        {HEAD "configs = cede\ngpus = ", "\n" PLAIN, ":5: gpus = "},
        {HEAD "configs = cede\nrepeat = ", "\n" PLAIN, ":5: repeat = "},
        {HEAD "configs = cede\nseconds = ", "\n" PLAIN, ":5: seconds"},
        {HEAD "configs = cede\nmemory_mib = ", "\n" PLAIN, ":5: memory_mib"},
        {HEAD "configs = cede\n[role r]\nload = batch\nready = ", "\n", ":7: ready = "},
        {HEAD "configs = cede\n[role r]\nload = batch\ncount = ", "\n", ":7: count"},
        {HEAD "configs = cede\n[role r]\nload = batch\nweight = ", "\n", ":7: weight"},
        {HEAD "configs = cede\n[role r]\nload = batch --kernel-us {", "}\n", ":6: load"},
        {HEAD "configs = cede\n[config cede]\nconf = floor = {", "}\n" PLAIN, ":6: conf"},
        {HEAD "configs = cede\n[axis k]\nvalues = 1 ", "\n" PLAIN, ":6: values = "},
        {HEAD "configs = cede\n[axis k]\nvalues = 1\nquick = ", "\n" PLAIN, ":7: quick = "},
        {HEAD "[phase p]\ntakes = ", "\n" PLAIN, ":5: takes"},
        {HEAD "[phase p]\nseconds = ", "\n" PLAIN, ":5: seconds = "},
        {HEAD "configs = cede\n[target t]\ncheck = 1 < ", "\n[role r]\nload = batch\n",
         ":6: target"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        for (size_t k = 0; k < ARRAY_SIZE(bad); k++) {
            char text[400];
            struct scenario *s = NULL;
            struct error err = {""};
            /* A settling time of next to nothing is one; so is a limit below 0. */
            if ((i == 0 && k > 2 && k < 5) || (i == 15 && bad[k][0] == '-'))
                continue;
            snprintf(text, sizeof(text), "%s%s%s", table[i].before, bad[k], table[i].after);
            if (load(text, (struct scenario_how){false, false}, &s, &err) != -EINVAL)
                fail_msg("accepted: %s", text);
            if (!strstr(err.text, table[i].says))
                fail_msg("%s, not %s", err.text, table[i].says);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shipped),  cmocka_unit_test(axes),    cmocka_unit_test(keys),
        cmocka_unit_test(mistakes), cmocka_unit_test(numbers),
    };
    if (argc != 2)
        return 2;
    shipped_dir = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
