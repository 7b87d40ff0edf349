/* See cli.h. Only text for people. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>

#include "lib/text.h"

void cli_error(const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    text_show(text);
    fprintf(stderr, "cede: %s\n", text);
}

int cli_usage(const char *verb, const char *fmt, ...)
{
    char program[32], text[1024];
    va_list ap;
    va_start(ap, fmt);
    if (fmt) {
        vsnprintf(text, sizeof(text), fmt, ap);
        text_show(text);
    }
    va_end(ap);
    snprintf(program, sizeof(program), "cede %s", verb);
    return options_wrong(program, fmt ? "%s" : NULL, text);
}

int cli_print_json(const json_t *o)
{
    if (json_dumpf(o, stdout, JSON_INDENT(2)) == 0)
        putchar('\n');
    return CLI_OK;
}
