/* See cli_error.h. */
#include "base/cli_error.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"

int cli_error(const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    text_show(text);
    fprintf(stderr, "cede: %s\n", text);
    return CLI_FAILED;
}

int cli_usage(const char *verb, const char *fmt, ...)
{
    char program[32], text[1024];
    va_list ap;
    va_start(ap, fmt);
    if (fmt)
        vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    snprintf(program, sizeof(program), "cede %s", verb);
    return options_wrong(program, fmt ? "%s" : NULL, text);
}
