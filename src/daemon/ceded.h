/* The daemon's entry point. */
#ifndef CEDE_DAEMON_CEDED_H
#define CEDE_DAEMON_CEDED_H

/* `ceded`, as ceded(8) tells; returns the exit status: 0; 1: could not start, or left something
 * behind; 2: wrong usage or configuration. */
int ceded_main(int argc, char **argv);

#endif
