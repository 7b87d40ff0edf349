/* Variables that `cede run` sets for a program, so that gates inside it hold its submissions to
 * devices that cannot be steered from outside: OPENCL_LAYERS, LD_PRELOAD on machines with AMD GPUs,
 * and CEDE_GATE, the path of the daemon's gate. */
#ifndef CEDE_CLI_GATES_H
#define CEDE_CLI_GATES_H

#include <stdbool.h>

/* Puts the library at the front of the variable's list, unless it is in it. A library that cannot
 * be read, or whose path has a separator, is left out. 0 or -ENOMEM. */
int gates_list_add(const char *variable, const char *separators, const char *library);

#define GATES_PATH 4096
/* The path of the OpenCL layer; false: it is missing, and path is where it should be. */
bool gates_opencl(char path[static GATES_PATH]);

/* Sets the variables in the child, before it executes the program. socket: the daemon's, whose gate
 * is in the same folder; without a gate nothing is set. 0 or -ENOMEM. */
int gates_enter(const char *socket);

#endif
