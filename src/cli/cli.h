/* What the verbs of `cede` share: their entry points, exit statuses and how they speak to a person.
 * No verb includes another verb's code; what two need is here, in client.h or in targets.h. */
#ifndef CEDE_CLI_CLI_H
#define CEDE_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>

#include "control/proto.h"
#include "lib/options.h"
#include "lib/util.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = OPTIONS_USAGE };

/* argv[0] is "cede" whatever the verb, for getopt's messages; the return value is the exit status.
 * main() flushes standard output afterwards and reports what could not be written. */
int run_main(int argc, char **argv);
int set_main(int argc, char **argv);
int pause_main(int argc, char **argv);
int resume_main(int argc, char **argv);
int swap_out_main(int argc, char **argv);
int swap_in_main(int argc, char **argv);
int yield_main(int argc, char **argv);
int acquire_main(int argc, char **argv);
int ps_main(int argc, char **argv);
int top_main(int argc, char **argv);
int acct_main(int argc, char **argv);
int metrics_main(int argc, char **argv);
int policy_main(int argc, char **argv);
int rules_main(int argc, char **argv);
int bench_main(int argc, char **argv);
int demo_main(int argc, char **argv);
int profile_main(int argc, char **argv);
int advise_main(int argc, char **argv);
int why_main(int argc, char **argv);
int trace_main(int argc, char **argv);
int kube_agent_main(int argc, char **argv);
int doctor_main(int argc, char **argv);
int check_main(int argc, char **argv); /* cede-check */

/* "cede: ...\n" on standard error, in one write. */
void cli_error(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* The same, and where to find the usage; fmt NULL: only that (getopt has spoken already).
 * Returns CLI_USAGE. */
int cli_usage(const char *verb, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Returns CLI_OK: main() sees whether it was written. */
int cli_print_json(const json_t *o);

#endif
