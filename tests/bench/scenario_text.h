/* A scenario from a text instead of a file of its own. After cmocka.h. */
#ifndef TESTS_BENCH_SCENARIO_TEXT_H
#define TESTS_BENCH_SCENARIO_TEXT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/scenario.h"
#include "lib/util.h"

static inline int load(const char *text, struct scenario_how how, struct scenario **s,
                       struct error *err)
{
    /* fmemopen() takes no empty buffer. */
    text = text[0] ? text : "\n";
    FILE *f = fmemopen((char *)(uintptr_t)text, strlen(text), "r");
    assert_non_null(f);
    *s = NULL;
    int r = scenario_read(f, "/tmp/mine.ini", how, s, err);
    fclose(f);
    return r;
}

/* One that has to be right. */
static inline struct scenario *scenario(const char *text)
{
    struct scenario *s;
    struct error err = {""};
    if (load(text, (struct scenario_how){false, false}, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

#endif
