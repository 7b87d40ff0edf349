/* See pairs.h. */
#include "base/pairs.h"

#include <errno.h>
#include <string.h>

int pairs_put(char *buf, size_t size, size_t *n, const char *name, const char *value)
{
    const size_t a = strlen(name) + 1, b = strlen(value) + 1;
    if (*n > size || a > size - *n || b > size - *n - a)
        return -ENOSPC;
    memcpy(buf + *n, name, a);
    memcpy(buf + *n + a, value, b);
    *n += a + b;
    return 0;
}

bool pairs_valid(struct pairs p)
{
    size_t ends = 0;
    for (size_t i = 0; i < p.n; i++)
        ends += p.text[i] == '\0';
    return p.n == 0 || (ends % 2 == 0 && p.text[p.n - 1] == '\0');
}

bool pairs_next(struct pairs p, size_t *at, const char **name, const char **value)
{
    if (*at >= p.n)
        return false;
    *name = p.text + *at;
    *value = *name + strlen(*name) + 1;
    *at += (size_t)(*value - *name) + strlen(*value) + 1;
    return true;
}

const char *pairs_get(struct pairs p, const char *name)
{
    const char *key, *value;
    for (size_t at = 0; pairs_next(p, &at, &key, &value);) {
        if (strcmp(key, name) == 0)
            return value;
    }
    return NULL;
}
