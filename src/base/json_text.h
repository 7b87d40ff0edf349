/* Puts foreign strings into JSON, and reads fields of objects that may lack them. */
#ifndef CEDE_BASE_JSON_TEXT_H
#define CEDE_BASE_JSON_TEXT_H

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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

/* The number, or null where it is not finite, which stands for "not measured". */
static inline json_t *json_finite(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

#endif
