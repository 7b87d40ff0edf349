/* Strings of others in JSON, and fields of an object of which nothing is certain. */
#ifndef CEDE_LIB_JSON_TEXT_H
#define CEDE_LIB_JSON_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Whatever bytes it holds; only what is not UTF-8, or was cut off in the middle, is altered. NULL:
 * no memory. */
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

/* Of the field, if it is there and of that kind; else 0, NULL or false. */
static inline json_int_t json_get_int(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static inline const char *json_get_text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static inline bool json_get_true(const json_t *o, const char *key)
{
    return json_is_true(json_object_get(o, key));
}

#endif
