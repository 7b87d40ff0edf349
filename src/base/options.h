/* Reads a program's command line with getopt_long(): one row per option. */
#ifndef CEDE_BASE_OPTIONS_H
#define CEDE_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"

/* Exactly one of flag, text and read is set. */
struct option_row {
    const char *name;
    char letter;       /* 0: none */
    bool *flag;        /* set by an option without an argument */
    const char **text; /* set to its argument */
    /* Reads its argument; 0, or -errno with what is wrong with it in err. */
    int (*read)(void *to, const char *name, const char *text, struct error *err);
    void *to;
    bool optional; /* the argument may be missing, and `read` gets NULL then: --name[=ARGUMENT] */
};

struct command_line {
    const char *program; /* as in "cede run" */
    const char *help;    /* printed by -h and --help */
    bool own;            /* only options before the first operand are read */
    bool no_operands;    /* operands are an error */
};

#define OPTIONS_GO_ON (-1)
#define OPTIONS_USAGE 2 /* exit status of wrong usage */

/* OPTIONS_GO_ON: the first operand is argv[optind]. Else the exit status (after --help: 0), and
 * every message has been printed; getopt takes the program's name in its messages from argv[0]. */
int options_read(int argc, char **argv, const struct command_line *c, const struct option_row *rows,
                 size_t n);

/* Writes to standard error what is wrong, if fmt is not NULL, and where to find the usage. Returns
 * OPTIONS_USAGE. */
int options_wrong(const char *program, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
