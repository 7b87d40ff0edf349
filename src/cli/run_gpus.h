/* `cede run --gpus`: the daemon chooses GPUs for the program, which gets them by
 * CUDA_VISIBLE_DEVICES. */
#ifndef CEDE_CLI_RUN_GPUS_H
#define CEDE_CLI_RUN_GPUS_H

#include <stdbool.h>

#include <jansson.h>

#include "api/proto.h"

/* Puts the variable's present value into a request that asks for GPUs. -EINVAL: it is too long. */
int place_ask(struct request *r, struct error *err);
/* Sets the variable to the chosen GPUs, for this process and its children. Reports the change of a
 * variable that was set, unless quiet. */
void place_enter(const struct request *r, const json_t *reply, bool quiet);
/* Whether a refusal says that no job can get the GPUs that were asked for. */
bool place_impossible(const struct request *r, int code);
/* Whether the daemon cannot choose GPUs: it is an older one, or has none to choose from. The
 * request asks for none from now on. */
bool place_drop(struct request *r, int code, const struct error *err);

#endif
