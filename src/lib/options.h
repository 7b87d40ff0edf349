/* A program's command line: one row an option, read by getopt_long(). */
#ifndef CEDE_LIB_OPTIONS_H
#define CEDE_LIB_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/util.h"

/* One of flag, text and read. */
struct option_row {
    const char *name;
    char letter;       /* 0: none */
    bool *flag;        /* set by an option without an argument */
    const char **text; /* set to its argument */
    /* What reads its argument; 0, or -errno with what is wrong with it. */
    int (*read)(void *to, const char *name, const char *text, struct error *err);
    void *to;
    bool optional; /* the argument, which `read` has as NULL if it is not given: --name=ARGUMENT */
};

struct command_line {
    const char *program; /* "cede run", whose --help describes it */
    const char *help;    /* printed by -h and --help */
    bool own;            /* options after the first operand are not ours */
};

#define OPTIONS_GO_ON (-1)
#define OPTIONS_USAGE 2 /* exit status of wrong usage */

/* OPTIONS_GO_ON: the first operand is argv[optind]. Else the exit status, and all is said: after
 * --help 0. getopt calls the program what argv[0] says. */
int options_read(int argc, char **argv, const struct command_line *c, const struct option_row *rows,
                 size_t n);

/* Says on standard error what is wrong, if fmt is not NULL, and where to find the usage. Returns
 * OPTIONS_USAGE. */
int options_wrong(const char *program, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
