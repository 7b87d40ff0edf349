/* See options.h. */
#include "base/options.h"

#include <getopt.h>
#include <stdarg.h>
#include <string.h>

#include "base/text.h"

#define ROWS_MAX 24
#define LONG     256 /* what getopt_long() returns for the first row */

int options_wrong(const char *program, const char *fmt, ...)
{
    char text[1024] = "";
    va_list ap;
    va_start(ap, fmt);
    if (fmt)
        vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    text_show(text);
    if (fmt)
        fprintf(stderr, "%.*s: %s\n", (int)strcspn(program, " "), program, text);
    fprintf(stderr, "try `%s --help`\n", program);
    return OPTIONS_USAGE;
}

static int take(const struct command_line *c, const struct option_row *o)
{
    struct error err = {""};
    if (o->flag)
        *o->flag = true;
    else if (o->text)
        *o->text = optarg;
    else if (o->read(o->to, o->name, optarg, &err) < 0)
        return options_wrong(c->program, "%s", err.text);
    return OPTIONS_GO_ON;
}

int options_read(int argc, char **argv, const struct command_line *c, const struct option_row *rows,
                 size_t n)
{
    struct option longs[ROWS_MAX + 2] = {{0}};
    char letters[2 * ROWS_MAX + 3] = "", *next = stpcpy(letters, c->own ? "+h" : "h");
    if (n > ROWS_MAX)
        return OPTIONS_USAGE;
    for (size_t i = 0; i < n; i++) {
        int argument = rows[i].flag       ? no_argument
                       : rows[i].optional ? optional_argument
                                          : required_argument;
        longs[i] = (struct option){rows[i].name, argument, NULL, LONG + (int)i};
        if (rows[i].letter)
            next += sprintf(next, "%c%s", rows[i].letter, argument ? ":" : "");
    }
    longs[n] = (struct option){"help", no_argument, NULL, 'h'};
    optind = 1;
    for (int got; (got = getopt_long(argc, argv, letters, longs, NULL)) != -1;) {
        size_t i = got < LONG ? 0 : (size_t)got - LONG;
        while (got < LONG && i < n && rows[i].letter != got)
            i++;
        if (got == 'h') {
            fputs(c->help, stdout);
            return 0;
        }
        int status = got == '?' || i == n ? options_wrong(c->program, NULL) : take(c, &rows[i]);
        if (status != OPTIONS_GO_ON)
            return status;
    }
    const char *verb = strchr(c->program, ' ');
    if (c->no_operands && optind < argc)
        return options_wrong(c->program, "%s%sunexpected argument '%s'", verb ? verb + 1 : "",
                             verb ? ": " : "", argv[optind]);
    return OPTIONS_GO_ON;
}
