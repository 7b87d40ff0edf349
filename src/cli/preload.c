/* See preload.h. Must not touch a program on a machine without the device. */
#include "cli/preload.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "common/util.h"

#define SEPARATORS ": \t\n" /* as the dynamic linker reads it */

static bool holds(const char *list, const char *library)
{
    size_t n = strlen(library);
    for (const char *p = list + strspn(list, SEPARATORS); *p; p += strspn(p, SEPARATORS)) {
        size_t k = strcspn(p, SEPARATORS);
        if (k == n && memcmp(p, library, n) == 0)
            return true;
        p += k;
    }
    return false;
}

int preload_add(const char *device, const char *library)
{
    const char *before = getenv("LD_PRELOAD");
    if (access(device, F_OK) < 0 || access(library, R_OK) < 0 || strpbrk(library, SEPARATORS))
        return 0;
    if (!before || !*before)
        return setenv("LD_PRELOAD", library, 1) < 0 ? -ENOMEM : 0;
    if (holds(before, library))
        return 0;
    _cleanup_free_ char *list = NULL;
    if (asprintf(&list, "%s:%s", library, before) < 0) {
        list = NULL;
        return -ENOMEM;
    }
    return setenv("LD_PRELOAD", list, 1) < 0 ? -ENOMEM : 0;
}
