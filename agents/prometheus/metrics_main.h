/* `cede metrics`. */
#ifndef CEDE_AGENTS_METRICS_MAIN_H
#define CEDE_AGENTS_METRICS_MAIN_H

/* A verb of `cede`: the exit status. */
int metrics_main(int argc, char **argv);

#endif
