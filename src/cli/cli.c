/* See cli.h. */
#include "cli/cli.h"

#include <stdio.h>

int cli_print_json(const json_t *o)
{
    if (json_dumpf(o, stdout, JSON_INDENT(2)) == 0)
        putchar('\n');
    return CLI_OK;
}
