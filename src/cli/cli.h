/* Entry points, exit statuses and output of the verbs of `cede`. No verb includes another verb's
 * code; code that several need is here, in client.h, targets.h, choose.h, without_daemon.h or
 * ps_notes.h. */
#ifndef CEDE_CLI_CLI_H
#define CEDE_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>

#include "api/proto.h"
#include "base/cli_error.h"
#include "base/options.h"
#include "base/util.h"

/* argv[0] is always "cede", for getopt's messages; the result is the exit status. main() flushes
 * standard output afterwards and reports a failure to write it. */
int run_main(int argc, char **argv);
int set_main(int argc, char **argv);
int detach_main(int argc, char **argv);
int pause_main(int argc, char **argv);
int resume_main(int argc, char **argv);
int swap_either_main(int argc, char **argv); /* in or out, by its first operand */
int swap_out_main(int argc, char **argv);
int swap_in_main(int argc, char **argv);
int kill_main(int argc, char **argv);
int yield_main(int argc, char **argv);
int acquire_main(int argc, char **argv);
int status_main(int argc, char **argv);
int ps_main(int argc, char **argv);
int top_main(int argc, char **argv);
int acct_main(int argc, char **argv);
int policy_main(int argc, char **argv);
int rules_main(int argc, char **argv);
int bench_main(int argc, char **argv);
int demo_main(int argc, char **argv);
int advise_main(int argc, char **argv);
int why_main(int argc, char **argv);
int trace_main(int argc, char **argv);
int doctor_main(int argc, char **argv);

/* Follows "no daemon is running". */
#define CLI_START "; `systemctl start ceded`, or `cede run` starts one"

/* Prints o. Always returns CLI_OK, since main() checks whether standard output could be written. */
int cli_print_json(const json_t *o);

/* Reads a user, by name or number, for an option. `to` is a uid_t. */
int cli_read_user(void *to, const char *name, const char *text, struct error *err);

#endif
