/* For tests of programs that hold their own submissions: a daemon for them beside the software GPU,
 * and how a load gets on, by what it reports. */
#ifndef CEDE_TESTS_E2E_GATED_H
#define CEDE_TESTS_E2E_GATED_H

#include "fixture.h"

static struct ceded begin(void)
{
    set_device("soft,gate");
    configure(100, "");
    return ceded_start();
}

/* The last number of that name that a load reported. */
static double last_of(const char *name, const char *key)
{
    char file[80], look[32];
    snprintf(file, sizeof(file), "%s.out", name);
    snprintf(look, sizeof(look), "\"%s\":", key);
    const char *text = contents(file), *at = NULL;
    for (const char *p = text; (p = strstr(p, look)); p++)
        at = p;
    return at ? strtod(at + strlen(look), NULL) : 0;
}

/* It gets something done from now on. */
static bool moves(const char *name, const char *key)
{
    double before = last_of(name, key);
    return EVENTUALLY(last_of(name, key) > before + 5);
}

static bool level_is(const char *name, int level)
{
    return job_count(name, "levels") == 1 && job_int(name, "levels.0") == level;
}

#endif
