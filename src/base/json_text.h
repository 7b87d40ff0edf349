/* Puts foreign strings into JSON, and reads fields of objects that may lack them. */
#ifndef CEDE_BASE_JSON_TEXT_H
#define CEDE_BASE_JSON_TEXT_H

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* A JSON string of any bytes. If they are not UTF-8, such as a text that was cut within a
 * character, each byte outside ASCII becomes ?. NULL: no memory. */
static inline json_t *json_text(const char *s)
{
    json_t *o = json_string(s);
    char *plain = o ? NULL : strdup(s);
    for (char *c = plain; c && *c; c++)
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    o = plain ? json_string(plain) : o;
    free(plain);
    return o;
}

/* The field's value if it is there and has that type; else 0, NULL or false. */
static inline json_int_t json_get_int(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static inline const char *json_get_text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static inline double json_get_number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static inline bool json_get_true(const json_t *o, const char *key)
{
    return json_is_true(json_object_get(o, key));
}

/* Whether the field is that text. */
static inline bool json_text_is(const json_t *o, const char *key, const char *text)
{
    const char *is = json_get_text(o, key);
    return is && strcmp(is, text) == 0;
}

static inline void json_release(json_t **o)
{
    json_decref(*o);
}

/* `_cleanup_json_ json_t *o = NULL;` gives its reference back at the end of the scope. */
#define _cleanup_json_ _cleanup_(json_release)

/* for_each_json (job, jobs): job is each item of an array, job_i its index; jobs that are no array
 * have no items. The inner loop runs once, and job_on ends the outer one after a `break`. */
#define for_each_json(item, array)                                                                 \
    for (size_t item##_i = 0, item##_on = 1; item##_on && item##_i < json_array_size(array);       \
         item##_i++)                                                                               \
        for (json_t *item = (item##_on = 0, json_array_get(array, item##_i)); !item##_on;          \
             item##_on = 1)

/* The number, or null where it is not finite, which stands for "not measured". */
static inline json_t *json_finite(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

/* Whether an array has this string; false: there is none. */
static inline bool json_has_text(const json_t *array, const char *text)
{
    for_each_json (o, array) {
        if (json_is_string(o) && strcmp(json_string_value(o), text) == 0)
            return true;
    }
    return false;
}

/* Whether an array has this integer. */
static inline bool json_has_int(const json_t *array, json_int_t number)
{
    for_each_json (o, array) {
        if (json_is_integer(o) && json_integer_value(o) == number)
            return true;
    }
    return false;
}

#endif
