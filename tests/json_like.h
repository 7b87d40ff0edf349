/* JSON in tests: written with ' for ", and compared with a part of what it holds. */
#ifndef CEDE_TESTS_JSON_LIKE_H
#define CEDE_TESTS_JSON_LIKE_H

#include <fnmatch.h>
#include <jansson.h>

#include "base/json_text.h"
#include "test.h"

#define HELPER static __attribute__((unused))

/* Makes a " of each '. */
HELPER void json_quote(char *text)
{
    for (char *p = text; (p = strchr(p, '\''));)
        *p = '"';
}

/* So, of a request, which gets "v":1 if it names no version. Returns its length. */
HELPER size_t json_request(char *out, size_t size, const char *text)
{
    bool adds = strncmp(text, "{'", 2) == 0 && !strstr(text, "'v':");
    int n = snprintf(out, size, "%s%s", adds ? "{'v':1," : "", text + adds);
    if (n < 0 || (size_t)n >= size)
        abort();
    json_quote(out);
    return (size_t)n;
}

/* Whether `got` has what `want` has: the same members at least, the same elements, texts that match
 * as by fnmatch(3). null: there is no such member. */
HELPER bool json_like(const json_t *got, const json_t *want)
{
    const char *key;
    json_t *part;
    size_t i;
    bool like =
        json_typeof(want) == JSON_NULL ? !got : got && json_typeof(got) == json_typeof(want);
    if (!like || json_is_null(want))
        return like;
    if (json_is_string(want))
        return fnmatch(json_string_value(want), json_string_value(got), 0) == 0;
    if (!json_is_object(want) && !json_is_array(want))
        return json_equal(got, want);
    json_object_foreach ((json_t *)(uintptr_t)want, key, part)
        like &= json_like(json_object_get(got, key), part);
    json_array_foreach(want, i, part) like &= json_like(json_array_get(got, i), part);
    return like && json_array_size(got) == json_array_size(want);
}

HELPER void check_like(const json_t *got, const char *want, bool whole, const char *file, int line)
{
    char text[2048];
    snprintf(text, sizeof(text), "%s", want);
    json_quote(text);
    json_t *o = json_loads(text, JSON_DECODE_ANY, NULL);
    if (o && (whole ? json_equal(got, o) : json_like(got, o))) {
        json_decref(o);
        return;
    }
    char *all = json_dumps(got, JSON_ENCODE_ANY | JSON_COMPACT);
    print_error("not like %s: %.700s\n", want, all ? all : "nothing");
    _fail(file, line);
}
#define assert_like(got, want) check_like(got, want, false, __FILE__, __LINE__)
/* And nothing else. */
#define assert_json(got, want) check_like(got, want, true, __FILE__, __LINE__)

#endif
