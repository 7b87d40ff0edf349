/* ceded's command line. */
#ifndef CEDE_DAEMON_OPTIONS_H
#define CEDE_DAEMON_OPTIONS_H

#include <stdbool.h>

struct options {
    const char *config, *dir, *device, *soft_socket; /* NULL: not given */
    bool transient;
    char paths[3][4096]; /* where relative ones were made absolute */
};

/* OPTIONS_GO_ON; else the exit status, and everything is said. */
int options_parse(int argc, char **argv, struct options *o);

/* This program again, in this process, with the same options. Returns only if it could not. */
void options_start_again(const struct options *o);

#endif
