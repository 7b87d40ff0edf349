/* See earlier.h. */
#include "bench/earlier.h"

#include <math.h>
#include <string.h>

#define TEXT_MAX 32768 /* a scenario has one or two thousand bytes */

json_t *earlier_text(const char *path)
{
    char buf[TEXT_MAX];
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    size_t n = f ? fread(buf, 1, sizeof(buf), f) : sizeof(buf);
    return n < sizeof(buf) && !ferror(f) ? json_stringn(buf, n) : NULL;
}

const char *earlier_differs(const json_t *then, const json_t *now)
{
    static const struct {
        const char *key, *words;
    } table[] = {
        {"scenario_file", "is of another version of the scenario's file"},
        {"cede_version", "is of another version of cede"},
        {"device", "is of another device"},
        {"quick", "differs in --quick"},
        {"hardware", "is of another GPU"},
        {"driver_version", "is of another version of the driver"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        const json_t *v = json_object_get(now, table[i].key);
        if (json_is_string(v) && json_string_length(v) == 0)
            continue;
        if (!v || !json_equal(v, json_object_get(then, table[i].key)))
            return table[i].words;
    }
    return NULL;
}

/* Files have six digits. */
static bool same_values(const json_t *a, const json_t *b)
{
    const char *axis;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)b, axis, v)
    {
        double is = json_number_value(v);
        const json_t *was = json_object_get(a, axis);
        if (!json_is_number(was) || fabs(json_number_value(was) - is) > 1e-5 * fabs(is))
            return false;
    }
    return json_object_size(a) == json_object_size(b);
}

static bool has_cell(const json_t *result, const char *config, const char *alone,
                     const json_t *point, size_t repeat, bool unavailable)
{
    const json_t *c;
    size_t i;
    json_array_foreach(json_object_get(result, "cells"), i, c)
    {
        const char *name = json_string_value(json_object_get(c, "config"));
        const char *role = json_string_value(json_object_get(c, "alone"));
        const char *status = json_string_value(json_object_get(c, "status"));
        if (name && strcmp(name, config) == 0 && strcmp(role ? role : "", alone) == 0 &&
            json_integer_value(json_object_get(c, "repeat")) == (json_int_t)repeat + 1 &&
            same_values(json_object_get(c, "point"), point))
            return status && (strcmp(status, "ok") == 0 ||
                              (unavailable && strcmp(status, "unavailable") == 0));
    }
    return false;
}

bool earlier_has(const json_t *result, const struct bench *b, const struct session *x,
                 size_t repeat)
{
    const struct scenario *s = x->s;
    bool phases = !x->config && !x->alone, all = true;
    json_t *point = point_json(s);
    for (size_t i = 0; i < (phases ? s->nphases : 1) && all; i++)
        all = has_cell(result, phases ? s->phases[i].name : session_name(x),
                       x->alone ? x->alone->name : "", point, repeat, session_unavailable(b, x));
    json_decref(point);
    return all;
}
