/* A scenario from a text instead of a file of its own. After cmocka.h. */
#ifndef TESTS_BENCH_SCENARIO_TEXT_H
#define TESTS_BENCH_SCENARIO_TEXT_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/scenario.h"
#include "lib/util.h"

static inline int load(const char *text, struct scenario_how how, struct scenario **s,
                       struct error *err)
{
    char path[] = "/tmp/cede-scenario-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write_full(fd, text, strlen(text)), 0);
    close(fd);
    *s = NULL;
    int r = scenario_load(path, how, s, err);
    unlink(path);
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
