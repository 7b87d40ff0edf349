/* See address.h. */
#include "journal/address.h"

#include <stdio.h>
#include <string.h>

#define PART_MAX 160

/* Gets the first part without its number of GPUs: "soft*1@/a,gate*4" and "soft@/a" begin with the
 * same part. Returns the rest. */
static const char *next_part(const char *p, char *out, size_t size)
{
    size_t n = 0, len = strcspn(p, ",");
    for (size_t i = 0; i < len && n + 1 < size; i++) {
        if (p[i] == '*')
            i += strspn(p + i + 1, "0123456789");
        else
            out[n++] = p[i];
    }
    out[n] = '\0';
    return p[len] ? p + len + 1 : p + len;
}

void address_text(const char *driver, const char *where, char out[ADDRESS_TEXT])
{
    bool multi = strcmp(driver, ADDRESS_SEVERAL) == 0;
    snprintf(out, ADDRESS_TEXT, "%s%s%s", multi ? "" : driver, multi || !where[0] ? "" : "@",
             where);
}

bool address_same(const char *driver, const char *where, const char *driver2, const char *where2)
{
    char a[ADDRESS_TEXT], b[ADDRESS_TEXT], x[PART_MAX], y[PART_MAX];
    address_text(driver, where, a);
    address_text(driver2, where2, b);
    for (const char *p = a, *q = b; *p && *q;) {
        p = next_part(p, x, sizeof(x));
        q = next_part(q, y, sizeof(y));
        if (strcmp(x, y) != 0)
            return false;
    }
    return true;
}

static bool is_gate(const char *part)
{
    return strcmp(part, "gate") == 0 || strncmp(part, "gate@", strlen("gate@")) == 0;
}

bool address_overlap(const char *driver, const char *where, const char *driver2, const char *where2)
{
    char a[ADDRESS_TEXT], b[ADDRESS_TEXT], x[PART_MAX], y[PART_MAX];
    address_text(driver, where, a);
    address_text(driver2, where2, b);
    for (const char *p = a; *p;) {
        p = next_part(p, x, sizeof(x));
        for (const char *q = b; *q && !is_gate(x);) {
            q = next_part(q, y, sizeof(y));
            if (strcmp(x, y) == 0)
                return true;
        }
    }
    return false;
}
