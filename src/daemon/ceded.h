/* The daemon's entry point. */
#ifndef CEDE_DAEMON_CEDED_H
#define CEDE_DAEMON_CEDED_H

/* `ceded` (ceded(8)). Returns the exit status: 0; 1: it could not start, or changes were left in
 * effect; 2: wrong usage or configuration. */
int ceded_main(int argc, char **argv);

#endif
