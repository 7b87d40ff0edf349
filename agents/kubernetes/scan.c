/* See scan.h. */
#include "agents/kubernetes/scan.h"

#include <stdio.h>
#include <string.h>

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static size_t skip_space(struct span s, size_t i)
{
    while (i < s.n && is_space(s.at[i]))
        i++;
    return i;
}

/* The index after the string whose opening quote is at i; 0: the string does not end. */
static size_t skip_string(struct span s, size_t i)
{
    for (i++; i < s.n; i++) {
        if (s.at[i] == '"')
            return i + 1;
        i += s.at[i] == '\\';
    }
    return 0;
}

/* The index after the value that begins at i; 0: it does not end, or there is none. */
static size_t skip_value(struct span s, size_t i)
{
    const size_t first = i;
    size_t depth = 0;
    for (; i < s.n; i++) {
        const char c = s.at[i];
        if (c == '"' && !depth)
            return i == first ? skip_string(s, i) : 0;
        if (c == '"') {
            i = skip_string(s, i);
            if (!i)
                return 0;
            i--;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (depth && (c == '}' || c == ']')) {
            if (--depth == 0)
                return i + 1;
        } else if (!depth && (c == ',' || c == ':' || c == '}' || c == ']' || is_space(c))) {
            return i > first ? i : 0;
        }
    }
    return depth || i == first ? 0 : i;
}

/* The index of the value that follows i inside brackets, and *end after it; 0: there is none. */
static size_t next_value(struct span s, size_t i, size_t *end)
{
    i = skip_space(s, i);
    *end = skip_value(s, i);
    return *end ? i : 0;
}

/* The index after the comma that follows a value; 0: the value was the last. */
static size_t behind_comma(struct span s, size_t i)
{
    i = skip_space(s, i);
    return i < s.n && s.at[i] == ',' ? i + 1 : 0;
}

static size_t opened(struct span s, char bracket)
{
    const size_t i = skip_space(s, 0);
    return i < s.n && s.at[i] == bracket ? i + 1 : 0;
}

bool span_whole(struct span s)
{
    const size_t end = skip_value(s, skip_space(s, 0));
    return end && skip_space(s, end) == s.n;
}

struct span span_member(struct span o, const char *name)
{
    const size_t len = strlen(name);
    size_t end, value_end;
    for (size_t i = opened(o, '{'); i; i = behind_comma(o, value_end)) {
        const size_t key = next_value(o, i, &end);
        if (!key || o.at[key] != '"')
            break;
        const size_t colon = skip_space(o, end);
        if (colon >= o.n || o.at[colon] != ':')
            break;
        const size_t value = next_value(o, colon + 1, &value_end);
        if (!value)
            break;
        if (end - key == len + 2 && memcmp(o.at + key + 1, name, len) == 0)
            return (struct span){o.at + value, value_end - value};
    }
    return (struct span){NULL, 0};
}

bool span_next(struct span list, size_t *at, struct span *out)
{
    const size_t first = opened(list, '[');
    size_t i = !first ? 0 : *at ? behind_comma(list, *at) : first, end;
    if (!i || !(i = next_value(list, i, &end)))
        return false;
    *out = (struct span){list.at + i, end - i};
    *at = end;
    return true;
}

bool span_text(struct span s, char *out, size_t size)
{
    const bool is = s.n >= 2 && s.at[0] == '"' && s.n - 2 < size && !memchr(s.at, '\\', s.n) &&
                    !memchr(s.at, '\0', s.n);
    snprintf(out, size, "%.*s", is ? (int)(s.n - 2) : 0, is ? s.at + 1 : "");
    return is;
}

bool span_is(struct span s, const char *text)
{
    const size_t n = strlen(text);
    return s.n == n + 2 && s.at[0] == '"' && memcmp(s.at + 1, text, n) == 0;
}
