/* GPU processes that belong to no job, for `cede ps -a`: what a person could adopt. Looks only. */
#ifndef CEDE_CLI_OTHERS_H
#define CEDE_CLI_OTHERS_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "lib/util.h"

/* Whether `pid` is `root` or descends from it, as /proc has it now. */
bool is_descendant(pid_t pid, pid_t root);

/* Adds "others":[{"pid", "name", "uid", "gpus", "memory_bytes"}] to an object with "jobs". Opens
 * the GPU's driver; processes that the caller may not look into may be missing. */
int others_add(json_t *all, struct error *err);

#endif
