/* Strings of others in JSON. */
#ifndef CEDE_LIB_JSON_TEXT_H
#define CEDE_LIB_JSON_TEXT_H

#include <jansson.h>
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

#endif
