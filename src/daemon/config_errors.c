/* Reports errors in cede.conf with their line: see config_impl.h. */
#include <stdarg.h>

#include "daemon/config_impl.h"

int config_complain(struct parser *p, int line, int code, const char *fmt, ...)
{
    if (p->r == 0) {
        char text[384];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        p->r = error_set(p->err, code, "%s:%d: %s", p->file, line, text);
    }
    return 0;
}
