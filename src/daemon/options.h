/* ceded's command line. */
#ifndef CEDE_DAEMON_OPTIONS_H
#define CEDE_DAEMON_OPTIONS_H

#include <stdbool.h>

struct options {
    const char *config, *dir, *device, *soft_socket; /* NULL: not given */
    bool transient;
    char paths[3][4096]; /* absolute forms of relative paths */
};

/* OPTIONS_GO_ON; else the exit status, after a message. */
int options_parse(int argc, char **argv, struct options *o);

/* Runs this program anew in this process, with the same options. Returns only if that failed. */
void options_start_again(const struct options *o);

#endif
