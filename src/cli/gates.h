/* What `cede run` puts into a program's environment, so that it holds its own submissions where
 * nobody can do that from outside: OPENCL_LAYERS, LD_PRELOAD on machines with AMD GPUs, and
 * CEDE_GATE, which says where the daemon listens. */
#ifndef CEDE_CLI_GATES_H
#define CEDE_CLI_GATES_H

#include <stdbool.h>

/* Puts the library in front of what the variable's list holds, once; changes nothing if it cannot
 * be read or named there. 0 or -ENOMEM. */
int gates_list_add(const char *variable, const char *separators, const char *library);

#define GATES_PATH 4096
/* Where the OpenCL layer is, or false and where it should be. */
bool gates_opencl(char path[static GATES_PATH]);

/* In the child, before it executes the program. socket: the daemon's; its gate is beside it.
 * Nothing happens where the daemon has none. 0 or -ENOMEM. */
int gates_enter(const char *socket);

#endif
