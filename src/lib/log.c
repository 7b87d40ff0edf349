/* See log.h. */
#include "lib/log.h"

#include <stdarg.h>

void logger_init(struct logger *l, int level)
{
    l->level = level;
    l->prefixed = getenv("JOURNAL_STREAM") || getenv("NOTIFY_SOCKET");
}

void logger_say(const struct logger *l, int level, const char *fmt, ...)
{
    if (level > l->level)
        return;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    for (char *p = text; *p; p++) {
        if ((unsigned char)*p < ' ') /* one message is one line, whatever was quoted */
            *p = ' ';
    }
    if (l->prefixed)
        fprintf(stderr, "<%d>%s\n", level, text);
    else
        fprintf(stderr, "ceded: %s\n", text);
}
