/* Messages and exit status of a verb of `cede` that fails. */
#ifndef CEDE_BASE_CLI_ERROR_H
#define CEDE_BASE_CLI_ERROR_H

#include "base/options.h"
#include "base/util.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = OPTIONS_USAGE };

/* Writes "cede: ...\n" to standard error, in one write. Returns CLI_FAILED. */
int cli_error(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* Writes the same, and where to find the usage; fmt NULL: only that, because getopt has already
 * said what is wrong. Returns CLI_USAGE. */
int cli_usage(const char *verb, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
